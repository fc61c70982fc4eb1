/**
 * Forged frames of each kind, and their outcomes: a new kind of frame does not compile until its
 * forgeries are listed here.
 *
 * @module
 */

import type { Frame, SwitchFrame, UpFrame } from "../../../../actors/runtime/transports/wire.ts";
import type { Scene } from "./impostor.ts";

/** The outcome of a frame: its isolate ends, the frame is denied, it is ignored, or it passes. */
export type Outcome = "ends" | "denied" | "nothing" | "passes";

/** A frame, the forgery in it, and its outcome. */
export type Forgery = readonly [
  forgery: string,
  outcome: Outcome,
  frame: (scene: Scene) => unknown,
];

/** Every kind of frame that an isolate may send. */
export type Kind = (UpFrame | Frame | SwitchFrame)["kind"];

type Fields = Readonly<Record<string, unknown>>;

/** A forgery by the fields in which it differs from a frame of its kind. */
type Change = readonly [string, Outcome, ((scene: Scene) => Fields)?];

const changed = (frame: (scene: Scene) => Fields, ...changes: readonly Change[]): Forgery[] =>
  changes.map(([forgery, outcome, fields]) => [
    forgery,
    outcome,
    (scene) => ({ ...frame(scene), ...fields?.(scene) }),
  ]);

const message = (scene: Scene) => ({
  ...{ kind: "message", to: scene.friend, from: scene.self, lane: "data" },
  message: { type: "Note" },
});

const forward = (to: number, frame: unknown, transfer: unknown = []) => ({
  ...{ kind: "forward", to, frame, transfer },
});

/** A frame as the isolate sends it to another isolate. */
const toStranger = ({ stranger }: Scene, frame: unknown) => forward(stranger.isolate, frame);

const system = ({ self }: Scene) => ({ ...self, id: "system", isolate: 0, serial: 0 });

/** A question of the impostor itself. */
const own = ({ self }: Scene) => ({ isolate: self.isolate, ask: 0 });

const failure = {
  ...{ actor: "victim", kind: "throw" },
  error: { name: "Error", message: "made up", stack: "made up" },
};

/** The impostor owes the answer to the first question of the root. */
const answer = () => ({
  ...{ kind: "answer", ask: 0, outcome: { status: "answered", value: 1 } },
});

const deep = (ref: unknown) =>
  new Map([["x", new Set([[{ error: new Error("x", { cause: { ref } }) }]])]]);

/** Changes the message within a frame. */
const saying = (more: (scene: Scene) => Fields) => (scene: Scene) => ({
  message: { type: "Note", ...more(scene) },
});

/** Forgeries in messages that name some actor. */
const MESSAGES: readonly Change[] = [
  ["to an actor that it knows", "passes"],
  ["from a child", "passes", (s) => ({ from: { ...s.self, serial: 9 } })],
  ["to an actor whose address it was not given", "denied", (s) => ({ to: s.victim })],
  ["to the system", "denied", (s) => ({ to: system(s) })],
  ["to another name", "denied", (s) => ({ to: { ...s.friend, id: "victim" } })],
  ["in the name of a victim", "ends", (s) => ({ from: s.victim })],
  ["in the name of a friend", "ends", (s) => ({ from: s.friend })],
  ["in the name of the system", "ends", (s) => ({ from: system(s) })],
  ["by another name", "ends", (s) => ({ from: { ...s.self, id: "victim" } })],
  ["from a serial number below its own", "ends", (s) => ({ from: { ...s.self, serial: 0 } })],
  ["of another system", "ends", (s) => ({ to: { ...s.friend, system: 0 } })],
  ["without a message", "ends", () => ({ message: null })],
  ["without a type", "ends", () => ({ message: { type: 3 } })],
  ["in no lane", "ends", () => ({ lane: "urgent" })],
  ["with an endless type", "denied", saying(() => ({ type: "x".repeat(1e6) }))],
  ["of a prototype's type", "passes", saying(() => ({ type: "__proto__" }))],
  ["that holds a stranger", "denied", saying((s) => ({ ref: deep(s.victim) }))],
  ["that holds a friend", "passes", saying((s) => ({ ref: deep(s.friend) }))],
  ["that holds endless values", "denied", saying(() => ({ many: Array(2_000_000).fill(0) }))],
  ["with a receipt for itself", "passes", (s) => ({ receipt: { ...message(s), to: s.self } })],
  ["with a receipt for a victim", "ends", (s) => ({ receipt: { ...message(s), to: s.victim } })],
  ["with a receipt for a friend", "ends", (s) => ({ receipt: message(s) })],
  [
    "whose receipt holds a stranger",
    "denied",
    (s) => ({ receipt: { to: s.self, message: { type: "Note", ref: s.victim } } }),
  ],
  [
    "that sends the answer elsewhere",
    "ends",
    (s) => ({ replyTo: { isolate: s.stranger.isolate, ask: 0 } }),
  ],
  [
    "that hands on a question that it keeps",
    "ends",
    (s) => ({ replyTo: { isolate: 0, ask: 0 }, from: system(s) }),
  ],
  [
    "as a receipt that was not asked for",
    "ends",
    (s) => ({
      to: { ...system(s), serial: Number.MAX_SAFE_INTEGER },
      message: { type: "receipt", ticket: 0 },
    }),
  ],
];

