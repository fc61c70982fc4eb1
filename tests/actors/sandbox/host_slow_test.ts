/** The host of a package's actor, with sandboxes that break the protocol. */

import assert from "node:assert/strict";
import {
  type ActorRef,
  type Context,
  type Handlers,
  type Message,
  OTHERS,
  type System,
} from "../../../actors/runtime/mod.ts";
import { createSystem } from "../../../actors/transports/system.ts";
import { Host, type HostOptions } from "../../../actors/sandbox/host.ts";
import type { HostFrame } from "../../../actors/sandbox/guest.ts";
import { packageActor, type SandboxOptions } from "../../../actors/sandbox/host.ts";
import { turn as turnOfLoop } from "../../../actors/runtime/steps.ts";
import { atDepth } from "../../depth.ts";
import { assertSentences } from "../../console/refusals.ts";
import fc from "../../fast_check.ts";
import { downOf } from "../runtime/harness.ts";

/** The messages that each listener has got, by its id. */
const HEARD: Record<string, Message[]> = {};

/** Notes every message, answers "Echo", and knows no "Unknown". */
export function listener(ctx: Context<Message>): Handlers<Message> {
  const heard = HEARD[ctx.self.id] = [] as Message[];
  const note = (message: Message) => {
    heard.push(message);
    if (message.type === "Echo") ctx.reply(message);
  };
  return { Note: note, Echo: note } as Handlers<Message>;
}

const LISTENER = { module: import.meta.url, export: "listener" } as const;

/** Frames of a sandbox. */
interface Impostor {
  readonly got: HostFrame[];
  /** Its answers to the next frames; then it is quiet and honest. */
  readonly says: unknown[];
}

const IMPOSTORS: Record<string, Impostor> = {};

const DESCRIPTION = JSON.stringify({ name: "liar", protocol: 1, messages: {} });
const OVER = { calls: [], isOver: true, isDeferred: false, refusal: undefined };

/** A host whose sandbox says what a test has prepared. */
export async function impostor(ctx: Context<Message>, init: unknown, options: unknown) {
  const { got, says } = IMPOSTORS[ctx.self.id]!;
  const exchange = (frame: unknown) => {
    // What crosses a pipe is a copy.
    got.push(structuredClone(frame as HostFrame));
    const said = got.length === 1
      ? DESCRIPTION
      : got.length > 2 && says.length > 0
      ? says.shift()
      : OVER;
    return Promise.resolve(structuredClone(said));
  };
  const sandbox = { exchange, close: () => Promise.resolve() };
  const host = new Host(ctx, options as HostOptions, () => Promise.resolve(sandbox));
  await host.begin(init);
  return { [OTHERS]: (message: Message) => host.handle(message) };
}

/** An impostor and the actors around it. */
interface Scene extends Impostor {
  readonly system: System;
  readonly self: ActorRef<Message>;
  /** Number 1 of the impostor. */
  readonly friend: ActorRef<Message>;
  /** Not known to it. */
  readonly victim: ActorRef<Message>;
  /** The reason of its end. */
  readonly ends: string[];
  /** Has it say something in its turn. */
  say(...turns: unknown[]): Promise<void>;
}

let count = 0;

/** Sets a scene; the victim must hear nothing. */
async function withImpostor(
  test: (scene: Scene) => Promise<void>,
  options: Partial<SandboxOptions> = {},
): Promise<void> {
  await using system = createSystem();
  const [friend, victim] = ["friend", "victim"].map((id) =>
    system.spawn(LISTENER, undefined as never, { id }) as ActorRef as ActorRef<Message>
  ) as [ActorRef<Message>, ActorRef<Message>];
  const id = `package ${count++}`, ends: string[] = [];
  const { got, says }: Impostor = IMPOSTORS[id] = { got: [], says: [] };
  const any = { Note: {}, Echo: {}, Unknown: {} };
  const { argument } = packageActor({ from: "data:text/javascript,", sends: any, ...options });
  const spec = { module: import.meta.url, export: "impostor", argument };
  const self = system.spawn(spec, { friend } as never, { id }) as ActorRef as ActorRef<Message>;
  system.watch(self, ({ reason }) => {
    ends.push(reason === "stopped" ? reason : reason.error.message);
  });
  await settled();
  await test({
    ...{ system, self, friend, victim, ends, got, says },
    async say(...turns) {
      says.push(...turns);
      system.send(self, { type: "Go" });
      await settled();
    },
  });
  assert.deepEqual(HEARD.victim, []);
}

