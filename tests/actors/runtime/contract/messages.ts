/**
 * Delivery of messages: order, receivers, and addresses, which belong to one system.
 *
 * @module
 */

import assert from "node:assert/strict";
import { type Lane } from "../../../../actors/runtime/mod.ts";
import { createSystem } from "../../../../actors/transports/system.ts";
import { downOf, failureOf, thrownBy, until, withSystem } from "../harness.ts";
import { type AnyRef, inOrder, plain, RECORDER, SENDER, SERVER } from "../players.ts";

import type { Given, Suite } from "./suite.ts";

/** Returns a message with a property that throws when it is read. */
export const throwing = (key: string) =>
  Object.defineProperty({ type: "Note" }, key, {
    enumerable: true,
    get: () => {
      throw new RangeError("mine");
    },
  });

export const MESSAGES: Suite = {
  "messages of one sender arrive in order, also early ones": async ({ system, spawn }) => {
    const ref = spawn(RECORDER), numbers = Array.from({ length: 1000 }, (_, n) => n);
    for (const what of numbers) system.send(ref, { type: "Note", what });
    assert.deepEqual(await system.ask(ref, { type: "Read" }), numbers);
  },

  "actors keep the order of each sender and lane": async ({ system, spawn }) => {
    const to = spawn(RECORDER);
    const lanes: Lane[] = Array.from({ length: 200 }, (_, n) => n % 3 ? "data" : "control");
    const ids = ["a", "b"], senders = ids.map((id) => spawn(SENDER, { id, init: { to, lanes } }));
    await Promise.all(senders.map((ref) => system.ask(ref, { type: "Go" })));
    const notes = await system.ask(to, { type: "Wait", count: 400 });
    assert.ok(inOrder(notes, ids, lanes));
  },

  "a message is a copy when it is sent; a buffer that moves leaves": async ({ system, spawn }) => {
    const ref = spawn(RECORDER), bytes = new Float32Array([1, 2, 3]);
    const error = new RangeError("out of luck", { cause: { n: 1n } }), date = new Date(5);
    const what = { list: [1], map: new Map([["k", new Set([-0])]]), error, date };
    const copy = structuredClone(what);
    system.send(ref, { type: "Note", what });
    what.list.push(2);
    what.map.clear();
    system.send(ref, { type: "NoteBytes", bytes });
    bytes[0] = 0;
    system.send(ref, { type: "NoteBytes", bytes }, { transfer: [bytes.buffer] });
    assert.equal(bytes.buffer.detached, true);
    assert.deepEqual(await system.ask(ref, { type: "Read" }), [copy, [1, 2, 3], [0, 2, 3]]);
    const init = new Float32Array([1, 2]);
    const holder = spawn(RECORDER, { id: "holder", init, transfer: [init.buffer] });
    assert.equal(init.buffer.detached, true);
    assert.deepEqual(await system.ask(holder, { type: "Read" }), [1, 2]);
  },

  "what waits at a stop or arrives later is a dead letter": async ({ system, spawn, isolate }) => {
    const ref = spawn(SERVER), down = downOf(system, ref);
    for (const type of ["Stop", "Never"] as const) system.send(ref, { type });
    await down;
    system.send(ref, { type: "Never" });
    const letter = { from: "system", to: "server", type: "Never", reason: "stopped" };
    const late = isolate === "local" ? "stopped" : "isolate-gone";
    assert.deepEqual(system.deadLetters, [letter, { ...letter, reason: late }]);
  },

  "an invalid message or one that cannot be cloned is a dead letter": async ({ system, spawn }) => {
    const ref = spawn(RECORDER, { id: "x" });
    const wrong = [null, undefined, 3, "Note", {}, { type: 3 }, [], throwing("type")];
    for (const message of wrong) system.send(ref, message as never);
    for (const to of [null, {}, { id: "x" }, { ...ref, serial: "1" }]) {
      system.send(to as typeof ref, { type: "Read" });
    }
    system.send(ref, { type: "Note", what: 1 }, { lane: "urgent" as never });
    for (const receipt of [3, {}, { type: "Handled", what: () => {} }] as never[]) {
      system.send(ref, { type: "Note", what: 1 }, { receipt });
    }
    const malformed = wrong.length + 8;
    system.send(ref, throwing("what") as never);
    for (const transfer of [[undefined], [3], [{}], 3, null] as never[]) {
      system.send(ref, { type: "Note", what: 1 }, { transfer });
    }
    for (const length of [1, 5000]) {
      const what = new Float32Array(length), transfer = [what.buffer, what.buffer];
      const refusal = await thrownBy(system.ask(ref, { type: "Note", what }, { transfer }));
      assert.match(refusal.message, /^Cannot ask "x".*: An ArrayBuffer that is transferred twice/);
      assert.equal(what.length, length);
    }
    assert.deepEqual(await system.ask(ref, { type: "Read" }), []);
    assert.deepEqual(system.deadLetters.map(({ reason }) => reason), [
      ...Array(malformed).fill("malformed"),
      ...Array(8).fill("not-cloneable"),
    ]);
    assert.equal(system.deadLetters[0]?.type, "null");
  },

  "a message whose type is not copied with it is a dead letter": async ({ system, spawn }) => {
    const typed = (type: string) => Object.assign(new Map(), { type });
    const ref = spawn(RECORDER), inherited = Object.create({ type: "Note" });
    for (const message of [typed("Note"), inherited]) system.send(ref, message);
    system.send(ref, { type: "Note", what: 1 }, { receipt: typed("Handled") });
    const refusal = await thrownBy(system.ask(ref, typed("Read"), { timeoutMs: 10_000 }));
    const sentence = /: a message must be a record with a type that is copied with it$/;
    assert.match(refusal.message, sentence);
    assert.deepEqual(await system.ask(ref, { type: "Read" }), []);
    await until(() => system.deadLetters.length === 4);
    assert.ok(system.deadLetters.every(({ reason }) => reason === "malformed"));
    const timer = "Object.assign(new Map(), { type: 'Go' })";
    const late = spawn(plain(`(ctx) => ({ Go() { ctx.after(0, ${timer}); } })`));
    const failure = failureOf(system, late);
    system.send(late, { type: "Go" });
    assert.match((await failure).error.message, /^Cannot start a timer: its message must be a rec/);
  },

  "the hook hears of every dead letter": async ({ isolate, options }) => {
    const heard: unknown[] = [];
    await withSystem({ ...options, onDeadLetter: (one) => heard.push(one) }, async (system) => {
      const ref = system.spawn(RECORDER, undefined, { id: "recorder", isolate });
      system.send(ref, { type: "Note", what: () => {} });
      const unknown = { ...ref, id: "unknown", serial: 1000 };
      system.send(unknown, { type: "Read" });
      assert.deepEqual(await system.ask(ref, { type: "Read" }), []);
      await until(() => heard.length === 2);
      assert.deepEqual(system.deadLetters, heard);
    });
    assert.deepEqual(heard, [
      { from: "system", to: "recorder", type: "Note", reason: "not-cloneable" },
      { from: "system", to: "unknown", type: "Read", reason: "no-such-actor" },
    ]);
  },
};

