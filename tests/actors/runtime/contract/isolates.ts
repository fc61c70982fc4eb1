/**
 * Isolates of their own: what crosses from one to another, and how each one's end is told.
 *
 * @module
 */

import assert from "node:assert/strict";
import { ActorFailedError, type ActorRef, createSystem } from "../../../../actors/runtime/mod.ts";
import { downOf, failureOf, liveWorkers, overtakes, thrownBy, until } from "../harness.ts";
import {
  CLIENT,
  PARENT,
  type ParentMessage,
  RECORDER,
  type RecorderMessage,
  SERVER,
  type ServerMessage,
} from "../players.ts";
import { ROGUE, type RogueMessage } from "../process_players.ts";
import { each, type Given, type Suite } from "./suite.ts";

/** Actors in isolates of their own, by what tests call them. */
function isolatesOf({ system, isolate }: Given) {
  const recorder = () => system.spawn(RECORDER, undefined, { id: "recorder", isolate });
  const rogue = () => system.spawn(ROGUE, undefined, { id: "rogue", isolate });
  const notesOf = (ref: ActorRef<RecorderMessage>) =>
    system.ask<RecorderMessage, unknown[]>(ref, { type: "Read" });
  return { recorder, rogue, notesOf };
}

/** How the end of an isolate is told. */
export const ISOLATE_ENDS: Suite = {
  "an actor whose isolate exits is down, and its questions end": async (given) => {
    const { system, isolate } = given, { recorder: recorded, notesOf } = isolatesOf(given);
    const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
    const client = system.spawn(CLIENT, undefined, { id: "client", isolate });
    const recorder = recorded();
    system.send(recorder, { type: "Watch", ref });
    await notesOf(recorder);
    const failure = failureOf(system, ref);
    const mine = thrownBy(system.ask(ref, { type: "Never" }));
    const others = failureOf(system, client);
    const relayed = thrownBy(system.ask(client, { type: "Relay", to: ref, n: 1 }));
    await system.ask(ref, { type: "Double", n: 1 });
    system.send(ref, { type: "Exit" });
    assert.equal((await failure).kind, "exit");
    assert.ok((await failure).error.message.startsWith(`the ${isolate} of "server" has ended: `));
    assert.ok(await mine instanceof ActorFailedError);
    // The client does not catch, so it fails in turn.
    assert.equal((await others).error.name, "ActorFailedError");
    assert.ok(await relayed instanceof ActorFailedError);
    await until(async () => (await notesOf(recorder)).length > 0);
    assert.deepEqual(await notesOf(recorder), ["server exit"]);
    system.send(ref, { type: "Never" });
    assert.equal(system.deadLetters.at(-1)!.reason, "isolate-gone");
  },

  ...each(["ThrowLater", "RejectLater"], (how) => [
    `an error that no handler catches fails the actor (${how})`,
    async ({ system, isolate }) => {
      const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
      const failure = failureOf(system, ref);
      system.send(ref, { type: how });
      const { actor, kind, error } = await failure;
      assert.deepEqual([actor, kind, error.message], ["server", "throw", "out of luck"]);
      assert.match(error.stack, /players\.ts/);
    },
  ]),

  "the loss of an isolate is a failure of the parent there is": async ({ system, isolate }) => {
    const diary = await Deno.makeTempFile();
    const init = { children: ["a", "b"], isolate, diary };
    const parent = system.spawn(PARENT, init, { id: "p", isolate });
    const down = failureOf(system, parent);
    system.send(parent, { type: "Tell", child: "a", what: "Exit" });
    const { actor, kind } = await down;
    assert.deepEqual({ actor, kind }, { actor: "a", kind: "exit" });
    await Deno.remove(diary);
  },

  "children in other isolates stop when their parent's is gone": async ({ system, isolate }) => {
    const diary = await Deno.makeTempFile();
    const init = { children: ["a", "b"], isolate, diary };
    const outer = system.spawn(PARENT, init, { id: "outer", isolate });
    const children = await system.ask<ParentMessage, ActorRef<ServerMessage>[]>(outer, {
      type: "Refs",
    });
    const downs = Promise.all([outer, ...children].map((ref) => downOf(system, ref)));
    system.send(outer, { type: "Exit" });
    const [own, ...others] = (await downs).map(({ reason }) => reason);
    assert.ok(own !== "stopped");
    assert.deepEqual(others, ["stopped", "stopped"]);
    await Deno.remove(diary);
  },

  "stop() waits for no actor that does not stop": async ({ isolate, options }) => {
    const system = createSystem({ ...options, stopGraceMs: 50 });
    const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
    await system.ask(ref, { type: "Double", n: 1 });
    const down = failureOf(system, ref);
    system.failed.catch(() => {});
    // What waits in a mailbox does not hold up a stop: the handler must have begun.
    await system.ask(ref, { type: "Wedge", ms: 1000 });
    await system.stop();
    assert.match((await down).error.message, /it did not stop within 50 ms$/);
    // A thread that could not be ended is left behind until its step is over.
    await until(async () => (await liveWorkers()).length === 0);
  },

  ...each([1, 2000], (count) => [
    `all that an actor sent is there when its end is told (${count})`,
    async (given) => {
      const { system } = given, { recorder, rogue, notesOf } = isolatesOf(given);
      const ref = rogue(), to = recorder();
      system.send(to, { type: "Watch", ref });
      await notesOf(to);
      system.send(ref, { type: "Will", to, notes: count });
      await until(async () => (await notesOf(to)).includes("rogue stopped"));
      // The news overtakes in the mailbox what has arrived, but a question after it does not.
      const notes = await notesOf(to);
      assert.deepEqual(
        notes.filter((what) => what !== "rogue stopped"),
        Array.from({ length: count }, (_, n) => n),
      );
    },
  ]),
};

