import assert from "node:assert/strict";
import { ActorFailedError, createSystem } from "../../../actors/runtime/mod.ts";
import { downOf, failureOf, liveWorkers, thrownBy, until, withSystem } from "./harness.ts";
import { SERVER } from "./players.ts";

const isolate = "worker";

Deno.test("worker: an actor whose worker closes itself is down", () =>
  withSystem({}, async (system) => {
    const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
    const failure = failureOf(system, ref);
    system.send(ref, { type: "Close" });
    assert.match((await failure).error.message, /^the worker of "server" has ended: it called/);
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
