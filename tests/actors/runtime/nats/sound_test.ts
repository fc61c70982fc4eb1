/** A host may speak for its own isolates only. */

import assert from "node:assert/strict";
import { checkReport } from "../../../../actors/transports/nats/leader.ts";

/** The host has isolate 3 of the system, as its first one. */
const ISOLATES = new Map([[1, 3]]);
const OWN = { id: "mine", isolate: 3, serial: 1 }, OTHER = { id: "other", isolate: 4, serial: 1 };
const SUPERVISOR = { id: "supervisor", isolate: 0, serial: 1 };
/** The first isolate that isolate 3, or 4, has started. */
const CHILD = 3 * 65_536 + 1, OTHERS_CHILD = 4 * 65_536 + 1;

const say = (from: unknown, more: object = {}) => ({
  ...{ kind: "message", to: SUPERVISOR, from, lane: "data", message: { type: "Done" } },
  ...more,
});
const reason = { actor: "mine", kind: "throw", error: { name: "Error", message: "", stack: "" } };

/** Tells an isolate which events to report. */
const subscribe = (to: number, subscription: unknown = { slowStepMs: 20 }) => ({
  ...{ kind: "forward", to, frame: { kind: "subscribe", subscription }, transfer: [] },
});

const MODULES = new Set(["file:///worker.ts"]);

/** Starts an isolate. */
const start = (module: string, isolate: string, number = CHILD) => ({
  ...{ kind: "start", isolate: number, transfer: [] },
  launch: {
    ...{ kind: "launch", ref: { ...OWN, isolate: number }, parent: OWN, init: {}, capacity: 9 },
    ...{ spec: { module, export: "made" }, place: { isolate } },
  },
});
const stop = (to: number, ref: unknown) => ({
  ...{ kind: "forward", to, frame: { kind: "stop", ref, drain: false }, transfer: [] },
});
const answer = (outcome: unknown, from = 3) => ({ kind: "answer", from, ask: 1, outcome });

const SOUND: readonly unknown[] = [
  say(OWN),
  say(OWN, { lane: "control", replyTo: { isolate: 3, ask: 1 } }),
  { kind: "forward", to: 4, frame: say(OWN, { to: OTHER }), transfer: [] },
  subscribe(CHILD),
  { ...subscribe(CHILD), frame: { kind: "subscribe", subscription: undefined } },
  { kind: "watch", ref: OTHER, by: 3 },
  { kind: "down", ref: OWN, reason },
  { kind: "done", reason: "stopped" },
  { kind: "kill", isolate: CHILD, why: "it does not stop" },
  stop(4, OTHER),
  start("file:///worker.ts", "nats"),
  answer({ status: "answered", value: 1 }),
  answer({ status: "unanswered" }),
  answer({ status: "unsent", why: "it has no room" }),
  answer({ status: "gone", failure: reason }),
];

const FORGED: readonly unknown[] = [
  { kind: ["done"], reason: "stopped" },
  say(OTHER),
  say(SUPERVISOR),
  say(OWN, { lane: "fast" }),
  say(OWN, { message: "Done" }),
  say(OWN, { replyTo: { isolate: 4, ask: 1 } }),
  { kind: "forward", to: 4, frame: say(OTHER), transfer: [] },
  { kind: "forward", to: 4, frame: { kind: "forward", to: 5, frame: say(OWN) }, transfer: [] },
  { kind: "forward", to: 4, frame: { kind: "launch", ref: OTHER }, transfer: [] },
  subscribe(4),
  subscribe(OTHERS_CHILD),
  subscribe(CHILD, 20),
  { kind: "watch", ref: OTHER, by: 4 },
  { kind: "down", ref: OTHER, reason },
  { kind: "ended", parent: SUPERVISOR, child: OTHER, reason: "stopped" },
  { kind: "done", reason: "broken" },
  { kind: "done", reason: { ...reason, error: {} } },
  start("file:///worker.ts", "worker"),
  start("data:text/javascript,0", "nats"),
  start("file:///worker.ts", "nats", OTHERS_CHILD),
  answer({}),
  answer({ status: "answered", value: 1 }, 4),
  answer({ status: "failed" }),
  answer({ status: "gone", failure: "stopped" }),
  { kind: "kill", isolate: 4, why: "forged" },
  { kind: "kill", isolate: OTHERS_CHILD, why: "forged" },
  stop(0, SUPERVISOR),
  stop(4, SUPERVISOR),
  stop(0, OTHER),
  stop(4, OTHER).frame,
  { kind: "forward", to: -1, frame: say(OWN, { to: OTHER }), transfer: [] },
  { kind: "invite", to: 4, address: {}, transfer: [] },
  { kind: "isolate-gone", isolate: 4, reason },
  { kind: "subscribe", subscription: {} },
  { kind: "boot" },
  null,
  undefined,
  "message",
];

Deno.test("nats: a host speaks for its own isolates only", () => {
  const check = (report: unknown) => checkReport(report, ISOLATES, MODULES);
  const of = (frame: unknown, isolate = 1) => ({ kind: "frame", isolate, frame });
  for (const frame of SOUND) {
    check(of(frame));
    assert.throws(() => check(of(frame, 2)), RangeError);
  }
  for (const frame of FORGED) {
    assert.throws(() => check(of(frame)), RangeError, JSON.stringify(frame));
  }
  for (const kind of ["alive", "ended"]) check({ kind, isolate: 1 });
  check({ kind: "gone", isolate: 1, cause: "it has ended" });
  const gone = { kind: "gone", isolate: 2, cause: "" };
  for (const report of [null, {}, { kind: "gone", isolate: 1 }, gone]) {
    assert.throws(() => check(report), RangeError);
  }
});