/** What crosses from one isolate to another. */
export const CROSSINGS: Suite = {
  "answers that come at the same time each end their question": async ({ system, isolate }) => {
    const to = ["a", "b", "c"].map((id) => system.spawn(SERVER, undefined, { id, isolate }));
    for (const ref of to) await system.ask(ref, { type: "Double", n: 0 });
    const client = system.spawn(CLIENT, undefined, { id: "client" });
    assert.deepEqual(await system.ask(client, { type: "AskDeaf", to }, { timeoutMs: 5000 }), [
      0,
      2,
      4,
    ]);
  },

  "a control message is handled between steps that block": async ({ system, isolate }) => {
    assert.ok(await overtakes(system, isolate));
  },

  "nothing overtakes on the way from one isolate to another": async (given) => {
    const { system } = given, { recorder, rogue, notesOf } = isolatesOf(given), to = recorder();
    await system.ask(rogue(), { type: "Write", to, notes: 3000 });
    await until(async () => (await notesOf(to)).length === 3000);
    assert.deepEqual(await notesOf(to), Array.from({ length: 3000 }, (_, n) => n));
  },

  "what structured clone takes arrives as it was": async (given) => {
    const value = {
      none: undefined,
      map: new Map<unknown, unknown>([[1, { a: 1n }], ["k", new Set([NaN, -0])]]),
      date: new Date(5),
      regExp: /x/g,
      error: new RangeError("out of luck", { cause: { n: 1 } }),
      buffer: new Uint8Array([1, 2]).buffer,
      halves: new Float16Array([1.5, -0]),
      longs: new BigInt64Array([-1n]),
      part: new Uint8Array([1, 2, 3]).subarray(1),
      text: "\u{1F3AD} é",
    };
    const echo = { type: "Echo", value } as const;
    const back = await given.system.ask<RogueMessage, typeof value>(
      isolatesOf(given).rogue(),
      echo,
    );
    assert.deepEqual(back, value);
    assert.ok(back.error instanceof RangeError);
  },

  "a tensor moves, and the receiver has its buffer alone": async (given) => {
    const { system } = given, ref = isolatesOf(given).rogue();
    for (const length of [1, 100, 500_000]) {
      const tensor = new Float32Array(length).fill(2);
      const answer = system.ask(ref, { type: "Weigh", tensor }, { transfer: [tensor.buffer] });
      assert.equal(tensor.length, 0);
      assert.deepEqual(await answer, { byteOffset: 0, byteLength: 4 * length, last: 2 });
    }
    const twice = new Float32Array(1);
    system.send(ref, { type: "Weigh", tensor: twice }, { transfer: [twice.buffer, twice.buffer] });
    assert.equal(system.deadLetters.at(-1)!.reason, "not-cloneable");
    assert.equal(twice.length, 1);
  },
};
