import assert from "node:assert/strict";
import { ActorFailedError, type ActorRef, createSystem } from "../../../actors/runtime/mod.ts";
import {
  downOf,
  failureOf,
  liveWorkers,
  overtakes,
  thrownBy,
  until,
  withSystem,
} from "./harness.ts";
import {
  CLIENT,
  PARENT,
  type ParentMessage,
  RECORDER,
  type RecorderMessage,
  SERVER,
  type ServerMessage,
} from "./players.ts";

const isolate = "worker";

for (const how of ["Exit", "Close"] as const) {
  Deno.test(`worker: an actor whose worker ends by ${how} is down, and its questions end`, () =>
    withSystem({}, async (system) => {
      const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
      const client = system.spawn(CLIENT, undefined, { id: "client", isolate });
      const recorder = system.spawn(RECORDER, undefined, { id: "recorder", isolate });
      system.send(recorder, { type: "Watch", ref });
      await system.ask(recorder, { type: "Read" });
      const failure = failureOf(system, ref);
      const mine = thrownBy(system.ask(ref, { type: "Never" }));
      const others = failureOf(system, client);
      const others2 = thrownBy(system.ask(client, { type: "Relay", to: ref, n: 1 }));
      await system.ask(ref, { type: "Double", n: 1 });
      system.send(ref, { type: how });
      assert.equal((await failure).kind, "exit");
      assert.match((await failure).error.message, /^the worker of "server" has ended:/);
      assert.ok(await mine instanceof ActorFailedError);
      // The client does not catch, so it fails in turn.
      assert.equal((await others).error.name, "ActorFailedError");
      assert.ok(await others2 instanceof ActorFailedError);
      const notes = () => system.ask<RecorderMessage, unknown[]>(recorder, { type: "Read" });
      await until(async () => (await notes()).length > 0);
      assert.deepEqual(await notes(), ["server exit"]);
      system.send(ref, { type: "Never" });
      assert.equal(system.deadLetters.at(-1)!.reason, "isolate-gone");
    }));
}

Deno.test("worker: answers that come at the same time each end their question", () =>
  withSystem({}, async (system) => {
    const to = ["a", "b", "c"].map((id) => system.spawn(SERVER, undefined, { id, isolate }));
    for (const ref of to) await system.ask(ref, { type: "Double", n: 0 });
    const client = system.spawn(CLIENT, undefined, { id: "client" });
    assert.deepEqual(await system.ask(client, { type: "AskDeaf", to }, { timeoutMs: 5000 }), [
      0,
      2,
      4,
    ]);
  }));

Deno.test("worker: an actor whose worker is terminated is down", async () => {
  const workers: Worker[] = [];
  const { Worker: Original } = globalThis;
  globalThis.Worker = class extends Original {
    constructor(...args: ConstructorParameters<typeof Worker>) {
      super(...args);
      workers.push(this);
    }
  };
  try {
    await withSystem({}, async (system) => {
      const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
      await system.ask(ref, { type: "Double", n: 1 });
      const failure = failureOf(system, ref);
      workers[0]!.terminate();
      assert.equal((await failure).kind, "exit");
    });
  } finally {
    globalThis.Worker = Original;
  }
});

for (const how of ["ThrowLater", "RejectLater"] as const) {
  Deno.test(`worker: an error that no handler catches fails the actor (${how})`, () =>
    withSystem({}, async (system) => {
      const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
      const failure = failureOf(system, ref);
      system.send(ref, { type: how });
      const { actor, kind, error } = await failure;
      assert.deepEqual([actor, kind, error.message], ["server", "throw", "out of luck"]);
      assert.match(error.stack, /players\.ts/);
    }));
}

Deno.test("worker: the loss of an isolate is a failure of the parent there is", () =>
  withSystem({}, async (system) => {
    const diary = await Deno.makeTempFile();
    const init = { children: ["a", "b"], isolate, diary } as const;
    const parent = system.spawn(PARENT, init, { id: "p", isolate });
    const down = failureOf(system, parent);
    system.send(parent, { type: "Tell", child: "a", what: "Exit" });
    const { actor, kind } = await down;
    assert.deepEqual({ actor, kind }, { actor: "a", kind: "exit" });
    await Deno.remove(diary);
  }));

Deno.test("worker: children in other workers stop when their parent's worker is gone", () =>
  withSystem({}, async (system) => {
    const diary = await Deno.makeTempFile();
    const outer = system.spawn(PARENT, { children: ["a", "b"], isolate, diary }, {
      id: "outer",
      isolate,
    });
    const children = await system.ask<ParentMessage, ActorRef<ServerMessage>[]>(outer, {
      type: "Refs",
    });
    const downs = Promise.all([outer, ...children].map((ref) => downOf(system, ref)));
    system.send(outer, { type: "Exit" });
    const [own, ...others] = (await downs).map(({ reason }) => reason);
    assert.ok(own !== "stopped");
    assert.deepEqual(others, ["stopped", "stopped"]);
    await Deno.remove(diary);
  }));

Deno.test("worker: a control message is handled between steps that block", () =>
  withSystem({}, async (system) => {
    assert.ok(await overtakes(system, isolate));
  }));

Deno.test("worker: stop() ends a worker that does not stop", async () => {
  const system = createSystem({ stopGraceMs: 50 });
  const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
  await system.ask(ref, { type: "Double", n: 1 });
  const down = downOf(system, ref);
  system.failed.catch(() => {});
  // What waits in a mailbox does not hold up a stop: the handler must have begun.
  await system.ask(ref, { type: "Wedge", ms: 5000 });
  await system.stop();
  assert.equal((await liveWorkers()).length, 1, "it must not wait for the end of the step");
  const { reason } = await down;
  assert.ok(reason !== "stopped");
  assert.match(reason.error.message, /it did not stop within 50 ms$/);
  await until(async () => (await liveWorkers()).length === 0);
});

Deno.test("stop() leaves behind a handler that never ends", async () => {
  const system = createSystem({ stopGraceMs: 20 });
  const ref = system.spawn(SERVER, undefined, { id: "server" });
  const waiting = thrownBy(system.ask(ref, { type: "Hang" }));
  await new Promise((resolve) => setTimeout(resolve, 5));
  await system.stop();
  assert.ok(await waiting instanceof ActorFailedError);
});
