/** The schema of Chrome's trace events, as its documentation describes those that Troupe writes. */

import type { Schema } from "@cfworker/json-schema";

const NUMBER: Schema = { type: "number" }, TIME: Schema = { type: "number", minimum: 0 };
const TEXT: Schema = { type: "string", minLength: 1 }, ARGS: Schema = { type: "object" };
const ID: Schema = { type: "integer", minimum: 0 };

/** An event of a phase, which has all of `more` and nothing else. */
const event = (ph: string, more: Record<string, Schema>): Schema => ({
  type: "object",
  properties: { ph: { const: ph }, name: TEXT, pid: ID, tid: ID, ...more },
  required: ["ph", "name", "pid", "tid", ...Object.keys(more)],
  additionalProperties: false,
});

/** A whole trace in the format of a JSON array. */
export const TRACE_SCHEMA: Schema = {
  type: "array",
  items: {
    oneOf: [
      event("M", { args: ARGS }),
      event("X", { cat: TEXT, ts: TIME, dur: TIME, args: ARGS }),
      event("s", { cat: TEXT, id: ID, ts: TIME }),
      event("f", { cat: TEXT, id: ID, ts: TIME, bp: { const: "e" } }),
      event("C", {
        ts: TIME,
        args: { type: "object", additionalProperties: NUMBER, minProperties: 1 },
      }),
      event("i", { cat: TEXT, ts: TIME, s: { enum: ["g", "p", "t"] }, args: ARGS }),
    ],
  },
};

/** An event of such a file, as tests read it. */
export interface TraceEvent<Argument = unknown> {
  readonly ph: string;
  readonly name: string;
  readonly cat: string;
  readonly pid: number;
  readonly tid: number;
  readonly ts: number;
  readonly dur: number;
  readonly id: number;
  readonly args: Readonly<Record<string, Argument>>;
}
