/**
 * Other isolates: what crosses from one to another, and the news of the end of each.
 *
 * @module
 */

import assert from "node:assert/strict";
import { ActorFailedError, type PlaceName } from "../../../../actors/runtime/mod.ts";
import { createSystem } from "../../../../actors/transports/system.ts";
import { atDepth } from "../../../depth.ts";
import { downOf, failureOf, liveWorkers, thrownBy, until } from "../harness.ts";
import {
  BOSS,
  CLIENT,
  plain,
  RECORDER,
  ROGUE,
  SENDER,
  type SenderNote,
  SERVER,
} from "../players.ts";
import type { Suite } from "./suite.ts";

/** The news of the end of an isolate. */
export const ISOLATE_ENDS: Suite = {
  "an actor whose isolate exits is down, and its questions end": async (given) => {
    const { system, isolate, spawn } = given;
    const ref = spawn(SERVER), client = spawn(CLIENT), recorder = spawn(RECORDER);
    system.send(recorder, { type: "Watch", ref });
    await system.ask(recorder, { type: "Read" });
    const failure = failureOf(system, ref), others = failureOf(system, client);
    const mine = thrownBy(system.ask(ref, { type: "Never" }));
    const relayed = thrownBy(system.ask(client, { type: "Relay", to: ref, n: 1 }));
    await system.ask(ref, { type: "Double", n: 1 });
    system.send(ref, { type: "Exit" });
    assert.equal((await failure).kind, "exit");
    assert.ok((await failure).error.message.startsWith(`the ${isolate} of "server" has ended: `));
    // The client does not catch, so it fails in turn.
    assert.equal((await others).error.name, "ActorFailedError");
    for (const end of [mine, relayed]) assert.ok(await end instanceof ActorFailedError);
    assert.deepEqual(await system.ask(recorder, { type: "Wait", count: 1 }), ["server exit"]);
    system.send(ref, { type: "Never" });
    assert.equal(system.deadLetters.at(-1)!.reason, "isolate-gone");
  },

  "an error that no handler catches fails the actor": async ({ system, spawn }) => {
    for (const type of ["ThrowLater", "RejectLater"]) {
      const ref = spawn(SERVER, { id: type }), failure = failureOf(system, ref);
      system.send(ref, { type });
      const { actor, kind, error } = await failure;
      assert.deepEqual([actor, kind, error.message], [type, "throw", "out of luck"]);
      assert.match(error.stack, /players\.ts/);
    }
  },

  "an answer to an isolate that is gone is a dead letter": async ({ system, spawn }) => {
    const to = spawn(RECORDER, { isolate: "local" });
    const asker = spawn(plain(`(ctx) => ({
      Go({ to }) {
        ctx.ask(to, { type: "Wait", count: 1 }).catch(() => {});
        ctx.reply("asked");
      },
    })`));
    assert.equal(await system.ask(asker, { type: "Go", to }), "asked");
    await system.stop(asker);
    system.send(to, { type: "Note", what: 1 });
    await system.ask(to, { type: "Read" });
    const letter = { from: "recorder", to: "plain", type: "answer:Wait", reason: "isolate-gone" };
    assert.deepEqual(system.deadLetters, [letter]);
  },

  "the loss of an isolate is a failure of the parent there is": async (given) => {
    const { system, isolate, spawn } = given,
      boss = spawn(BOSS, { init: { clerks: ["a"], isolate } });
    const down = failureOf(system, boss);
    system.send(boss, { type: "Tell", message: { type: "Exit" } });
    const { actor, kind } = await down;
    assert.deepEqual({ actor, kind }, { actor: "a", kind: "exit" });
  },

  "children in other isolates stop when their parent's is gone": async (given) => {
    const { system, isolate, spawn } = given;
    const boss = spawn(BOSS, { init: { clerks: ["a", "b"], isolate } });
    const clerks = await system.ask(boss, { type: "Clerks" });
    const downs = Promise.all([boss, ...clerks].map((ref) => downOf(system, ref)));
    system.send(boss, { type: "Exit" });
    const [own, ...others] = (await downs).map(({ reason }) => reason);
    assert.ok(own !== "stopped");
    assert.deepEqual(others, ["stopped", "stopped"]);
  },

  "a failure goes no further if a watch of the parent is on its way": async ({ system, spawn }) => {
    const ref = spawn(SERVER);
    await system.ask(ref, { type: "Double", n: 1 });
    system.send(ref, { type: "Throw" });
    // It fails in the meantime, but the news cannot be received yet.
    for (const until = performance.now() + 30; performance.now() < until;);
    assert.equal((await failureOf(system, ref)).kind, "throw");
    assert.equal(await Promise.race([system.failed, system.stop()]), undefined);
  },

  "an actor that drains may take longer than the grace": async ({ isolate, options }) => {
    await using system = createSystem({ ...options, stopGraceMs: 500 });
    const ref = system.spawn(RECORDER, undefined, { id: "recorder", isolate });
    await system.ask(ref, { type: "Read" });
    for (const ms of [400, 400]) system.send(ref, { type: "Busy", ms });
    const down = downOf(system, ref), notes = system.ask(ref, { type: "Read" });
    await system.stop(ref, { drain: true });
    assert.deepEqual([(await down).reason, ...await notes], ["stopped", "busy", "busy"]);
  },

  "stop() waits for no actor that does not stop": async ({ isolate, options }) => {
    const system = createSystem({ ...options, stopGraceMs: 50 });
    const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
    await system.ask(ref, { type: "Double", n: 1 });
    const down = failureOf(system, ref);
    system.failed.catch(() => {});
    // Waiting messages do not delay a stop: the handler must have started.
    await system.ask(ref, { type: "Wedge", ms: 2000 });
    await system.stop();
    if (isolate === "worker") assert.equal((await liveWorkers()).length, 1, "its step goes on");
    assert.match((await down).error.message, /it did not stop within 50 ms$/);
    // A thread that could not be ended is left behind until its step is over.
    await until(async () => (await liveWorkers()).length === 0);
  },

  "all that an actor sent has come when its end is known": async ({ system, spawn, few }) => {
    for (const count of few([2000, 1])) {
      const ref = spawn(ROGUE), to = spawn(RECORDER, { id: `recorder ${count}` });
      system.send(to, { type: "Watch", ref });
      await system.ask(to, { type: "Read" });
      system.send(ref, { type: "Will", to, notes: count });
      // The news overtakes messages in the mailbox, but a question after it does not.
      const notes = await system.ask(to, { type: "Wait", count: count + 1 });
      const expected = Array.from({ length: count }, (_, n) => n);
      assert.deepEqual(notes.filter((what: unknown) => what !== "rogue stopped"), expected);
    }
  },
};