/** Tries every operation of an actor on an address, and answers with the results. */
const INTRUDER = plain(`(ctx) => ({
  async Try({ to }) {
    tell = ctx.deferReply();
    ctx.send(to, { type: "Throw" });
    ctx.stop(to);
    const asked = await ctx.ask(to, { type: "Double", n: 1 }).catch(String);
    ctx.watch(to, (down) => ({ type: "Down", asked, why: down.reason.error.message }));
  },
  Down: ({ asked, why }) => tell({ asked, why }),
}); let tell`);

/** Sends to an address, and watches it. */
const CALLER = plain(`(ctx) => ({
  Go({ to, count }) {
    for (let n = 0; n < count; n++) {
      ctx.send(to, { type: "Note", what: new Uint8Array(2 ** 16) });
    }
    ctx.watch(to, (down) => ({ type: "Down", down }));
  },
  Down: ({ down }) => tell?.(down.reason),
  Wait() { tell = ctx.deferReply(); },
}); let tell`);

const NOT_OURS =
  'TypeError: Cannot ask "server" for "Double": it must be an actor of the same system';

/** Spawns an actor in each of two systems; the addresses differ only in the system. */
async function withTwins(
  { system, isolate, options }: Given,
  test: (own: AnyRef, foreign: AnyRef) => Promise<void>,
): Promise<void> {
  await using other = createSystem(options);
  const [own, foreign] = [system, other].map((one) =>
    one.spawn(SERVER, undefined, { id: "server", isolate })
  ) as [AnyRef, AnyRef];
  assert.deepEqual({ ...foreign, system: 0 }, { ...own, system: 0 });
  assert.notEqual(foreign.system, own.system);
  await test(own, foreign);
  assert.equal(await system.ask(own, { type: "Double", n: 1 }), 2);
  assert.equal(await other.ask(foreign, { type: "Double", n: 2 }), 4);
  assert.deepEqual(other.deadLetters, []);
}

