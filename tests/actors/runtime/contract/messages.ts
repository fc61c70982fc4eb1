/**
 * How messages arrive.
 *
 * @module
 */

import assert from "node:assert/strict";
import type { ActorRef, Lane } from "../../../../actors/runtime/mod.ts";
import { downOf, until, withSystem } from "../harness.ts";
import { HOLDER, RECORDER, type RecorderMessage, SENDER, SERVER } from "../players.ts";
import type { Suite } from "./suite.ts";

export const MESSAGES: Suite = {
  "messages of one sender in one lane arrive in order": async ({ system, isolate }) => {
    const ref = system.spawn(RECORDER, undefined, { id: "recorder", isolate });
    for (let n = 0; n < 1000; n++) system.send(ref, { type: "Note", what: n });
    assert.deepEqual(
      await system.ask(ref, { type: "Read" }),
      Array.from({ length: 1000 }, (_, n) => n),
    );
  },

  "messages sent before the actor is ready are not lost": async ({ system, isolate }) => {
    const ref = system.spawn(RECORDER, undefined, { id: "recorder", isolate });
    system.send(ref, { type: "Note", what: "early" });
    assert.deepEqual(await system.ask(ref, { type: "Read" }), ["early"]);
  },

  "control messages overtake data messages that wait": async ({ system, isolate }) => {
    const ref = system.spawn(RECORDER, undefined, { id: "recorder", isolate });
    await system.ask(ref, { type: "Read" });
    system.send(ref, { type: "Busy", ms: 30 });
    for (const what of [1, 2]) system.send(ref, { type: "Note", what });
    for (const what of ["a", "b"]) {
      system.send(ref, { type: "Note", what }, { lane: "control" });
    }
    const notes = await system.ask<RecorderMessage, unknown[]>(ref, { type: "Read" });
    assert.deepEqual(notes.filter((what) => what !== "busy"), ["a", "b", 1, 2]);
  },

  "actors keep the order of each sender and lane": async ({ system, isolate }) => {
    const to = system.spawn(RECORDER, undefined, { id: "recorder", isolate });
    const lanes: Lane[] = Array.from({ length: 200 }, (_, n) => n % 3 ? "data" : "control");
    const senders = ["a", "b"].map((id) => system.spawn(SENDER, { to, lanes }, { id, isolate }));
    await Promise.all(senders.map((ref) => system.ask(ref, { type: "Go" })));
    let notes: { from: string; lane: Lane; n: number }[] = [];
    await until(async () =>
      (notes = await system.ask(to, { type: "Read" })).length === 2 * lanes.length
    );
    for (const from of ["a", "b"]) {
      for (const lane of ["data", "control"]) {
        const numbers = notes.filter((one) => one.from === from && one.lane === lane)
          .map(({ n }) => n);
        assert.deepEqual(numbers, numbers.toSorted((a, b) => a - b));
      }
    }
  },

  "the receiver gets a copy as of the moment of sending": async ({ system, isolate }) => {
    const ref = system.spawn(RECORDER, undefined, { id: "recorder", isolate });
    const what = { list: [1], map: new Map([["k", 1]]) };
    system.send(ref, { type: "Note", what });
    what.list.push(2);
    what.map.clear();
    const copy = { list: [1], map: new Map([["k", 1]]) };
    assert.deepEqual(await system.ask(ref, { type: "Read" }), [copy]);
  },

  "a transferred buffer is gone from the sender": async ({ system, isolate }) => {
    const ref = system.spawn(RECORDER, undefined, { id: "recorder", isolate });
    const bytes = new Float32Array([1, 2, 3]);
    system.send(ref, { type: "NoteBytes", bytes }, { transfer: [bytes.buffer] });
    assert.equal(bytes.buffer.detached, true);
    assert.deepEqual(await system.ask(ref, { type: "Read" }), [[1, 2, 3]]);
  },

  "a buffer that is not transferred is copied": async ({ system, isolate }) => {
    const ref = system.spawn(RECORDER, undefined, { id: "recorder", isolate });
    const bytes = new Float32Array([1, 2, 3]);
    system.send(ref, { type: "NoteBytes", bytes });
    bytes.fill(0);
    assert.deepEqual(await system.ask(ref, { type: "Read" }), [[1, 2, 3]]);
  },

  "a buffer that an actor is made with can be moved": async ({ system, isolate }) => {
    const init = new Float32Array([1, 2]);
    const ref = system.spawn(HOLDER, init, { id: "holder", isolate, transfer: [init.buffer] });
    assert.equal(init.buffer.detached, true);
    assert.deepEqual(await system.ask(ref, { type: "Read" }), [1, 2]);
  },

  "a message to an actor that has stopped is a dead letter": async ({ system, isolate }) => {
    const ref = system.spawn(SERVER, undefined, { id: "recorder", isolate });
    const down = downOf(system, ref);
    system.send(ref, { type: "Stop" });
    await down;
    system.send(ref, { type: "Never" });
    const reason = isolate === "local" ? "stopped" : "isolate-gone";
    assert.deepEqual(system.deadLetters, [{
      from: "system",
      to: "recorder",
      type: "Never",
      reason,
    }]);
  },

  "a message that waits when the actor stops is a dead letter": async ({ system, isolate }) => {
    const ref = system.spawn(SERVER, undefined, { id: "recorder", isolate });
    const down = downOf(system, ref);
    system.send(ref, { type: "Wedge", ms: 20 });
    system.send(ref, { type: "Stop" });
    system.send(ref, { type: "Never" });
    await down;
    const letter = { from: "system", to: "recorder", type: "Never", reason: "stopped" };
    assert.deepEqual(system.deadLetters, [letter]);
  },

  "a message to an actor that never was is a dead letter": async ({ system, isolate }) => {
    const ref = system.spawn(RECORDER, undefined, { id: "recorder", isolate });
    const nobody: ActorRef<RecorderMessage> = { ...ref, id: "nobody", serial: 1000 };
    system.send(nobody, { type: "Read" });
    await until(() => system.deadLetters.length > 0);
    assert.deepEqual(system.deadLetters, [
      { from: "system", to: "nobody", type: "Read", reason: "no-such-actor" },
    ]);
  },

  "a message that cannot be cloned is a dead letter": async ({ system, isolate }) => {
    const ref = system.spawn(RECORDER, undefined, { id: "recorder", isolate });
    system.send(ref, { type: "Note", what: () => {} });
    const letter = { from: "system", to: "recorder", type: "Note", reason: "not-cloneable" };
    assert.deepEqual(system.deadLetters, [letter]);
    assert.deepEqual(await system.ask(ref, { type: "Read" }), []);
  },

  "the hook hears of every dead letter": async ({ isolate, options }) => {
    const heard: string[] = [];
    await withSystem(
      { ...options, onDeadLetter: ({ type }) => heard.push(type) },
      async (system) => {
        const ref = system.spawn(RECORDER, undefined, { id: "recorder", isolate });
        system.send(ref, { type: "Note", what: () => {} });
        await system.ask(ref, { type: "Read" });
      },
    );
    assert.deepEqual(heard, ["Note"]);
  },
};
