/**
 * Ends of actors, and the notifications of others.
 *
 * @module
 */

import assert from "node:assert/strict";
import { ActorFailedError, type ActorRef, type ActorSpec } from "../../../../actors/runtime/mod.ts";
import { downOf, failureOf, thrownBy, topFailure } from "../harness.ts";
import { fail, plain, RECORDER, SERVER } from "../players.ts";

import type { Suite } from "./suite.ts";

export const ENDS: Suite = {
  "the failure of a handler says who, what and where": async ({ system, spawn }) => {
    const server = spawn(SERVER), other = spawn(SERVER, { id: "other" });
    const [thrown, rejected] = [failureOf(system, server), failureOf(system, other)];
    system.send(server, { type: "Throw" });
    system.send(other, { type: "Reject" });
    const { error, ...rest } = await thrown;
    assert.deepEqual(rest, { actor: "server", kind: "throw", handling: "Throw (2F0, step 3)" });
    assert.deepEqual([error.name, error.message], ["RangeError", "out of luck"]);
    assert.match(error.stack, /players\.ts/);
    const { kind, handling } = await rejected;
    assert.deepEqual({ kind, handling }, { kind: "throw", handling: "Reject" });
    // A late watcher is notified in the same way.
    assert.deepEqual(await failureOf(system, server), await thrown);
  },

  "an actor that cannot be made fails": async ({ system, spawn, few }) => {
    const opening = 'ctx.setActivity("opening"); throw new RangeError("out of luck");';
    const broken = plain(`(ctx) => { ${opening} }`);
    const cases = [
      [broken.module, "plain", "init (opening)", /^out of luck$/],
      ["data:text/javascript,throw new Error('no luck')", "a", "init", /no luck/],
      ["file:///nowhere.ts", "a", "init", /nowhere/],
      [broken.module, "unknown", "init", /must export a function "unknown"/],
    ] as const;
    for (const [module, name, doing, text] of few(cases, 2)) {
      const spec: ActorSpec<undefined> = { module, export: name };
      const { kind, handling, error } = await failureOf(system, spawn(spec, { id: "b" }));
      assert.deepEqual([kind, handling], ["init", doing]);
      assert.match(error.message, text);
    }
  },

  "a message that has no handler fails the actor": async ({ system, spawn }) => {
    const ref = spawn(SERVER) as ActorRef as ActorRef<{ type: "toString" }>;
    system.send(ref, { type: "toString" });
    const failure = await failureOf(system, ref);
    assert.equal(failure.kind, "unknown-message");
    assert.match(failure.error.message, /Cannot handle "toString": .*"server".*\(Double, Bytes/);
  },

  "at most `capacity` messages wait": async ({ system, spawn, few }) => {
    for (const lane of few(["data", "control"] as const)) {
      // All messages are sent immediately, so that they wait while the actor is created.
      const enough = spawn(RECORDER, { id: `enough ${lane}`, capacity: 3 });
      for (const what of [1, 2]) system.send(enough, { type: "Note", what }, { lane });
      const notes = system.ask(enough, { type: "Read" });
      const full = spawn(RECORDER, { id: "full", capacity: 3 }), down = failureOf(system, full);
      for (const what of [1, 2, 3, 4]) system.send(full, { type: "Note", what }, { lane });
      assert.deepEqual(await notes, [1, 2]);
      // One more yet, so that a bound that is too high is not waited for.
      system.send(full, { type: "Note", what: 5 }, { lane });
      system.send(full, { type: "Forget" } as never);
      const { kind, error } = await down;
      assert.equal(kind, "mailbox-overflow");
      assert.equal(
        error.message,
        'Cannot enqueue "Note" of "system": the mailbox of "full" must hold at most 3 messages, ' +
          `received one more in the ${lane} lane behind 3 of "system" (${lane})`,
      );
    }
    // Messages of the runtime itself count as well.
    const over = spawn(SERVER, { id: "over" });
    await system.stop(over);
    for (const what of few(["after(0, { type: '' })", "watch(to, () => ({ type: '' }))"])) {
      const go =
        `for (let n = 0; n < 12; n++) ctx.${what}; await new Promise((r) => setTimeout(r))`;
      const flooded = spawn(plain(`(ctx) => ({ async Go({ to }) { ${go}; } })`), { capacity: 10 });
      system.send(flooded, { type: "Go", to: over });
      const { kind, error } = await failureOf(system, flooded);
      assert.equal(kind, "mailbox-overflow");
      const full = /at most 10 messages, .* control lane behind 10 of "\w+" \(contr/;
      assert.match(error.message, full);
    }
    const busy = spawn(SERVER, { capacity: 2 }), down = failureOf(system, busy);
    await system.ask(busy, { type: "Wedge", ms: 30 });
    for (let n = 0; n < 4; n++) system.send(busy, { type: "Double", n });
    assert.equal((await down).kind, "mailbox-overflow");
  },

  "a watcher hears of an end once, however often the actor ends": async ({ system, spawn }) => {
    const ref = spawn(SERVER), reasons: unknown[] = [];
    system.watch(ref, ({ reason }) => reasons.push(reason));
    system.send(ref, { type: "Stop" });
    system.send(ref, { type: "Throw" });
    for (const _ of [1, 2]) {
      assert.deepEqual(await downOf(system, ref), { ref, reason: "stopped" });
    }
    assert.deepEqual(reasons, ["stopped"]);
  },

  "a watch by another actor keeps nothing from the parent": async ({ system, spawn }) => {
    const ref = spawn(SERVER), recorder = spawn(RECORDER), failed = topFailure(system);
    system.send(recorder, { type: "Watch", ref });
    await system.ask(recorder, { type: "Read" });
    system.send(ref, { type: "Throw" });
    await system.ask(recorder, { type: "Wait", count: 1 });
    system.send(recorder, { type: "Watch", ref });
    const notes = await system.ask(recorder, { type: "Wait", count: 2 });
    assert.deepEqual(notes, ["server throw", "server throw"]);
    const { actor, handling } = await failed;
    assert.deepEqual([actor, handling], ["server", "Throw (2F0, step 3)"]);
    const refusal =
      /^Actor "server" failed while handling Throw \(2F0, step 3\): RangeError: out of luck$/;
    assert.match((await thrownBy(system.failed)).message, refusal);
  },

  "a failure that the parent watches goes no further": async ({ system, spawn }) => {
    const ref = spawn(SERVER), recorder = spawn(RECORDER), down = downOf(system, ref);
    system.send(recorder, { type: "Watch", ref });
    system.send(ref, { type: "Throw" });
    await down;
    assert.equal(await Promise.race([system.failed, system.stop()]), undefined);
  },

  "a callback of the owner that throws fails the system": async ({ system, spawn }) => {
    const ref = spawn(SERVER);
    system.watch(ref, fail);
    system.send(ref, { type: "Stop" });
    const { actor, handling } = await topFailure(system);
    assert.deepEqual([actor, handling], ["system", "end of server"]);
  },

  "a failure whose watcher has stopped reaches the system": async ({ system, spawn }) => {
    const ref = spawn(SERVER), watcher = spawn(SERVER, { id: "watcher" });
    const recorder = spawn(RECORDER);
    for (const one of [ref, watcher]) system.send(recorder, { type: "Watch", ref: one });
    await system.ask(recorder, { type: "Read" });
    const down = downOf(system, recorder);
    system.send(recorder as never, { type: "Nothing" } as never);
    await down;
    system.send(ref, { type: "Throw" });
    assert.equal((await topFailure(system)).actor, "server");
  },

  "a cleanup that throws is a failure": async ({ system, spawn }) => {
    const cleanup = 'ctx.defer(() => { throw new RangeError("out of luck"); })';
    const ref = spawn(plain(`(ctx) => (${cleanup}, { Stop: () => ctx.stop() })`));
    const down = failureOf(system, ref);
    system.send(ref, { type: "Stop" });
    const { kind, handling } = await down;
    assert.deepEqual({ kind, handling }, { kind: "throw", handling: "cleanup" });
  },

  "ids are unique among the living": async ({ system, spawn }) => {
    const ref = spawn(SERVER);
    assert.throws(() => spawn(SERVER), {
      name: "RangeError",
      message: 'Cannot spawn "server": id must be unique, received that of a living actor',
    });
    // The id is free as soon as the end is known, and no later news of that end frees it again.
    const next = new Promise<typeof ref>((resolve) =>
      system.watch(ref, () => resolve(spawn(SERVER)))
    );
    system.send(ref, { type: "Stop" });
    assert.equal(await system.ask(await next, { type: "Double", n: 1 }), 2);
    system.send(ref, { type: "Throw" });
    assert.equal(await system.ask(await next, { type: "Double", n: 2 }), 4);
    assert.throws(() => spawn(SERVER), /id must be unique/);
  },

  "after stop, nothing goes any more and nothing hangs": async ({ system, spawn }) => {
    const ref = spawn(SERVER), down = downOf(system, ref);
    const waiting = thrownBy(system.ask(ref, { type: "Never" }));
    await Promise.all([system.stop(), system.stop()]);
    assert.equal((await down).reason, "stopped");
    assert.equal((await waiting as ActorFailedError).failure.kind, "exit");
    assert.throws(() => system.spawn(SERVER, undefined, { id: "a" }), /must not be stopping/);
    assert.ok(await thrownBy(system.ask(ref, { type: "Never" })) instanceof ActorFailedError);
  },
};
