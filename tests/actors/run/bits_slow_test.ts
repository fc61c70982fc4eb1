/** Pipelines have the bits of serial runs: models of one's own, layouts, precisions, frozen weights. */

import assert from "node:assert/strict";
import { createSystem, NonFiniteError, train, type TrainOptions } from "../../../actors/mod.ts";
import {
  gpt2,
  type Handed,
  type Model,
  type TokenBatch,
  type Value,
} from "../../../kernels/mod.ts";
import { batchesOf, type Outcome, outcome, type Sizes, SMALL } from "../runs.ts";
import { RINGS, trainRings } from "./own_layers.ts";

type Options = Partial<TrainOptions>;
type Train = (options: Options) => Promise<Outcome>;

/** Trains in a pipeline, and serially with the same bits. */
async function trainTwice(train: Train, options: Options): Promise<Outcome> {
  const run = await train({ runtime: "local", ...options });
  const serial = await train({ ...options, runtime: "serial", faults: [] });
  const { data: _, ...rest } = options;
  assert.deepEqual(run.bits, serial.bits, JSON.stringify(rest));
  assert.ok(run.bits.losses.every(Number.isFinite));
  return run;
}

const rings: Train = (options) =>
  trainRings({ steps: 2, microBatches: 4, learningRate: 0.01, ...options });

Deno.test("layers of one's own have the serial bits under every policy", async () => {
  for (const workers of [2, 3]) {
    for (const schedule of ["gpipe", "1f1b"]) await trainTwice(rings, { workers, schedule });
    for (const pipelineLimit of [1, 2, 4]) {
      for (const order of ["fifo", "backward-first"] as const) {
        const scheduleOptions = { pipelineLimit, order };
        await trainTwice(rings, { workers, schedule: "message-driven", scheduleOptions });
      }
    }
  }
  const threads = { runtime: "workers", workers: 3, schedule: "message-driven" } as const;
  await trainTwice(rings, threads);
  await trainTwice(rings, { ...threads, scheduleOptions: { order: "backward-first" } });
});

Deno.test("the loss of a model of one's own falls", async () => {
  const { bits: { losses } } = await rings({ steps: 60 });
  const mean = (part: number[]) => part.reduce((a, b) => a + b) / part.length;
  assert.ok(mean(losses.slice(-10)) < 0.8 * mean(losses.slice(0, 10)), `${losses}`);
});

Deno.test("a norm of 0 clips nothing, as none does, also where nothing could be clipped", async () => {
  const hashOf = async (options: Options) => (await rings(options)).bits.hash;
  assert.equal(await hashOf({ clip: 0 }), await hashOf({}));
  assert.notEqual(await hashOf({ clip: 0.01 }), await hashOf({}));
  const schedule = "pipedream";
  assert.equal(await hashOf({ schedule, clip: 0 }), await hashOf({ schedule }));
});

/** Three of the five layers have the weight of the second. */
const TIED: Model = {
  ...RINGS,
  ties: [["b.weight", "c.weight"], ["b.weight", "d.weight"]],
};

/** The same as one layer, in which that weight is a parameter that is used three times. */
const JOINED: Model = {
  name: "joined",
  layers: [{
    name: "all",
    prefix: "",
    build(g) {
      const declare = g.parameter.bind(g);
      let x: Handed | undefined, weight: Value | undefined;
      for (const layer of RINGS.layers) {
        g.parameter = (name, shape, initializer) => {
          if (name !== "weight" || !["b", "c", "d"].includes(layer.name)) {
            return declare(`${layer.name}.${name}`, shape, initializer);
          }
          return weight ??= declare("b.weight", shape, initializer);
        };
        x = layer.build(g, x);
      }
      return x as Value;
    },
  }],
  predictions: RINGS.predictions,
};

const learnt = (model: Model, options: Options) =>
  rings({ model, steps: 3, learningRate: 0.05, device: "native", ...options });

for (
  const options of [
    { schedule: "1f1b", workers: 4, clip: 0.1 },
    { schedule: "chimera", workers: 2, replicas: 2 },
    { schedule: "zb-v", workers: 2, runtime: "workers" },
    { schedule: "1f1b", workers: 2, precision: "fp16" },
    { schedule: "gpipe", workers: 1 },
  ] satisfies Options[]
) {
  Deno.test(`three layers with one weight have the bits of the serial run under ${JSON.stringify(options)}`, async () => {
    await trainTwice((more) => learnt(TIED, more), options);
  });
}