export const ADDRESSES: Suite = {
  "addresses of another system reach no actor, neither when they came in a message": (given) =>
    withTwins(given, async (own, foreign) => {
      const { system, spawn } = given;
      const reasons = () => system.deadLetters.map(({ reason }) => reason);
      system.send(foreign, { type: "Throw" });
      const asked = await thrownBy(system.ask(foreign, { type: "Double", n: 1 }));
      assert.deepEqual(String(asked), NOT_OURS);
      const why = 'actor "server" is of another system';
      assert.equal((await failureOf(system, foreign)).error.message, why);
      await system.stop(foreign);
      // Both the message and the question are dead letters.
      const before = reasons().length;
      const intruder = spawn(INTRUDER, { id: "intruder" });
      const tried = await system.ask(intruder, { type: "Try", to: foreign });
      assert.deepEqual(tried, { asked: NOT_OURS, why });
      await until(() => reasons().length === before + 2);
      const made = [undefined, -1, "1" as never, NaN, Symbol("s") as never];
      for (const forged of made) {
        const forgery = { ...own, system: forged } as typeof own;
        system.send(forgery, { type: "Throw" });
        await system.stop(forgery);
      }
      assert.deepEqual(reasons(), Array(before + 2 + made.length).fill("no-such-actor"));
    }),

  "an address with a made-up serial or isolate reaches no actor": async ({ system, spawn }) => {
    const own = spawn(SERVER), most = Number.MAX_SAFE_INTEGER;
    const made = [
      ...[own.serial + 1, most].map((serial) => ({ serial })),
      ...[own.isolate + 1, most].map((isolate) => ({ isolate })),
    ];
    for (const forged of made) system.send({ ...own, ...forged }, { type: "Throw" });
    await until(() => system.deadLetters.length === made.length);
    assert.ok(system.deadLetters.every(({ reason }) => reason === "no-such-actor"));
    assert.equal(await system.ask(own, { type: "Double", n: 1 }), 2);
  },

  "messages to isolates that never were are dead letters": async ({ system, spawn }) => {
    const ref = spawn(CALLER, { id: "x" }), reason = system.ask(ref, { type: "Wait" });
    const unknown = { ...ref, id: "unknown", isolate: ref.isolate * 65_536 + 7 };
    system.send(ref, { type: "Go", to: unknown, count: 10 });
    for (let n = 0; n < 10; n++) system.send(unknown, { type: "Note" });
    const refusal = /ActorFailedError: .*"unknown" has stopped/;
    assert.match(String(await thrownBy(system.ask(unknown, { type: "Note" }))), refusal);
    assert.equal(await reason, "stopped");
    await until(() => system.deadLetters.length >= 21);
    const expected = Array(21).fill({ to: "unknown", type: "Note", reason: "no-such-actor" });
    assert.deepEqual(system.deadLetters.map(({ from: _, ...letter }) => letter), expected);
  },
};
