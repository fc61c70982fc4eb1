/** The data of a run: whoever makes it may use its buffers again, and may fail at its end. */

import assert from "node:assert/strict";
import { train, type TrainOptions } from "../../../actors/mod.ts";
import { type Batch } from "../../../kernels/mod.ts";
import { batch, batches, RINGS } from "./own_layers.ts";

const OPTIONS = {
  model: RINGS,
  steps: 12,
  microBatches: 4,
  workers: 2,
  device: "reference",
} as const;

async function hashOf(options: Partial<TrainOptions>): Promise<string> {
  for await (const event of train({ ...OPTIONS, data: batches(), ...options })) {
    if (event.type === "end") return event.weightsHash;
  }
  throw new Error("a run must end with an end event");
}

/** Micro-batches that all have the same two arrays. */
function* inOneBuffer(): Generator<Batch, void> {
  const points = new Float32Array(8), labels = new Int32Array(4);
  for (let i = 0;; i++) {
    const { points: newPoints, labels: newLabels } = batch(i);
    points.set(newPoints as Float32Array);
    labels.set(newLabels as Int32Array);
    yield { points, labels };
    // Who has got them may take them apart, too.
    points.fill(NaN);
    labels.fill(1);
  }
}

for (
  const [name, options] of Object.entries<Partial<TrainOptions>>({
    "four micro-batches a step": { runtime: "local" },
    "no actors": { runtime: "serial" },
    "several steps in flight": { runtime: "local", schedule: "pipedream-2bw" },
    "one a step, and steps that are taken again": {
      microBatches: 1,
      runtime: "workers",
      faults: [{ worker: 0, afterActions: 19, kind: "throw" }],
    },
  })
) {
  Deno.test(`an iterator that reuses its buffers gives the weights of one that does not: ${name}`, async () => {
    const { faults: _, ...undisturbed } = options;
    assert.equal(await hashOf({ ...options, data: inOneBuffer() }), await hashOf(undisturbed));
  });
}

Deno.test("held-out micro-batches may share their buffers with the data", async () => {
  const evaluations = async (held: Batch, data: AsyncIterable<Batch>) => {
    const evaluation = { every: 1, atStart: true, batches: [held] }, losses: number[] = [];
    for await (const event of train({ ...OPTIONS, data, runtime: "local", evaluation })) {
      if (event.type === "evaluation") losses.push(event.loss);
    }
    return losses;
  };
  const shared = batch(0) as { points: Float32Array };
  async function* overwriting() {
    for await (const next of batches()) {
      shared.points.fill(0);
      yield next;
    }
  }
  const losses = await evaluations(shared as Batch, overwriting());
  assert.deepEqual(losses, await evaluations(batch(0), batches()));
});

/** Micro-batches whose source cannot be closed. */
function unclosable(gone: Error): Iterable<Batch> & { readonly closed: number } {
  let i = 0, closed = 0;
  return {
    [Symbol.iterator]: () => ({
      next: () => ({ value: batch(i++) as Batch, done: false as const }),
      return() {
        closed++;
        throw gone;
      },
    }),
    get closed() {
      return closed;
    },
  };
}

for (const runtime of ["serial", "local", "workers"] as const) {
  Deno.test(`data that cannot be closed ends the run with its error, and nothing is left (${runtime})`, async () => {
    const gone = new Error("the file is gone"), data = unclosable(gone);
    await assert.rejects(hashOf({ data, runtime, steps: 2 }), (error) => error === gone);
    assert.equal(data.closed, 1);
    const left = async () => {
      const run = train({ ...OPTIONS, data: unclosable(gone), runtime });
      for await (const event of run) if (event.type === "step") break;
    };
    await assert.rejects(left, (error) => error === gone);
  });
}

Deno.test("the error of the run is told before that of its data, which is attached", async () => {
  const gone = new Error("the file is gone"), closed = unclosable(gone);
  const faults = [{ worker: 1, afterActions: 5, kind: "throw" }] as const;
  const run = hashOf({ data: closed, runtime: "workers", retries: 0, faults });
  await assert.rejects(run, (error: Error & { suppressed?: unknown[] }) => {
    assert.match(error.message, /^worker-1 failed in step 1/);
    assert.deepEqual(error.suppressed, [gone]);
    return true;
  });
});
