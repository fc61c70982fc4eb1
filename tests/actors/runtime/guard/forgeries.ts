/**
 * Forged frames of each kind, and their outcomes: a new kind of frame does not compile until
 * forgeries.json has its forgeries. There, "@friend" and the like stand for what a scene has, and a
 * record with "@" is that with other fields.
 *
 * @module
 */

import type { Frame, SwitchFrame, UpFrame } from "../../../../actors/runtime/transports/wire.ts";
import FILE from "./forgeries.json" with { type: "json" };
import type { Scene } from "./impostor.ts";

/** A frame, the forgery in it, and its outcome: its isolate "ends", it is "denied", or it "passes". */
export type Forgery = readonly [forgery: string, outcome: string, frame: (scene: Scene) => unknown];

/** Every kind of frame that an isolate may send. */
type Kind = (UpFrame | Frame | SwitchFrame)["kind"];

/** Forgeries of a frame: `but` has the fields that differ, `over` the isolate that hands it on. */
interface Forged {
  readonly frame: object;
  readonly forgeries: readonly {
    readonly is: string;
    readonly then: string;
    readonly but?: object;
    readonly over?: string;
  }[];
}

const KINDS: { readonly [K in Kind]: Forged } = FILE;

/** More text, and more values, than a message may have. */
const endless = "x".repeat(1e6), many = Array(2_000_000).fill(0);

/** Somewhere deep in a value. */
const deep = (ref: unknown) =>
  new Map([["x", new Set([[{ error: new Error("x", { cause: { ref } }) }]])]]);

/** What the names behind "@" stand for. */
function namedIn({ self, friend, victim, stranger, impostor }: Scene): Record<string, unknown> {
  const system = { ...self, id: "system", isolate: 0, serial: 0 };
  const message = { type: "Note" }, stack = "made up";
  return {
    ...{ self, friend, victim, stranger, system, nothing: undefined, NaN },
    ...{ deepVictim: deep(victim), deepFriend: deep(friend), buffer: new ArrayBuffer(1) },
    ...{ endless, many, launch: impostor.boot.launch, isolateBelow: self.isolate * 65_536 + 1 },
    message: { kind: "message", to: friend, from: self, lane: "data", message },
    failure: { actor: "victim", kind: "throw", error: { name: "Error", message: stack, stack } },
    slowStep: {
      ...{ type: "slow-step", actor: self.id, handling: "x", forMs: 1, isOver: true, waitsFor: [] },
    },
  };
}

/** Puts what a scene has in the places that name it. */
function filled(value: unknown, named: Record<string, unknown>): unknown {
  if (typeof value === "string" && value.startsWith("@")) {
    const [name, isolate] = value.slice(1).split(".");
    return isolate ? (named[name!] as Scene["self"]).isolate : named[name!];
  }
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map((one) => filled(one, named));
  const { "@": base, ...own } = value as Record<string, unknown>;
  const fields = Object.entries(own).map(([key, one]) => [key, filled(one, named)]);
  return { ...named[base as string] as object, ...Object.fromEntries(fields) };
}

/** Each is sent by a fresh impostor that owes the answer to question 0 of the root. */
export const FORGERIES: Readonly<Record<string, readonly Forgery[]>> = Object.fromEntries(
  Object.entries(KINDS).map(([kind, { frame, forgeries }]) => [
    kind,
    forgeries.map(({ is, then, but, over }): Forgery => [is, then, (scene) => {
      const forged = { kind, ...frame, ...but }, to = over;
      return filled(
        to ? { kind: "forward", to, frame: forged, transfer: [] } : forged,
        namedIn(scene),
      );
    }]),
  ]),
);
