/** Whatever fails in a run ends it with an error that says who failed at what; nothing hangs. */

import assert from "node:assert/strict";
import { NonFiniteError, train, type TrainEvent, type TrainOptions } from "../../../actors/mod.ts";
import { type Batch } from "../../../kernels/mod.ts";
import { HANG_LIMIT_MS } from "../../hang_limit.ts";
import { B, batch, batches, RINGS } from "./own_layers.ts";

/** Runs to the end and returns what it threw, with the number of steps taken before. */
async function failure(
  options: Partial<TrainOptions>,
): Promise<{ error: Error; steps: number }> {
  let steps = 0;
  const run = async () => {
    for await (
      const event of train({
        model: RINGS,
        data: batches(),
        steps: 4,
        microBatches: 2,
        workers: 2,
        device: "reference",
        ...options,
      })
    ) {
      if (event.type === "step") steps++;
    }
  };
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error("the run hangs")), HANG_LIMIT_MS);
  const error = await Promise.race([run(), late]).then(
    () => assert.fail("the run must fail"),
    (error) => error,
  ).finally(() => clearTimeout(timer));
  return { error, steps };
}

/** Good micro-batches, but for one in the second step. */
function* badInStep2(change: Readonly<Record<string, unknown>>): Generator<Batch, void> {
  for (let i = 0;; i++) {
    const fields = Object.entries({ ...batch(i), ...i === 3 ? change : {} });
    yield Object.fromEntries(fields.filter(([, value]) => value !== undefined)) as Batch;
  }
}

for (const schedule of ["1f1b", "gpipe", "message-driven"]) {
  for (const workers of [2, 4]) {
    Deno.test(`a worker that dies in the middle ends a run without retries: ${schedule}, ${workers} workers`, async () => {
      using doomed = dyingWorkers(workers - 2, 12);
      const { error } = await failure({ ...AT_ONCE, schedule, workers, steps: 1000 });
      assert.equal(doomed.started, workers);
      assert.match(
        error.message,
        new RegExp(
          `^worker-${workers - 2} failed.*the worker of "worker-${workers - 2}" has ended`,
        ),
      );
    });
  }
}

Deno.test("a worker that dies as it starts ends a run without retries", async () => {
  using _ = dyingWorkers(1, 0);
  const { error } = await failure(AT_ONCE);
  assert.match(error.message, /the worker of "worker-1" has ended/);
});

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

Deno.test("data that throws ends the run with its own error, and data that ends says at which step", async () => {
  const thrown = new Error("the disk is gone");
  const failing = function* () {
    yield* [batch(0), batch(1), batch(2)];
    throw thrown;
  };
  assert.equal((await failure({ data: failing() })).error, thrown);
  // The second step is smaller; for the third nothing is left.
  const { error, steps } = await failure({ data: [batch(0), batch(1), batch(2)] });
  assert.equal(steps, 2);
  assert.ok(error instanceof RangeError);
  assert.match(
    error.message,
    /^Cannot run step 3: the data must have micro-batches for every step/,
  );
});

for (const runtime of ["serial", "local", "workers"] as const) {
  Deno.test(`a loss that is not finite ends the run before any weight has changed (${runtime})`, async () => {
    const data = badInStep2({ points: new Float32Array(2 * B).fill(NaN) });
    const events: TrainEvent["type"][] = [];
    const run = async () => {
      const options = { model: RINGS, data, steps: 4, microBatches: 2, workers: 2, runtime };
      for await (const event of train({ ...options, device: "reference" })) events.push(event.type);
    };
    await assert.rejects(run, (error: Error) => {
      assert.ok(error instanceof NonFiniteError);
      assert.match(error.message, /^Cannot take step 2: .*received loss NaN/);
      return true;
    });
    assert.deepEqual(events, ["plan", "step"]);
  });
}
