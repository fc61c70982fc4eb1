/**
 * What an impostor may try, for each kind of frame: a new kind does not compile until somebody has
 * thought of it here.
 *
 * @module
 */

import type { Frame, SwitchFrame, UpFrame } from "../../../../actors/runtime/transports/wire.ts";
import type { Scene } from "./impostor.ts";

/** What comes of it: it ends, it is told that it must not, nobody notices, or all is well. */
export type Outcome = "ends" | "denied" | "nothing" | "passes";

/** Some frame, what is wrong with it, and what comes of it. */
export type Forgery = readonly [what: string, outcome: Outcome, frame: (scene: Scene) => unknown];

/** Every kind of frame that an isolate may send. */
export type Kind = (UpFrame | Frame | SwitchFrame)["kind"];

const message = (scene: Scene, forged: Record<string, unknown> = {}) => ({
  kind: "message",
  to: scene.friend,
  from: scene.self,
  lane: "data",
  message: { type: "Note" },
  ...forged,
});

const forward = (to: number, frame: unknown, transfer: unknown = []) => ({
  kind: "forward",
  to,
  frame,
  transfer,
});

/** As the isolate of another would put it. */
const toStranger = ({ stranger }: Scene, frame: unknown) => forward(stranger.isolate, frame);

const system = ({ self }: Scene) => ({ ...self, id: "system", isolate: 0, serial: 0 });

const failure = {
  actor: "victim",
  kind: "throw",
  error: { name: "Error", message: "made up", stack: "made up" },
};

/** The first question that the root asks is the impostor's to answer. */
const asked = { kind: "answer", ask: 0, outcome: { status: "answered", value: 1 } };

const deep = (ref: unknown) =>
  new Map([["x", new Set([[{ error: new Error("x", { cause: { ref } }) }]])]]);