/** Lets all be handled that is on its way. */
async function settled(): Promise<void> {
  for (let n = 0; n < 50; n++) await turnOfLoop();
}

/** Waits until something holds, for a bounded time. */
async function eventually(isDone: () => boolean): Promise<void> {
  for (let n = 0; n < 2000 && !isDone(); n++) await settled();
  assert.ok(isDone());
}

const turn = (...calls: unknown[]) => ({ ...OVER, calls });
const note = { type: "Note" }, friend = { "~ref": 1 };
const send = (message: unknown, to: unknown = friend) => turn({ call: "send", to, message });

/** A turn of many messages. */
const many = (count: number, to: unknown = friend, message: unknown = note) =>
  turn(...Array(count).fill({ call: "send", to, message }));

/** A value within others. */
const deep = (value: unknown) => new Map([["x", [new Set([{ value }])]]]);

/** Records within records. */
const levels = (count: number): unknown => count === 0 ? 0 : { of: levels(count - 1) };

/** 2 to the power of `count` values, in a few bytes. */
const doubled = (count: number): unknown[] => {
  let value: unknown[] = [];
  for (let n = 0; n < count; n++) value = [value, value];
  return value;
};

/** A value that looks like the address of the victim. */
const VICTIM = { id: "victim", isolate: 0, serial: 2 };

const failure = (error: object) => ({ call: "fail", error });

const circle: { self?: unknown } = {};
circle.self = circle;

/** Turns that no honest sandbox takes. */
const LIES: Readonly<Record<string, unknown>> = {
  "nothing": undefined,
  "a text": "turn",
  "no list of calls": { ...OVER, calls: { length: 1 } },
  "more calls than a turn may have": { ...OVER, calls: Array(65_537).fill(1) },
  "a call of no kind": turn({ call: "spawn" }),
  "no call": turn(null),
  "no end and no question": { ...OVER, isOver: false },
  "an unknown number": send(note, { "~ref": 2 }),
  "a negative number": send(note, { "~ref": -1 }),
  "a number of another kind": send(note, { "~ref": "0" }),
  "the name of a method": send(note, { "~ref": "at" }),
  "no number": send(note, 1),
  "an unknown number in a message": send({ ...note, of: deep({ "~ref": 2 }) }),
  "what looks like an address": send({ ...note, of: deep(VICTIM) }),
  "a message of the runtime": send({ type: "~handled" }),
  "a message without a type": send({ type: 1 }),
  "no message": send(null),
  "a prototype": send({ ...note, of: JSON.parse('{"__proto__":{"a":1}}') }),
  "an error": send({ ...note, of: new Error("x", { cause: 1 }) }),
  "a regular expression": send({ ...note, of: /(a+)+$/ }),
  "shared memory": send({ ...note, of: new Uint8Array(new SharedArrayBuffer(8)) }),
  "a buffer that grows": send({ ...note, of: new ArrayBuffer(8, { maxByteLength: 2 ** 30 }) }),
  "too deep a message": send({ ...note, of: levels(101) }),
  "a message in a circle": send({ ...note, of: circle }),
  "many values in few bytes": send({ ...note, of: doubled(40) }),
  "an array with a length alone": send({ ...note, of: Array(2 ** 32 - 1) }),
  "a type that was not granted": send({ type: "Secret" }),
  "an answer to another message": turn({ call: "reply", number: 7, value: 1 }),
  "a question without a number": turn({ call: "ask", to: friend, message: note }),
  "two questions of one number": turn(
    ...Array(2).fill({ call: "ask", to: friend, message: { type: "Echo" }, ask: 1 }),
  ),
  "a timer without a delay": turn({ call: "after", delayMs: "1", message: note }),
  "a runtime's timer": turn({ call: "after", delayMs: 0, message: { type: "~timer" } }),
  "a failure that moves the cursor": turn(failure({ name: "E", message: "a\x1b[2Jb", stack: "" })),
  "a type that moves the cursor": send({ type: "\x1b[2J" }),
  "an odd failure": turn(failure({ name: 1, message: [], stack: {} })),
};