/** Messages between isolates. */
export const CROSSINGS: Suite = {
  "answers that come at the same time each end their question": async ({ system, spawn }) => {
    const to = ["a", "b", "c"].map((id) => spawn(SERVER, { id }));
    for (const ref of to) await system.ask(ref, { type: "Double", n: 0 });
    const client = spawn(CLIENT, { isolate: "local" });
    const answers = system.ask(client, { type: "AskDeaf", to }, { timeoutMs: 5000 });
    assert.deepEqual(await answers, [0, 2, 4]);
  },

  "a control message is handled between steps that block": async ({ system, spawn }) => {
    // A delayed isolate may have finished all steps, so one success in ten tries is enough.
    for (let attempt = 0, steps = 20; attempt < 10; attempt++) {
      const ref = spawn(RECORDER, { id: `recorder ${attempt}` });
      await system.ask(ref, { type: "Read" });
      for (let n = 0; n < steps; n++) system.send(ref, { type: "Busy", ms: 5 });
      await new Promise((resolve) => setTimeout(resolve, 15));
      system.send(ref, { type: "Note", what: "urgent" }, { lane: "control" });
      if ((await system.ask(ref, { type: "Read" })).indexOf("urgent") < steps) return;
    }
    assert.fail("it came after all steps, ten times");
  },

  "nothing overtakes on the way from one isolate to another": async ({ system, spawn }) => {
    const to = spawn(RECORDER), count = atDepth(1500, 30_000);
    await system.ask(spawn(ROGUE), { type: "Write", to, notes: count });
    const notes = await system.ask(to, { type: "Wait", count });
    assert.deepEqual(notes, Array.from({ length: count }, (_, n) => n));
  },

  "children in the isolate of their parent have other addresses": async ({ system, spawn }) => {
    const ref = spawn(ROGUE), pid = await system.ask(ref, { type: "Pid" });
    const children = await system.ask(ref, { type: "Spawn", isolate: "local" });
    const serials = [ref, ...children].map((one) => `${one.isolate - ref.isolate} ${one.serial}`);
    assert.deepEqual(serials, ["0 1", "0 2", "0 3"]);
    assert.equal(await system.ask(ref, { type: "Pid" }), pid);
  },

  "a tensor moves, and the receiver has its buffer alone": async ({ system, spawn }) => {
    const ref = spawn(ROGUE);
    for (const length of [1, 100, 500_000]) {
      const tensor = new Float32Array(length).fill(2);
      const answer = system.ask(ref, { type: "Weigh", tensor }, { transfer: [tensor.buffer] });
      assert.equal(tensor.length, 0);
      assert.deepEqual(await answer, { byteOffset: 0, byteLength: 4 * length, last: 2 });
    }
  },
};

