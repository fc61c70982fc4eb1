/**
 * Failures of workers and transports end a run with an error that says what failed at what, or are
 * outlived; a system that the run was given is left as it was.
 */

import assert from "node:assert/strict";
import {
  createSystem,
  NonFiniteError,
  train,
  type TrainOptions,
  type Transport,
} from "../../../actors/mod.ts";
import { WORKER_TRANSPORT } from "../../../actors/runtime/transports/worker/worker_transport.ts";
import type { Batch } from "../../../kernels/mod.ts";
import { HANG_LIMIT_MS } from "../../hang_limit.ts";
import { eventsOf, outcome, SMALL } from "../runs.ts";
import { TCP_TRANSPORT } from "../runtime/tcp_transport.ts";
import { B, batch, batches, RINGS, trainRings } from "./own_layers.ts";

/** Trains until something fails; returns that, with the types of the events before. */
async function failure(options: Partial<TrainOptions>): Promise<{ error: Error; types: string[] }> {
  const types: string[] = [],
    OPTIONS = { microBatches: 2, workers: 2, device: "reference" } as const;
  const run = async () => {
    const going = { model: RINGS, data: batches(), steps: 4, ...OPTIONS, ...options };
    for await (const { type } of train(going)) types.push(type);
  };
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error("the run hangs")), HANG_LIMIT_MS);
  const error = await Promise.race([run(), late]).then(
    () => assert.fail("the run must fail"),
    (error) => error,
  ).finally(() => clearTimeout(timer));
  return { error, types };
}

/** A run that does not go on when a worker dies. */
const AT_ONCE = { runtime: "workers", retries: 0 } as const;

/** Until disposed of, the worker that is started as number `which` dies after some messages. */
function dyingWorkers(which: number, messages: number): Disposable & { readonly started: number } {
  const Original = globalThis.Worker;
  let started = 0;
  globalThis.Worker = class extends Original {
    constructor(url: string | URL, options?: WorkerOptions) {
      const doomed = new URL(`./doomed_worker.ts?messages=${messages}`, import.meta.url);
      super(started++ === which ? doomed : url, options);
    }
  };
  return {
    get started() {
      return started;
    },
    [Symbol.dispose]() {
      globalThis.Worker = Original;
    },
  };
}

for (const [schedule, workers] of [["1f1b", 2], ["gpipe", 2], ["message-driven", 4]] as const) {
  Deno.test(`a worker that dies in the middle ends a run without retries: ${schedule}, ${workers} workers`, async () => {
    using doomed = dyingWorkers(workers - 2, 12);
    const { error } = await failure({ ...AT_ONCE, schedule, workers, steps: 1000 });
    assert.equal(doomed.started, workers);
    const worker = `worker-${workers - 2}`;
    assert.match(
      error.message,
      new RegExp(`^${worker} failed.*the worker of "${worker}" has ended`),
    );
  });
}

Deno.test("a worker that dies as it starts ends a run without retries", async () => {
  using _ = dyingWorkers(1, 0);
  const { error } = await failure(AT_ONCE);
  assert.match(error.message, /the worker of "worker-1" has ended/);
});

Deno.test("data that throws ends the run with its error, and data that ends says at which step", async () => {
  const thrown = new Error("the disk is gone");
  const failing = function* () {
    yield* [batch(0), batch(1), batch(2)];
    throw thrown;
  };
  const local = { runtime: "local" } as const;
  assert.equal((await failure({ ...local, data: failing() })).error, thrown);
  // The second step is smaller; for the third nothing is left.
  const { error, types } = await failure({ ...local, data: [batch(0), batch(1), batch(2)] });
  assert.deepEqual(types, ["plan", "step", "step"]);
  assert.ok(error instanceof RangeError);
  assert.match(
    error.message,
    /^Cannot run step 3: the data must have micro-batches for every step/,
  );
});