Deno.test("a sandbox that lies ends with the reason, and reaches nobody", async (t) => {
  const found: [string, string][] = [];
  for (const [what, said] of Object.entries(LIES)) {
    await t.step(
      `a sandbox that says ${what} ends, and reaches nobody`,
      () =>
        withImpostor(async ({ say, ends, system, friend }) => {
          await say(said);
          await eventually(() => ends.length > 0);
          found.push([what, ends[0]!.replace(/package \d+/, "PACKAGE")]);
          assert.deepEqual(await system.ask(friend, { type: "Echo" }), { type: "Echo" });
        }),
    );
  }
  await assertSentences("lies", found);
});

Deno.test("a sandbox gets numbers for addresses, and its messages arrive with the addresses", () =>
  withImpostor(async ({ system, self, friend, got, say, ends }) => {
    const [load, make] = got as [HostFrame, Extract<HostFrame, { kind: "make" }>];
    assert.equal(load.kind, "load");
    assert.deepEqual(make.self, { "~ref": 0, id: self.id });
    assert.deepEqual(make.init, { friend: { "~ref": 1 } });
    const late = system.spawn(LISTENER, undefined as never, { id: "late" });
    system.send(self, { type: "Here", late, deep: deep(late), friend } as Message);
    await settled();
    const { message } = got.at(-1) as Extract<HostFrame, { kind: "message" }>;
    const numbered = { late: { "~ref": 2 }, deep: deep({ "~ref": 2 }), friend: { "~ref": 1 } };
    assert.deepEqual(message, { type: "Here", ...numbered });
    assert.ok(got.every((frame) => !Deno.inspect(frame, { depth: 20 }).includes("serial")));
    const values = Float32Array.of(1, 2), at = new Date(0);
    await say(send({ ...note, values, at, ref: deep({ "~ref": 2 }), self: { "~ref": 0 } }));
    assert.deepEqual(HEARD.friend, [{ ...note, values, at, ref: deep(late), self }]);
    await say(send(note, { "~ref": 2 }));
    assert.deepEqual([HEARD.late, ends], [[note], []]);
  }));

Deno.test("a question is answered to the sandbox, or its error is", () =>
  withImpostor(async ({ system, say, got }) => {
    const ask = (ask: number, message: unknown, more = {}) => ({
      ...OVER,
      calls: [{ call: "ask", to: friend, message, ask, ...more }],
      isOver: false,
    });
    await say(ask(5, { type: "Echo", friend }), ask(6, { type: "Unknown" }), ask(7, note), OVER);
    const answers = got.flatMap((frame) => frame.kind === "answer" ? [frame] : []);
    const answer = { value: { type: "Echo", friend } };
    assert.deepEqual(answers[0], { kind: "answer", ask: 5, answer });
    const errors = answers.slice(1).map(({ answer }) => (answer as { error: Error }).error.message);
    assert.match(errors[0]!, /^Cannot ask "friend" for "Unknown": its type must be one that/);
    assert.match(errors[1]!, /"friend" must call ctx.reply for "Note"$/);
    assert.deepEqual(system.deadLetters.map(({ reason }) => reason), ["malformed"]);
  }));

Deno.test("an answer fits its schema, and may be given later, once", () =>
  withImpostor(async ({ system, self, says, say, ends }) => {
    const answer = (number: number, value: unknown) => turn({ call: "reply", number, value });
    says.push({ ...OVER, isDeferred: true });
    const later = system.ask(self, { type: "Count" });
    await settled();
    await say(answer(0, 1.5), answer(2, 2));
    assert.equal(await later, 1.5);
    assert.equal(await system.ask(self, { type: "Count" }), 2);
    await say(answer(0, 1));
    assert.match(ends.join(), /must reply once to a deferred message$/);
  }, { answers: { Count: { type: "number" } } }));

