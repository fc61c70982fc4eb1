/** Micro-batches that the model cannot read are told where they come from, and never lose a worker. */

import assert from "node:assert/strict";
import { readCheckpoint, train, type TrainEvent, type TrainOptions } from "../../../actors/mod.ts";
import type { Batch } from "../../../kernels/mod.ts";
import { inFolder } from "../../in_folder.ts";
import { batch, LOOKUP, RINGS } from "./own_layers.ts";

const OPTIONS = {
  steps: 3,
  microBatches: 2,
  workers: 2,
  device: "reference",
} as const;

/** Micro-batches of which number `at` is another one. */
function* withOne(at: number, wrong: (right: Batch) => unknown): Generator<Batch, void> {
  for (let i = 0;; i++) yield (i === at ? wrong(batch(i)) : batch(i)) as Batch;
}

async function events(options: Partial<TrainOptions>): Promise<TrainEvent[]> {
  const seen: TrainEvent[] = [];
  for await (const event of train({ ...OPTIONS, model: LOOKUP, data: [], ...options })) {
    seen.push(event);
  }
  return seen;
}

const mistakes: Readonly<Record<string, readonly [(right: Batch) => unknown, string]>> = {
  "no field": [
    ({ labels: _, ...others }) => others,
    'it must have the field "labels", Int32Array of [4] (4 elements), received points, ids',
  ],
  "nothing": [
    () => ({}),
    'it must have the field "ids", Int32Array of [4] (4 elements), received no field',
  ],
  "another type": [
    (right) => ({ ...right, ids: Float32Array.of(1, 2, 3, 4) }),
    'it must have the field "ids", Int32Array of [4] (4 elements), received Float32Array of 4',
  ],
  "a plain array": [
    (right) => ({ ...right, ids: [1, 2, 3, 4] }),
    'it must have the field "ids", Int32Array of [4] (4 elements), received Array of 4',
  ],
  "null": [
    (right) => ({ ...right, labels: null }),
    'it must have the field "labels", Int32Array of [4] (4 elements), received null',
  ],
  "an array whose memory is somewhere else": [
    (right) => {
      const ids = Int32Array.from(right.ids as Int32Array);
      ids.buffer.transfer();
      return { ...right, ids };
    },
    'it must have the field "ids", Int32Array of [4] (4 elements), received Int32Array of 0',
  ],
  "a shorter array": [
    (right) => ({ ...right, ids: Int32Array.of(1, 2, 3) }),
    'it must have the field "ids", Int32Array of [4] (4 elements), received Int32Array of 3',
  ],
  "a row that is not there": [
    (right) => ({ ...right, ids: Int32Array.of(1, 2, 5, 3) }),
    'the field "ids" must hold whole numbers from -5 to 4, received 5 at position 2',
  ],
  "a class that is not there": [
    (right) => ({ ...right, labels: Int32Array.of(0, 1, 1, -2) }),
    'the field "labels" must hold whole numbers from -1 to 1, received -2 at position 3',
  ],
  "no record": [() => null, "it must be a record of typed arrays, received null"],
};

Deno.test("a wrong micro-batch of the first step is told before anything runs", async () => {
  for (const [what, [wrong, problem]] of Object.entries(mistakes)) {
    const run = train({ ...OPTIONS, model: LOOKUP, data: withOne(1, wrong) });
    const message = `Cannot train on micro-batch 1 of step 1: ${problem}`;
    await assert.rejects(run.next(), { name: "TypeError", message }, what);
  }
});

Deno.test("so is a held-out one", async () => {
  const evaluation = {
    every: 1,
    batches: [batch(0), { ...batch(1), labels: Int32Array.of(7) } as Batch],
  };
  const run = train({ ...OPTIONS, model: LOOKUP, data: withOne(-1, Object), evaluation });
  await assert.rejects(run.next(), {
    message: "Cannot train on evaluation.batches[1]: it must have the field " +
      '"labels", Int32Array of [4] (4 elements), received Int32Array of 1',
  });
});

for (const runtime of ["workers", "local", "serial"] as const) {
  Deno.test(`a later one ends the run in its step, and the last checkpoint stays (${runtime})`, async () => {
    await inFolder(async (folder) => {
      const [wrong, problem] = mistakes["another type"]!, types: string[] = [];
      const checkpoint = { directory: folder, every: 1, config: {} }, data = withOne(5, wrong);
      const run = async () => {
        for await (const event of train({ ...OPTIONS, model: LOOKUP, runtime, data, checkpoint })) {
          types.push(event.type);
        }
      };
      await assert.rejects(run(), {
        name: "TypeError",
        message: `Cannot train on micro-batch 1 of step 3: ${problem}`,
      });
      assert.ok(!types.includes("failure"), `${types}`);
      assert.equal((await readCheckpoint(folder))?.step, 2);
    });
  });
}

Deno.test("a half of a micro-batch is not asked for where a schedule halves them", async () => {
  const half = { ...RINGS, samples: 8, withSamples: () => RINGS };
  const both = (i: number): Batch => ({
    points: Float32Array.of(...batch(i).points as Float32Array, ...batch(i).points as Float32Array),
    labels: Int32Array.of(...batch(i).labels as Int32Array, ...batch(i).labels as Int32Array),
  });
  const options = {
    ...OPTIONS,
    model: half,
    microBatches: 4,
    workers: 2,
    schedule: "chimera",
    scheduleOptions: { scale: "halving" },
    runtime: "local",
  } as const;
  function* data(change: object = {}) {
    for (let i = 0;; i++) yield { ...both(i), ...change };
  }
  await train({ ...options, data: data() }).next();
  await assert.rejects(train({ ...options, data: data({ labels: Int32Array.of(1) }) }).next(), {
    message: "Cannot train on micro-batch 0 of step 1: it must have the field " +
      '"labels", Int32Array of [8] (8 elements), received Int32Array of 1',
  });
  await assert.rejects(train({ ...options, data: data({ other: Int32Array.of(1) }) }).next(), {
    message: "Cannot train on micro-batch 0 of step 1: the field " +
      '"other" must be divisible by 2, received 1 elements',
  });
});

Deno.test("what no message can carry does not come along, and what is looked at is what is learnt", async () => {
  const hashOf = async (data: Iterable<Batch>, runtime: "workers" | "serial") => {
    const end = (await events({ data, runtime })).at(-1)!;
    assert.ok(end.type === "end");
    return end.weightsHash;
  };
  const odd = withOne(2, (right) => ({ ...right, told: () => "a function", of: Symbol("x") }));
  const right = await hashOf(withOne(-1, Object), "serial");
  assert.equal(await hashOf(odd, "workers"), right);
  // Whoever reads a field for the second time gets another one.
  const changing = withOne(2, (right) => {
    let reads = 0;
    return {
      ...right,
      get ids() {
        return reads++ === 0 ? right.ids : Int32Array.of(99, 99, 99, 99);
      },
    };
  });
  assert.equal(await hashOf(changing, "workers"), right);
});

Deno.test("a run that is told to end does not wait for a micro-batch that never comes", async () => {
  const stop = new AbortController();
  async function* stuck(): AsyncGenerator<Batch, void> {
    for (let i = 0; i < 4; i++) yield batch(i);
    setTimeout(() => stop.abort(), 1);
    await new Promise(() => {});
  }
  const seen = await events({ data: stuck(), runtime: "local", signal: stop.signal });
  const end = seen.at(-1)!;
  assert.ok(end.type === "end" && end.isInterrupted);
  assert.equal(end.steps, 2);
});