/** Each is said by a fresh impostor that owes the answer to question 0 of the root. */
export const FORGERIES: { readonly [K in Kind]: readonly Forgery[] } = {
  message: [
    ["to whom it knows", "passes", message],
    ["from a child of its own", "passes", (s) => message(s, { from: { ...s.self, serial: 9 } })],
    ["to whom it was not given", "denied", (s) => message(s, { to: s.victim })],
    ["to the system", "denied", (s) => message(s, { to: system(s) })],
    ["to another name", "denied", (s) => message(s, { to: { ...s.friend, id: "victim" } })],
    ["to a stranger", "denied", (s) => toStranger(s, message(s, { to: s.stranger }))],
    ["past the one it is for", "ends", (s) => toStranger(s, message(s))],
    ["in the name of a victim", "ends", (s) => message(s, { from: s.victim })],
    ["in the name of a friend", "ends", (s) => message(s, { from: s.friend })],
    ["in the name of the system", "ends", (s) => message(s, { from: system(s) })],
    ["by another name", "ends", (s) => message(s, { from: { ...s.self, id: "victim" } })],
    ["from nobody's serial", "ends", (s) => message(s, { from: { ...s.self, serial: 0 } })],
    ["of another system", "ends", (s) => message(s, { to: { ...s.friend, system: 0 } })],
    ["without a message", "ends", (s) => message(s, { message: null })],
    ["without a type", "ends", (s) => message(s, { message: { type: 3 } })],
    ["in no lane", "ends", (s) => message(s, { lane: "urgent" })],
    ["of a name without end", "denied", (s) => message(s, { message: { type: "x".repeat(1e6) } })],
    ["of a prototype's name", "passes", (s) => message(s, { message: { type: "__proto__" } })],
    [
      "with a stranger in it",
      "denied",
      (s) => message(s, { message: { type: "Note", ref: deep(s.victim) } }),
    ],
    [
      "with a friend in it",
      "passes",
      (s) => message(s, { message: { type: "Note", ref: deep(s.friend) } }),
    ],
    [
      "with values without end",
      "denied",
      (s) => message(s, { message: { type: "Note", many: Array(2_000_000).fill(0) } }),
    ],
    [
      "with a receipt for a victim",
      "ends",
      (s) => message(s, { receipt: { to: s.victim, message: { type: "Note" } } }),
    ],
    [
      "with a receipt for a friend",
      "ends",
      (s) => message(s, { receipt: { to: s.friend, message: { type: "Note" } } }),
    ],
    [
      "with a stranger in the receipt",
      "denied",
      (s) => message(s, { receipt: { to: s.self, message: { type: "Note", ref: s.victim } } }),
    ],
    [
      "that has the answer go elsewhere",
      "ends",
      (s) => message(s, { replyTo: { isolate: s.stranger.isolate, ask: 0 } }),
    ],
    [
      "that hands on what it keeps",
      "ends",
      (s) => message(s, { replyTo: { isolate: 0, ask: 0 }, from: system(s) }),
    ],
    ["as a receipt for which nobody asked", "ends", (s) =>
      message(s, {
        to: { ...system(s), serial: Number.MAX_SAFE_INTEGER },
        message: { type: "receipt", ticket: 0 },
      })],
  ],
  answer: [
    ["to what it was asked", "passes", () => asked],
    ["to what it was not asked", "ends", () => ({ ...asked, ask: 1 })],
    ["to a question of a stranger", "ends", (s) => toStranger(s, asked)],
    ["with a stranger in it", "denied", (s) => ({
      ...asked,
      outcome: { status: "answered", value: { ref: s.victim } },
    })],
    ["of the asker's own making", "ends", () => ({ ...asked, outcome: { status: "timeout" } })],
    ["that names a circle", "ends", (s) => ({
      ...asked,
      outcome: { status: "circle", path: [s.victim] },
    })],
    ["that is none", "ends", () => ({ ...asked, outcome: { status: "gone", failure: {} } })],
  ],
  chase: [
    ["of a question of its own that nobody owes", "nothing", (s) => ({
      kind: "chase",
      to: s.victim,
      edge: { isolate: s.self.isolate, ask: 0 },
      by: s.self,
      first: { isolate: s.self.isolate, ask: 0 },
      path: [],
    })],
    ["of a question of the root", "ends", (s) => ({
      kind: "chase",
      to: s.victim,
      edge: { isolate: 0, ask: 0 },
      by: system(s),
      first: { isolate: 0, ask: 0 },
      path: [],
    })],
  ],
  forwarded: [
    ["what it was asked, to whom it knows", "passes", (s) => ({
      kind: "forwarded",
      ask: 0,
      to: s.friend,
    })],
    ["what it was asked, to a victim", "nothing", (s) => ({
      kind: "forwarded",
      ask: 0,
      to: s.victim,
    })],
    ["what it was not asked", "ends", (s) => ({ kind: "forwarded", ask: 1, to: s.friend })],
  ],
  withdraw: [
    ["what it has not asked", "nothing", (s) => ({
      kind: "withdraw",
      to: s.victim,
      question: { isolate: s.self.isolate, ask: 0 },
    })],
    ["what another has asked", "ends", (s) => ({
      kind: "withdraw",
      to: s.victim,
      question: { isolate: 0, ask: 0 },
    })],
  ],
  watch: [
    ["whom it knows", "passes", (s) => ({ kind: "watch", ref: s.friend, by: s.self.isolate })],
    ["a victim", "denied", (s) => ({ kind: "watch", ref: s.victim, by: s.self.isolate })],
    ["in the name of another", "ends", (s) => ({
      kind: "watch",
      ref: s.friend,
      by: s.stranger.isolate,
    })],
  ],
  unwatch: [
    ["a victim", "nothing", (s) => ({ kind: "unwatch", ref: s.victim, by: s.self.isolate })],
    ["in the name of another", "ends", (s) => ({ kind: "unwatch", ref: s.friend, by: 0 })],
  ],
  down: [
    ["of a victim", "ends", (s) => ({ kind: "down", ref: s.victim, reason: "stopped" })],
    [
      "of its own, where nobody watches",
      "ends",
      (s) => toStranger(s, { kind: "down", ref: s.self, reason: "stopped" }),
    ],
    ["for no reason", "ends", (s) => ({ kind: "down", ref: s.self, reason: { actor: "x" } })],
    ["of its own child, where somebody watches", "passes", (s) => ({
      kind: "down",
      ref: { ...s.self, serial: 2 },
      reason: failure,
    })],
  ],
  stop: [
    ["a friend", "denied", (s) => ({ kind: "stop", ref: s.friend })],
    ["a victim", "denied", (s) => ({ kind: "stop", ref: s.victim, drain: true })],
    ["the system", "denied", (s) => ({ kind: "stop", ref: system(s) })],
    ["a stranger", "denied", (s) => toStranger(s, { kind: "stop", ref: s.stranger })],
    ["nobody", "ends", () => ({ kind: "stop" })],
  ],
  event: [
    ["of a step of its own", "passes", () => ({
      kind: "event",
      event: {
        type: "slow-step",
        actor: "package",
        handling: "x",
        forMs: 1,
        isOver: true,
        waitsFor: [],
      },
    })],
    ["that another was denied something", "ends", () => ({
      kind: "event",
      event: { type: "denied", actor: "victim", what: "read", on: "/" },
    })],
    ["for a stranger", "ends", (s) => toStranger(s, { kind: "event", event: {} })],
  ],
  ended: [
    ["of a victim", "ends", (s) => ({
      kind: "ended",
      parent: system(s),
      child: s.victim,
      reason: failure,
    })],
    ["of a child of its own", "ends", (s) => ({
      kind: "ended",
      parent: system(s),
      child: { ...s.self, serial: 2 },
      reason: failure,
    })],
  ],
  credit: [
    [
      "of a stranger",
      "ends",
      (s) => toStranger(s, { kind: "credit", credit: { isolate: s.stranger.isolate, number: 0 } }),
    ],
    ["of its own", "ends", (s) => ({
      kind: "credit",
      credit: { isolate: s.self.isolate, number: 0 },
    })],
  ],
  subscribe: [[
    "for others",
    "ends",
    (s) => toStranger(s, { kind: "subscribe", subscription: { slowStepMs: 0 } }),
  ]],
  launch: [[
    "into a stranger",
    "ends",
    (s) => toStranger(s, { ...s.impostor.boot.launch, ref: { ...s.stranger, serial: 2 } }),
  ]],
  switch: [[
    "of a stranger",
    "ends",
    (s) => toStranger(s, { kind: "switch", from: s.self.isolate }),
  ]],
  forward: [
    ["to the root", "ends", (s) => forward(0, message(s))],
    ["to itself", "ends", (s) => forward(s.self.isolate, message(s))],
    ["to nowhere", "ends", (s) => forward(NaN, message(s))],
    ["of what is for the root", "ends", (s) => toStranger(s, { kind: "done", reason: "stopped" })],
    [
      "with buffers that are none",
      "ends",
      (s) => forward(s.stranger.isolate, message(s, { to: s.stranger }), [{}]),
    ],
    ["with a buffer twice", "ends", (s) => {
      const buffer = new ArrayBuffer(1);
      return forward(s.stranger.isolate, message(s, { to: s.stranger }), [buffer, buffer]);
    }],
    ["of nothing", "ends", (s) => forward(s.stranger.isolate, undefined)],
  ],
  start: [
    ["an isolate of its own", "denied", (s) => ({
      kind: "start",
      isolate: s.self.isolate * 65_536 + 1,
      launch: s.impostor.boot.launch,
      transfer: [],
    })],
    ["one of the root", "ends", (s) => ({
      kind: "start",
      isolate: 99,
      launch: s.impostor.boot.launch,
      transfer: [],
    })],
  ],
  done: [["for no reason", "ends", () => ({ kind: "done", reason: { kind: "throw" } })]],
  "dead-letter": [
    ["of its own", "passes", () => ({
      kind: "dead-letter",
      letter: { from: "a", to: "b", type: "Note", reason: "stopped" },
    })],
    ["for no reason", "ends", () => ({
      kind: "dead-letter",
      letter: { from: "a", to: "b", type: "Note", reason: "toString" },
    })],
  ],
  invite: [["a stranger", "ends", (s) => ({
    kind: "invite",
    to: s.stranger.isolate,
    address: "x",
    transfer: [],
  })]],
  started: [["nobody", "ends", () => ({ kind: "started", about: 0 })]],
  kill: [["a stranger", "ends", (s) => ({
    kind: "kill",
    isolate: s.stranger.isolate,
    why: "for fun",
  })]],
};