Deno.test("three layers with one weight learn what one layer learns that uses it three times", async () => {
  const tied = await learnt(TIED, { runtime: "serial" });
  const joined = await learnt(JOINED, { runtime: "serial", workers: 1 });
  const namesOf = ({ end }: Outcome) => [...end.weights.keys()].toSorted();
  assert.deepEqual(namesOf(tied), namesOf(joined));
  await using system = createSystem(); // of such a run messages have all weights
  const gathered = await learnt(TIED, { workers: 3, system });
  assert.deepEqual(namesOf(gathered), namesOf(joined));
  assert.equal(gathered.bits.hash, tied.bits.hash);
  for (const key of ["losses", "norms"] as const) {
    for (const [i, value] of tied.bits[key].entries()) {
      const error = Math.abs(value / joined.bits[key][i]! - 1);
      assert.ok(error < 1e-5, `${key}, step ${i + 1}: ${error}`);
    }
  }
});

const THREE: Sizes = { ...SMALL, layers: 3, hidden: 16, seq: 8, microBatches: 4, steps: 3 };

const laidOut: Train = (options) =>
  outcome(THREE, { device: "native", workers: 2, schedule: "1f1b", runtime: "local", ...options });

Deno.test("stages are those of the layout, and the plan says it; without one they are of equal work", async () => {
  const { plan } = await laidOut({ layout: "E,.5|2.5,H", steps: 1 });
  assert.equal(plan.layout, "E,0.5|2.5,H");
  assert.deepEqual(plan.stages.map(({ layers }) => layers), [
    ["embedding", "block 0 attention"],
    ["block 0 mlp", "block 1", "block 2", "head"],
  ]);
  const [auto, none] = [await laidOut({ layout: "auto", steps: 1 }), await laidOut({ steps: 1 })];
  assert.equal(auto.plan.layout, none.plan.layout);
});

Deno.test("weights have the same bits in every layout, on every runtime, and after a failure", async () => {
  const faults = [{ worker: 1, afterActions: 12, kind: "throw" }] as const;
  for (
    const options of [
      { layout: "E|3,H" },
      { layout: "E,3|H", clip: 0.1 },
      { layout: "E|.5|2,.5|H", workers: 4, schedule: "zb-h1" },
      { layout: "E,1|1|.5|.5,H", schedule: "interleaved" },
      { layout: "E,1|1|.5|.5,H", workers: 4, schedule: "chimera" },
      { layout: "E,2|1,H", runtime: "workers", faults },
    ] satisfies Options[]
  ) await trainTwice(laidOut, options);
});

Deno.test("without flushes a layout decides how old weights are, in the pipeline and in the serial run", async () => {
  const [one, other] = [
    await trainTwice(laidOut, { schedule: "pipedream", layout: "E|3,H" }),
    await trainTwice(laidOut, { schedule: "pipedream", layout: "E,3|H" }),
  ];
  assert.notDeepEqual(one.bits, other.bits);
});

Deno.test("a layout of another model or schedule is refused before anything runs", async () => {
  await assert.rejects(laidOut({ layout: "E,2|2,H" }), {
    name: "RangeError",
    message:
      'Cannot use the layout "E,2|2,H": its stages must have all that the model has in order, E,3,H, received E,4,H',
  });
  await assert.rejects(laidOut({ layout: "E,3,H" }), /as many as the schedule has, 2, received 1$/);
  await assert.rejects(laidOut({ layout: 3 as never }), TypeError);
});

const DEEP: Sizes = { ...SMALL, layers: 4, microBatches: 4 };

const deep: Train = (options) => outcome(DEEP, { device: "native", ...options });

Deno.test("FP16 runs of every kind of schedule have the bits of their serial runs", async () => {
  const half = { workers: 2, replicas: 2, precision: "fp16" } as const;
  for (const schedule of ["1f1b", "chimera", "zb-h1"]) {
    await trainTwice(deep, { ...half, schedule });
  }
  await trainTwice(deep, { ...half, schedule: "chimera", runtime: "workers" });
});

Deno.test("losses of FP16 stay within 2e-3 of those of FP32 over 50 steps", async () => {
  const sizes = { ...DEEP, microBatches: 2, steps: 50 };
  const options = { device: "native", workers: 2, schedule: "1f1b", runtime: "local" } as const;
  const exact = await outcome(sizes, options);
  const half = await outcome(sizes, { ...options, precision: "fp16", lossScale: 1024 });
  assert.equal(half.bits.losses.length, 50);
  const distances = half.bits.losses.map((loss, i) => Math.abs(loss / exact.bits.losses[i]! - 1));
  for (const [i, distance] of distances.entries()) {
    assert.ok(distance <= 2e-3, `step ${i + 1}: ${distance}`);
  }
  // Two losses may be equal by chance.
  assert.ok(distances.filter((distance) => distance === 0).length <= 2, `${distances}`);
});