Deno.test("an answer that does not fit its schema ends the sandbox", () =>
  withImpostor(async ({ system, self, says, ends }) => {
    says.push(turn({ call: "reply", number: 0, value: "1" }));
    await assert.rejects(system.ask(self, { type: "Count" }), /Cannot answer "Count": it must fit/);
    assert.equal(ends.length, 1);
  }, { answers: { Count: { type: "number" } } }));

Deno.test("a message that does not fit the schema that the program gave ends the sandbox", () =>
  withImpostor(async ({ say, ends }) => {
    await say(send({ ...note, n: 1 }));
    assert.deepEqual([HEARD.friend, ends], [[{ ...note, n: 1 }], []]);
    await say(send({ ...note, n: "1" }));
    assert.match(ends.join(), /^Cannot send "Note": it must fit the schema/);
    assert.equal(HEARD.friend!.length, 1);
  }, { sends: { Note: { properties: { n: { type: "number" } } } } }));

Deno.test("timers fire, those with a key replace each other, and a sandbox may send to itself", () =>
  withImpostor(async ({ got, say }) => {
    const after = (n: number, key?: string) => ({
      call: "after",
      delayMs: 0,
      message: { type: "Tick", n, friend },
      key,
    });
    const self = { call: "send", to: { "~ref": 0 }, message: { type: "Mine" } };
    await say(turn(after(1), after(2, "a"), after(3, "a"), self));
    await eventually(() => got.length === 6);
    const heard = got.slice(3).map((frame) => (frame as { message: Message }).message);
    // A timer may fire before a message that the actor sends to itself.
    const isMine = ({ type }: Message) => type === "Mine";
    assert.deepEqual(heard.filter(isMine), [{ type: "Mine" }]);
    const ticks = heard.filter((message) => !isMine(message));
    assert.deepEqual(ticks, [1, 3].map((n) => ({ type: "Tick", n, friend })));
  }));

Deno.test("a type that a receiver does not know is a dead letter, and its receiver keeps running", () =>
  withImpostor(async ({ system, friend: receiver, say, ends, self }) => {
    await say(send({ type: "Unknown" }));
    const letter = { from: self.id, to: "friend", type: "Unknown", reason: "malformed" };
    assert.deepEqual(system.deadLetters, [letter]);
    await say(send(note));
    assert.deepEqual([HEARD.friend, ends], [[note], []]);
    assert.deepEqual(await system.ask(receiver, { type: "Echo" }), { type: "Echo" });
  }));

Deno.test("waiting messages are bounded, and refused messages are counted", () =>
  withImpostor(async ({ system, friend: receiver, say, ends }) => {
    // Handled messages do not count.
    for (let n = 0; n < 4; n++) await say(many(20_000));
    await say(many(40_000, friend, { type: "Unknown" }));
    assert.deepEqual(ends, []);
    await say(many(30_000));
    await eventually(() => ends.length > 0);
    assert.match(ends.join(), /must not flood others: at most 65536 of its messages must wait/);
    assert.deepEqual(await system.ask(receiver, { type: "Echo" }), { type: "Echo" });
  }));

Deno.test("bytes that wait are bounded, with those of timers", () =>
  withImpostor(async ({ say, ends }) => {
    const of = new Uint8Array(2 ** 26);
    const after = { call: "after", delayMs: 1e6, message: { ...note, of } };
    await say(turn(...Array(3).fill({ ...after, key: "a" }), after, after));
    assert.deepEqual(ends, []);
    await say(turn(after, after));
    await eventually(() => ends.length > 0);
    assert.match(ends.join(), /of 268435456 bytes together$/);
  }));

Deno.test("half of a mailbox is kept for the program, and an end frees what waited", () =>
  withImpostor(async ({ system, self, say, ends }) => {
    const small = system.spawn(LISTENER, undefined as never, { id: "small", capacity: 8 });
    system.send(self, { type: "Here", small } as Message);
    await settled();
    for (let n = 0; n < 8; n++) await say(many(10_000, { "~ref": 2 }));
    assert.deepEqual([...new Set(system.deadLetters.map(({ reason }) => reason))], ["no-room"]);
    await system.stop(small);
    for (let n = 0; n < 8; n++) await say(many(10_000, { "~ref": 2 }));
    assert.deepEqual(ends, []);
  }));