for (const runtime of ["serial", "local", "workers"] as const) {
  Deno.test(`a loss that is not finite ends the run before any weight has changed (${runtime})`, async () => {
    const data = function* (): Generator<Batch, void> {
      const points = new Float32Array(2 * B).fill(NaN);
      for (let i = 0;; i++) yield { ...batch(i), ...i === 3 && { points } } as Batch;
    };
    const { error, types } = await failure({ data: data(), runtime });
    assert.ok(error instanceof NonFiniteError);
    assert.match(error.message, /^Cannot take step 2: .*received loss NaN/);
    assert.deepEqual(types, ["plan", "step"]);
  });
}

for (const [schedule, runtime] of [["1f1b", "workers"], ["pipedream", "local"]] as const) {
  Deno.test(`one system serves run after run with the same bits: ${schedule}, ${runtime}`, async () => {
    const alone = await trainRings({ schedule, runtime: "local" });
    await using system = createSystem();
    for (let run = 0; run < 3; run++) {
      const { bits } = await trainRings({ schedule, runtime, system });
      assert.deepEqual(bits, alone.bits);
    }
    assert.deepEqual(system.deadLetters, []);
  });
}

Deno.test("a run that is left early, or outlives a worker, leaves its system to the next", async () => {
  await using system = createSystem();
  const options = { model: RINGS, steps: 4, microBatches: 2, workers: 2, system } as const;
  const early = train({ ...options, data: batches(), device: "reference", runtime: "local" });
  for await (const event of early) if (event.type === "step") break;
  const faults = [{ worker: 1, afterActions: 9, kind: "throw" }] as const, lines: string[] = [];
  const announce = (line: string) => void lines.push(line);
  const { end, events } = await trainRings({ runtime: "workers", system, faults, announce });
  assert.equal(end.steps, 4);
  assert.match(lines.join("\n"), /going on from the last committed step/);
  const lost = eventsOf(events, "failure"), next = events[events.indexOf(lost[0]!) + 1];
  assert.equal(lost.length, 1);
  assert.match(lost[0]!.actor, /^worker-1$/);
  assert.match(lost[0]!.reason, /a fault was asked for/);
  assert.ok(next?.type === "step" && next.step === lost[0]!.step, "reported before its step");
});

const SIZES = { ...SMALL, microBatches: 4 };
const TCP = { isolation: "tcp", transport: TCP_TRANSPORT } as const;

Deno.test("workers behind a foreign transport have the serial bits, copies of stages too", async () => {
  const options = { schedule: "chimera", workers: 2, replicas: 2, device: "native" } as const;
  const serial = await outcome(SIZES, { ...options, runtime: "serial" });
  assert.deepEqual((await outcome(SIZES, { ...options, ...TCP })).bits, serial.bits);
});

Deno.test("a run outlives a worker behind a foreign transport of the system that it was given", async () => {
  const options = { device: "reference", workers: 2 } as const;
  await using system = createSystem({ transport: TCP_TRANSPORT });
  const serial = await outcome(SIZES, { ...options, runtime: "serial" });
  const faults = [{ worker: 1, afterActions: 9, kind: "exit" }] as const;
  const run = await outcome(SIZES, { ...options, isolation: "tcp", system, faults });
  const [lost, ...others] = eventsOf(run.events, "failure");
  assert.match(lost!.reason, /the tcp of "worker-1" has ended: /);
  assert.deepEqual(others, []);
  assert.deepEqual(run.bits, serial.bits);
});

/** Deno workers that lose the first message of a type on its way to the root. */
function losing(type: string): Transport {
  let isLost = false;
  const isNext = (frame: unknown) =>
    !isLost && (frame as { message?: { type: string } }).message?.type === type;
  return {
    ...WORKER_TRANSPORT,
    name: "losing",
    open(options) {
      const open = WORKER_TRANSPORT.open(options);
      return {
        ...open,
        start: (request) =>
          open.start({
            ...request,
            receive: (frame) => isNext(frame) ? void (isLost = true) : request.receive(frame),
          }),
      };
    },
  };
}

for (const schedule of ["1f1b", "pipedream"]) {
  Deno.test(`a loss that a transport loses ends ${schedule} with the step and the micro-batch`, async () => {
    const options = { schedule, isolation: "losing", transport: losing("Loss") } as const;
    await assert.rejects(
      trainRings({ ...options, runtime: "workers" }),
      /Cannot end step 1: the loss of micro-batch 0 must have come/,
    );
  });
}