/** Messages on a transport that receives pending frames between two steps. */
export const ARRIVALS: Suite = {
  "an idle message comes after those that arrived in a blocking step": async (
    { system, spawn },
  ) => {
    // A message of a delayed isolate may arrive later, so one success in ten tries is enough.
    for (let attempt = 0; attempt < 10; attempt++) {
      const ref = spawn(RECORDER, { id: `recorder ${attempt}` });
      await system.ask(ref, { type: "Read" });
      system.send(ref, { type: "Busy", ms: 50, idle: true });
      await new Promise((resolve) => setTimeout(resolve, 15));
      system.send(ref, { type: "Note", what: "arrived" });
      const notes = await system.ask(ref, { type: "Wait", count: 3 });
      if (`${notes}` === "busy,arrived,idle") return;
    }
    assert.fail("it was handled first, ten times");
  },
};

/** Messages and news between an isolate of one transport and one of another, both ways. */
export function neighbours(outer: PlaceName, inner: PlaceName): Suite {
  return {
    [`a ${outer} and a ${inner} reach each other`]: async ({ system, spawn }) => {
      const server = spawn(SERVER, { isolate: inner }), client = spawn(CLIENT, { isolate: outer });
      assert.deepEqual(await system.ask(client, { type: "Both", to: server }), [2, 4]);
      const to = spawn(RECORDER, { isolate: inner });
      const lanes = Array.from({ length: 500 }, () => "data" as const);
      const sender = spawn(SENDER, { init: { to, lanes }, isolate: outer });
      await system.ask(sender, { type: "Go" });
      const notes = await system.ask(to, { type: "Wait", count: 500 });
      assert.deepEqual(notes.map(({ n }: SenderNote) => n), [...lanes.keys()]);
      const watched = [server, client];
      for (const ref of watched) system.send(to, { type: "Watch", ref });
      const exits = Promise.all(watched.map((ref) => failureOf(system, ref)));
      await system.ask(to, { type: "Read" });
      system.send(server, { type: "Exit" });
      assert.equal((await system.ask(to, { type: "Wait", count: 501 })).at(-1), "server exit");
      const relayed = system.ask(client, { type: "Relay", to: server, n: 1 });
      await thrownBy(relayed);
      assert.equal((await system.ask(to, { type: "Wait", count: 502 })).at(-1), "client throw");
      await exits;
    },
  };
}