/** The steps of a run in FP16, skipped or not, until its end or an error. */
async function scaled(options: Options) {
  const steps: string[] = [], { steps: count = 30 } = options;
  const run = train({
    ...{ model: gpt2(SMALL, SMALL.microBatch), data: batchesOf(SMALL, 2 * count) },
    ...{ steps: count, microBatches: 2, workers: 2, schedule: "chimera", device: "native" },
    ...{ runtime: "local", precision: "fp16", ...options },
  });
  try {
    for await (const event of run) {
      if (event.type === "skip") steps.push(`skip ${event.lossScale}`);
      if (event.type === "step") steps.push("step");
    }
    return { steps };
  } catch (error) {
    return { steps, error };
  }
}

Deno.test("a dynamic loss scale begins where nothing overflows here, and a static one stays", async () => {
  const { steps } = await scaled({ steps: 6 });
  assert.deepEqual(steps, new Array(6).fill("step"), "65,536 is no overflow here");
  const tooHigh = await scaled({ steps: 3, lossScale: 2 ** 30 });
  assert.deepEqual(tooHigh.steps, new Array(3).fill("skip 1073741824"));
});

Deno.test("a scale that overflows in twenty steps in a row ends the run with the reason", async () => {
  const { steps, error } = await scaled({ lossScale: 2 ** 30 });
  assert.equal(steps.length, 19);
  assert.ok(error instanceof NonFiniteError);
  assert.match(error.message, /^Cannot take step 20 after 19 skipped steps: /);
});

Deno.test("frozen parameters stay as they were, whole stages of them too, and the others learn", async () => {
  // The embedding and the first two blocks: all of the first stage, and a part of the second.
  const frozen = (name: string) => /wte|wpe|h\.[01]\./.test(name);
  const before = await deep({ runtime: "serial", steps: 1, learningRate: 0 });
  for (const schedule of ["1f1b", "chimera", "zb-h1"]) {
    const { end } = await trainTwice(deep, { schedule, workers: 4, frozen, steps: 3 });
    for (const [name, values] of end.weights) {
      const first = before.end.weights.get(name)!;
      assert.equal(values.every((value, i) => value === first[i]), frozen(name), name);
    }
  }
});

/** Micro-batches whose samples end early, each at another place: -1 is no target. */
function* uneven(count: number): Generator<TokenBatch> {
  const { seq } = DEEP;
  for (const [m, { ids, targets }] of batchesOf(DEEP, count).entries()) {
    yield { ids, targets: targets.map((id, i) => i % seq < seq - (m % 5) ? id : -1) };
  }
}

Deno.test("micro-batches of different lengths count by their tokens", async () => {
  const count = 2 * DEEP.microBatches, data = [...uneven(2 * count)];
  // Another way to the first loss: each micro-batch alone, weighted by its targets.
  let sum = 0, predicted = 0;
  for (const batch of data.slice(0, count)) {
    const alone = { data: [batch], microBatches: 1, steps: 1, runtime: "serial" } as const;
    const targets = batch.targets.filter((target) => target >= 0).length;
    sum += (await deep(alone)).bits.losses[0]! * targets;
    predicted += targets;
  }
  for (const schedule of ["1f1b", "chimera"]) {
    const { bits } = await trainTwice(deep, { schedule, workers: 2, replicas: 2, data });
    assert.ok(Math.abs(bits.losses[0]! / (sum / predicted) - 1) < 1e-6);
  }
});

/** Few rows and a wide head: a product's columns are cut where its threads are, and with them its sums. */
const NARROW: Sizes = { ...SMALL, hidden: 128, heads: 2, seq: 33, microBatch: 1, vocab: 1025 };

Deno.test("workers with several threads have the bits of a serial run with as many", async () => {
  const narrow: Train = (options) => outcome(NARROW, { device: "native", ...options });
  const options = { workers: 2, schedule: "1f1b", threads: 2 } as const;
  await trainTwice(narrow, options);
  await trainTwice(narrow, { ...options, runtime: "workers" });
  // They compute beside each other in one process, whichever opens first.
  const runs = [1, 4, 2, 1].map((threads) => narrow({ runtime: "serial", threads, steps: 1 }));
  const [first, , , last] = await Promise.all(runs);
  assert.deepEqual(first!.bits, last!.bits);
});