Deno.test("what waited at an actor that has ended is free once, and timers with keys count", () =>
  withImpostor(async ({ system, friend: receiver, say, ends }) => {
    await system.stop(receiver);
    for (let n = 0; n < 5; n++) await say(many(20_000));
    const key = "k".repeat(1e6), timer = { call: "after", delayMs: 1e6, message: note };
    const timers = (from: number, count: number) =>
      turn(...Array.from({ length: count }, (_, n) => ({ ...timer, key: `${from + n}${key}` })));
    await say(timers(0, 100));
    assert.deepEqual(ends, []);
    await say(timers(100, 40));
    await eventually(() => ends.length > 0);
    assert.match(ends.join(), /of 268435456 bytes together$/);
  }));

Deno.test("what waited in an isolate that has ended waits no more", () =>
  withImpostor(async ({ system, self, say, ends }) => {
    const module = "data:text/javascript,export const dying = () => ({ Note() { self.close(); } })";
    const options = { id: "dying", isolate: "worker" };
    const dying = system.spawn({ module, export: "dying" }, undefined as never, options);
    const down = downOf(system, dying);
    system.send(self, { type: "Here", dying } as Message);
    await settled();
    await say(many(60_000, { "~ref": 2 }));
    await down;
    for (let n = 0; n < 2; n++) await say(many(10_000));
    assert.deepEqual([ends, HEARD.friend!.length], [[], 20_000]);
  }));

Deno.test("a message of the program that cannot be handed over is refused with a reason", () =>
  withImpostor(async ({ system, self, ends }) => {
    const wrong = { of: levels(101), more: /at most 100 records deep$/ };
    await assert.rejects(system.ask(self, { type: "Go", of: wrong.of } as Message), wrong.more);
    const error = { type: "Go", error: new Error("x") } as Message;
    await assert.rejects(system.ask(self, error), /it must hold no Error$/);
    assert.deepEqual(ends, []);
  }));

/** Values that no field expects. */
const JUNK = [
  ...[undefined, null, true, -1, 0, 1, 1.5, NaN, 2 ** 53, "", "__proto__", "constructor", "send"],
  ...["x".repeat(2000), [], {}, [[]], new Map(), new Error("x"), new Uint8Array(3), 7n, friend],
];

const ALL = [
  ...Object.values(LIES),
  ...[send(note), turn({ call: "after", delayMs: 1, message: note, key: "a" })],
  turn({ call: "ask", to: friend, message: { type: "Echo" }, ask: 1 }),
];

/** A value with one of its parts replaced. */
function spoilt(value: unknown, steps: readonly number[], junk: unknown): unknown {
  const [step, ...others] = steps;
  if (step === undefined || typeof value !== "object" || value === null) return junk;
  const keys = Object.keys(value).slice(0, 9), key = keys[step % (keys.length + 1)];
  if (key === undefined) return { ...value, extra: junk };
  const copy = Array.isArray(value) ? [...value] : { ...value };
  return Object.assign(copy, {
    [key]: spoilt((value as Record<string, unknown>)[key], others, junk),
  });
}

Deno.test("the program survives random frames of a sandbox, and other actors get none of them", () =>
  fc.assert(
    fc.asyncProperty(
      fc.array(
        fc.record({
          which: fc.nat(ALL.length - 1),
          steps: fc.array(fc.nat(9), { maxLength: 5 }),
          junk: fc.oneof(fc.constantFrom(...JUNK), fc.anything({ withMap: true, withSet: true })),
        }),
        { minLength: 1, maxLength: 5 },
      ),
      (said) =>
        withImpostor(async ({ system, say, friend }) => {
          for (const { which, steps, junk } of said) {
            const frame = spoilt(ALL[which], steps, junk);
            try {
              structuredClone(frame);
            } catch {
              continue;
            }
            await say(frame);
          }
          assert.deepEqual(await system.ask(friend, { type: "Echo" }), { type: "Echo" });
          assert.doesNotMatch(Deno.inspect(HEARD.friend, { depth: 20 }), /serial: 2/);
        }),
    ),
    { numRuns: atDepth(60, 2000) },
  ));
