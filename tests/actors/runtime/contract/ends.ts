/**
 * How actors end, and who hears of it.
 *
 * @module
 */

import assert from "node:assert/strict";
import { ActorFailedError, type ActorSpec, type Failure } from "../../../../actors/runtime/mod.ts";
import { downOf, failureOf, thrownBy, until } from "../harness.ts";
import { RECORDER, SERVER, SLOVEN } from "../players.ts";
import { each, type Suite } from "./suite.ts";

const PLAYERS = new URL("../players.ts", import.meta.url).href;

export const ENDS: Suite = {
  "a handler that throws: who, what and where": async ({ system, isolate }) => {
    const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
    system.send(ref, { type: "Throw" });
    const { error, ...rest } = await failureOf(system, ref);
    assert.deepEqual(rest, { actor: "server", kind: "throw", handling: "Throw (2F0, step 3)" });
    assert.equal(error.name, "RangeError");
    assert.equal(error.message, "out of luck");
    assert.match(error.stack, /players\.ts/);
  },

  "a handler that rejects fails its actor": async ({ system, isolate }) => {
    const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
    system.send(ref, { type: "Reject" });
    const { kind, handling } = await failureOf(system, ref);
    assert.deepEqual({ kind, handling }, { kind: "throw", handling: "Reject" });
  },

  "a factory that throws fails its actor": async ({ system, isolate }) => {
    const spec: ActorSpec<undefined> = { module: PLAYERS, export: "broken" };
    const failure = await failureOf(system, system.spawn(spec, undefined, { id: "b", isolate }));
    assert.equal(failure.kind, "init");
    assert.equal(failure.handling, "init (opening the device)");
    assert.equal(failure.error.message, "out of luck");
  },

  ...each(
    [
      ["a module that is not there", "file:///nowhere.ts", "a", /nowhere/],
      ["a module that throws", "data:text/javascript,throw new Error('no luck')", "a", /no luck/],
      ["an export that is not there", PLAYERS, "nobody", /must export a function "nobody"/],
    ] as const,
    ([what, module, name, text]) => [`${what} fails the actor`, async ({ system, isolate }) => {
      const spec: ActorSpec<undefined> = { module, export: name };
      const failure = await failureOf(system, system.spawn(spec, undefined, { id: "b", isolate }));
      assert.equal(failure.kind, "init");
      assert.match(failure.error.message, text);
    }],
  ),

  "a message that has no handler fails the actor": async ({ system, isolate }) => {
    const ref = system.spawn(
      SERVER as ActorSpec as ActorSpec<undefined, { type: "toString" }>,
      undefined,
      {
        id: "server",
        isolate,
      },
    );
    system.send(ref, { type: "toString" });
    const failure = await failureOf(system, ref);
    assert.equal(failure.kind, "unknown-message");
    assert.match(failure.error.message, /Cannot handle "toString": .*"server".*\(Double, Bytes/);
  },

  ...each(
    ["data", "control"] as const,
    (
      lane,
    ) => [
      `as many ${lane} messages as the capacity may wait, and no more`,
      async ({ system, isolate }) => {
        const options = { isolate, capacity: 3 } as const;
        // All is sent at once, so that all of it waits while the actor is being made.
        const enough = system.spawn(RECORDER, undefined, { id: "enough", ...options });
        for (const what of [1, 2]) system.send(enough, { type: "Note", what }, { lane });
        const notes = system.ask(enough, { type: "Read" });
        const full = system.spawn(RECORDER, undefined, { id: "full", ...options });
        const down = failureOf(system, full);
        for (const what of [1, 2, 3, 4]) system.send(full, { type: "Note", what }, { lane });
        assert.deepEqual(await notes, [1, 2]);
        // One more yet, so that a bound that is too high is not waited for.
        system.send(full, { type: "Note", what: 5 }, { lane });
        system.send(full, { type: "Forget" } as never);
        const { kind, error } = await down;
        assert.equal(kind, "mailbox-overflow");
        assert.equal(
          error.message,
          'Cannot enqueue "Note" of "system": the mailbox of "full" must hold at most 3 messages',
        );
      },
    ],
  ),

  "what waits before a busy actor counts for its capacity": async ({ system, isolate }) => {
    const ref = system.spawn(SERVER, undefined, { id: "server", isolate, capacity: 2 });
    const down = failureOf(system, ref);
    system.send(ref, { type: "Wedge", ms: 30 });
    await new Promise((resolve) => setTimeout(resolve, 10));
    for (let n = 0; n < 3; n++) system.send(ref, { type: "Double", n });
    const { kind, error } = await down;
    assert.equal(kind, "mailbox-overflow");
    assert.equal(
      error.message,
      'Cannot enqueue "Double" of "system": the mailbox of "server" must hold at most 2 messages',
    );
  },

  "one who watches is told once, however often the actor ends": async ({ system, isolate }) => {
    const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
    const reasons: unknown[] = [];
    system.watch(ref, ({ reason }) => reasons.push(reason));
    system.send(ref, { type: "Stop" });
    system.send(ref, { type: "Throw" });
    assert.deepEqual(await downOf(system, ref), { ref, reason: "stopped" });
    assert.deepEqual(await downOf(system, ref), { ref, reason: "stopped" });
    assert.deepEqual(reasons, ["stopped"]);
  },

  "one who watches too late is told why": async ({ system, isolate }) => {
    const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
    const first = failureOf(system, ref);
    system.send(ref, { type: "Throw" });
    assert.deepEqual(await failureOf(system, ref), await first);
  },

  "an actor can watch another, which keeps nothing from the parent": async (
    { system, isolate },
  ) => {
    const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
    const failed = thrownBy(system.failed);
    const recorder = system.spawn(RECORDER, undefined, { id: "recorder", isolate });
    system.send(recorder, { type: "Watch", ref });
    await system.ask(recorder, { type: "Read" });
    system.send(ref, { type: "Throw" });
    const told = () => system.ask(recorder, { type: "Read" });
    await until(async () => (await told() as string[]).length > 0);
    system.send(recorder, { type: "Watch", ref });
    await until(async () => (await told() as string[]).length > 1);
    assert.deepEqual(await told(), ["server throw", "server throw"]);
    assert.equal((await failed as ActorFailedError).failure.actor, "server");
  },

  "a failure that the parent watches ends with it, whoever else watches": async (
    { system, isolate },
  ) => {
    const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
    const recorder = system.spawn(RECORDER, undefined, { id: "recorder", isolate });
    system.send(recorder, { type: "Watch", ref });
    const down = downOf(system, ref);
    system.send(ref, { type: "Throw" });
    await down;
    assert.equal(await Promise.race([system.failed, system.stop()]), undefined);
  },

  "an owner's callback that throws is a failure of the system": async ({ system, isolate }) => {
    const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
    system.watch(ref, () => {
      throw new RangeError("out of luck");
    });
    system.send(ref, { type: "Stop" });
    const { failure } = await thrownBy(system.failed) as ActorFailedError;
    assert.deepEqual([failure.actor, failure.handling], ["system", "end of server"]);
  },

  "a failure that nobody watches reaches the system": async ({ system, isolate }) => {
    const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
    system.send(ref, { type: "Throw" });
    const error = await thrownBy(system.failed);
    assert.ok(error instanceof ActorFailedError);
    assert.equal(
      error.message,
      'Actor "server" failed while handling Throw (2F0, step 3): RangeError: out of luck',
    );
  },

  "a failure whose watcher has stopped reaches the system": async ({ system, isolate }) => {
    const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
    const watcher = system.spawn(SERVER, undefined, { id: "watcher", isolate });
    const recorder = system.spawn(RECORDER, undefined, { id: "recorder", isolate });
    system.send(recorder, { type: "Watch", ref });
    system.send(recorder, { type: "Watch", ref: watcher });
    await system.ask(recorder, { type: "Read" });
    const down = downOf(system, recorder);
    system.send(recorder as never, { type: "Nothing" } as never);
    await down;
    system.send(ref, { type: "Throw" });
    const error = await thrownBy(system.failed);
    assert.equal((error as ActorFailedError).failure.actor, "server");
  },

  "a cleanup that throws is a failure": async ({ system, isolate }) => {
    const ref = system.spawn(SLOVEN, undefined, { id: "sloven", isolate });
    const down = failureOf(system, ref);
    system.send(ref, { type: "Stop" });
    const { kind, handling } = await down;
    assert.deepEqual({ kind, handling }, { kind: "throw", handling: "cleanup" });
  },

  "ids are unique among the living": async ({ system, isolate }) => {
    const options = { id: "server", isolate } as const;
    const ref = system.spawn(SERVER, undefined, options);
    assert.throws(() => system.spawn(SERVER, undefined, options), {
      name: "RangeError",
      message: 'Cannot spawn "server": id must be unique, received that of a living actor',
    });
    const down = downOf(system, ref);
    system.send(ref, { type: "Stop" });
    await down;
    const next = system.spawn(SERVER, undefined, options);
    assert.equal(await system.ask(next, { type: "Double", n: 1 }), 2);
    system.send(ref, { type: "Throw" });
    assert.equal(await system.ask(next, { type: "Double", n: 2 }), 4, "it is not its predecessor");
  },

  "what cannot be spawned is refused at once": async ({ system, isolate }) => {
    const refused = (over: object, error: RegExp, init: unknown = undefined) =>
      assert.throws(
        () => system.spawn(SERVER as ActorSpec<unknown>, init, { id: "x", isolate, ...over }),
        error,
      );
    refused({ id: "" }, /RangeError: Cannot spawn "": id must be/);
    refused({ id: "system" }, /RangeError: Cannot spawn "system": id must be unique/);
    refused({ capacity: 0 }, /RangeError: Cannot spawn "x": capacity must be a positive integer/);
    refused({ capacity: 1.5 }, /RangeError: Cannot spawn "x": capacity must be a positive integer/);
    refused({ id: Symbol("s") }, /RangeError: Cannot spawn "Symbol\(s\)": id must be a string/);
    refused(
      { isolate: "thread" },
      /RangeError: .* local, worker(, process)? or (process|tcp|mpi), received thread/,
    );
    refused(
      { memoryLimitMb: NaN },
      /RangeError: Cannot spawn "x": memoryLimitMb must be a positive/,
    );
    refused({ isolate: "local", memoryLimitMb: 8 }, /TypeError: .*only a process must have a/);
    refused({ transfer: [undefined] }, /TypeError: Cannot spawn "x": transfer must be an array of/);
    refused({}, /TypeError: Cannot spawn "x": init must be structured-cloneable/, () => {});
    const thrower = Object.defineProperty({}, "x", {
      enumerable: true,
      get: () => {
        throw new RangeError("mine");
      },
    });
    refused({}, /TypeError: Cannot spawn "x": init must be structured-cloneable.*mine/, thrower);
    for (const [spec, options] of [[SERVER, undefined], [SERVER, null], [null, { id: "x" }]]) {
      assert.throws(() => system.spawn(spec as typeof SERVER, undefined, options as { id: "x" }), {
        name: "TypeError",
        message: /^Cannot spawn.* must be a record, received (undefined|object|null)$/,
      });
    }
    assert.throws(
      () => system.spawn({ module: "./here.ts", export: "a" }, undefined as never, { id: "x" }),
      /TypeError: Cannot spawn "x": module must be an absolute URL, received \.\/here\.ts/,
    );
    const ref = system.spawn(SERVER, undefined, { id: "x", isolate });
    assert.equal(await system.ask(ref, { type: "Double", n: 1 }), 2);
  },

  "after stop, nothing goes any more and nothing hangs": async ({ system, isolate }) => {
    const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
    const waiting = thrownBy(system.ask(ref, { type: "Never" }));
    const down = downOf(system, ref);
    await Promise.all([system.stop(), system.stop()]);
    assert.equal((await down).reason, "stopped");
    assert.equal(((await waiting) as ActorFailedError).failure.kind, "exit" as Failure["kind"]);
    assert.throws(() => system.spawn(SERVER, undefined, { id: "a" }), /must not be stopping/);
    assert.ok(await thrownBy(system.ask(ref, { type: "Never" })) instanceof ActorFailedError);
  },
};