const event = (scene: Scene) => ({
  ...{ type: "slow-step", actor: scene.self.id, handling: "x", forMs: 1, isOver: true },
  waitsFor: [],
});

/** Each is sent by a fresh impostor that owes the answer to question 0 of the root. */
export const FORGERIES: { readonly [K in Kind]: readonly Forgery[] } = {
  message: [
    ...changed(message, ...MESSAGES),
    ["to a stranger", "denied", (s) => toStranger(s, { ...message(s), to: s.stranger })],
    ["by way of another isolate", "ends", (s) => toStranger(s, message(s))],
  ],
  answer: [
    ...changed(
      answer,
      ["to a question that it was asked", "passes"],
      ["to a question that it was not asked", "ends", () => ({ ask: 1 })],
      [
        "that holds a stranger",
        "denied",
        (s) => ({ outcome: { status: "answered", value: { ref: s.victim } } }),
      ],
      ["that only the asker can make", "ends", () => ({ outcome: { status: "timeout" } })],
      [
        "that names a circle",
        "ends",
        (s) => ({ outcome: { status: "circle", path: [s.victim] } }),
      ],
      [
        "with an empty failure",
        "ends",
        () => ({ outcome: { status: "gone", failure: {} } }),
      ],
    ),
    ["to a question of a stranger", "ends", (s) => toStranger(s, answer())],
  ],
  chase: changed(
    (s) => ({ kind: "chase", to: s.victim, edge: own(s), by: s.self, first: own(s), path: [] }),
    ["of a question that it has not asked", "nothing"],
    ["of a question of the root", "ends", (s) => ({
      ...{ edge: { isolate: 0, ask: 0 }, first: { isolate: 0, ask: 0 }, by: system(s) },
    })],
  ),
  forwarded: changed(
    (s) => ({ kind: "forwarded", ask: 0, to: s.friend }),
    ["a question that it was asked, to an actor that it knows", "passes"],
    ["a question that it was asked, to a victim", "nothing", (s) => ({ to: s.victim })],
    ["a question that it was not asked", "ends", () => ({ ask: 1 })],
  ),
  withdraw: changed(
    (s) => ({ kind: "withdraw", to: s.victim, question: own(s) }),
    ["a question that it has not asked", "nothing"],
    ["a question of another", "ends", () => ({ question: { isolate: 0, ask: 0 } })],
  ),
  watch: changed(
    (s) => ({ kind: "watch", ref: s.friend, by: s.self.isolate }),
    ["an actor that it knows", "passes"],
    ["a victim", "denied", (s) => ({ ref: s.victim })],
    ["in the name of another", "ends", (s) => ({ by: s.stranger.isolate })],
  ),
  unwatch: changed(
    (s) => ({ kind: "unwatch", ref: s.victim, by: s.self.isolate }),
    ["a victim", "nothing"],
    ["in the name of another", "ends", (s) => ({ ref: s.friend, by: 0 })],
  ),
  down: [
    ...changed(
      (s) => ({ kind: "down", ref: { ...s.self, serial: 2 }, reason: failure }),
      ["of a child, to an isolate that watches", "passes"],
      ["of a victim", "ends", (s) => ({ ref: s.victim, reason: "stopped" })],
      ["without a reason", "ends", (s) => ({ ref: s.self, reason: { actor: "x" } })],
    ),
    [
      "of itself, to an isolate that does not watch",
      "ends",
      (s) => toStranger(s, { kind: "down", ref: s.self, reason: "stopped" }),
    ],
  ],
  stop: [
    ...changed(
      (s) => ({ kind: "stop", ref: s.friend }),
      ["a friend", "denied"],
      ["a victim", "denied", (s) => ({ ref: s.victim, drain: true })],
      ["the system", "denied", (s) => ({ ref: system(s) })],
      ["no actor", "ends", () => ({ ref: undefined })],
    ),
    ["a stranger", "denied", (s) => toStranger(s, { kind: "stop", ref: s.stranger })],
  ],
  event: [
    ...changed(
      (s) => ({ kind: "event", event: event(s) }),
      ["of a slow step", "passes"],
      [
        "that another was denied something",
        "ends",
        () => ({ event: { type: "denied", actor: "victim", what: "read", on: "/" } }),
      ],
      [
        "without a list of actors",
        "ends",
        (s) => ({ event: { ...event(s), waitsFor: undefined } }),
      ],
    ),
    ["for a stranger", "ends", (s) => toStranger(s, { kind: "event", event: {} })],
  ],
  ended: changed(
    (s) => ({ kind: "ended", parent: system(s), child: s.victim, reason: failure }),
    ["of a victim", "ends"],
    ["of a child", "ends", (s) => ({ child: { ...s.self, serial: 2 } })],
  ),
  credit: [
    [
      "of a stranger",
      "ends",
      (s) => toStranger(s, { kind: "credit", credit: { isolate: s.stranger.isolate, number: 0 } }),
    ],
    ["of itself", "ends", (s) => ({
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
    ["to no isolate", "ends", (s) => forward(NaN, message(s))],
    ["of a frame for the root", "ends", (s) => toStranger(s, { kind: "done", reason: "stopped" })],
    [
      "with a buffer that is none",
      "ends",
      (s) => forward(s.stranger.isolate, { ...message(s), to: s.stranger }, [{}]),
    ],
    ["with a buffer twice", "ends", (s) => {
      const buffer = new ArrayBuffer(1);
      return forward(s.stranger.isolate, { ...message(s), to: s.stranger }, [buffer, buffer]);
    }],
    ["without a frame", "ends", (s) => forward(s.stranger.isolate, undefined)],
  ],
  start: changed(
    (s) => ({ kind: "start", launch: s.impostor.boot.launch, transfer: [] }),
    ["an isolate below itself", "denied", (s) => ({ isolate: s.self.isolate * 65_536 + 1 })],
    ["an isolate of the root", "ends", () => ({ isolate: 99 })],
  ),
  done: [["without a reason", "ends", () => ({ kind: "done", reason: { kind: "throw" } })]],
  "dead-letter": ["stopped", "toString"].map((reason, i): Forgery => [
    ...[`with the reason ${reason}`, (["passes", "ends"] as const)[i]!] as const,
    () => ({ kind: "dead-letter", letter: { from: "a", to: "b", type: "Note", reason } }),
  ]),
  invite: [["a stranger", "ends", (s) => ({
    ...{ kind: "invite", to: s.stranger.isolate, address: "x", transfer: [] },
  })]],
  started: [["no actor", "ends", () => ({ kind: "started", about: 0 })]],
  kill: [["a stranger", "ends", (s) => ({
    ...{ kind: "kill", isolate: s.stranger.isolate, why: "for fun" },
  })]],
};
