/** Lion, groups of parameters and averages of weights in whole runs. */

import assert from "node:assert/strict";
import { readCheckpoint } from "../../../actors/checkpoints/read.ts";
import type { TrainOptions } from "../../../actors/options/train_options.ts";
import { compileModel, gpt2 } from "../../../kernels/mod.ts";
import { initialValues } from "../../../kernels/internal.ts";
import { join } from "node:path";
import { atDepth } from "../../depth.ts";
import { folderTest } from "../../in_folder.ts";
import { batchesOf, eventsOf, outcome, type Sizes, SMALL, trainTwice } from "../runs.ts";
import { assertRefused } from "../../kernels/graph/refused.ts";

const SIZES: Sizes = { ...SMALL, hidden: 16, seq: 8, vocab: 32, microBatches: 4, steps: 4 };

const FROZEN = { match: "*.wpe.weight", frozen: true };
const OPTIMIZER = {
  kind: "lion",
  weightDecay: 0.1,
  ema: 0.6,
  groups: [FROZEN, { match: "*.ln_*", rate: 0.5, weightDecay: 0.2 }],
} as const;

const ADAFACTOR = { ...OPTIMIZER, kind: "adafactor" } as const;

const HELD_OUT = batchesOf({ ...SIZES, steps: 1 }, 3);

const EVALUATION = { every: 2, batches: HELD_OUT, ema: true, atStart: true };

async function run(options: Partial<TrainOptions> = {}) {
  const found = await outcome(SIZES, {
    ...{ optimizer: OPTIMIZER, evaluation: EVALUATION, learningRate: 0.01, clip: 0.5 },
    ...{ device: "native", runtime: "serial" },
    ...options,
  });
  const losses = eventsOf(found.events, "evaluation").map(({ step, loss }) => [step, loss]);
  return { ...found, bits: { ...found.bits, evaluations: losses } };
}

Deno.test("groups and averages have the bits of the serial run, and frozen weights stay", async () => {
  const { bits, end } = await run();
  assert.equal(bits.evaluations.length, 3);
  const name = "transformer.wpe.weight";
  const { spec } = compileModel(gpt2(SIZES, 1), "none").parameters.find((one) =>
    one.name === name
  )!;
  assert.deepEqual(end.weights.get(name), initialValues(spec, name, 1));
  for (const schedule of ["1f1b", "zb-h1", "message-driven"]) {
    const found = await run({ runtime: "local", workers: 2, schedule });
    assert.deepEqual(found.bits, bits, schedule);
  }
  const faults = [{ worker: 1, afterActions: 14, kind: "throw" }] as const;
  const more: Partial<TrainOptions>[] = [
    { replicas: 2, precision: "fp16" },
    { schedule: "chimera", offload: true },
    { bucketSize: 100, sync: "eager-opt" },
    { faults },
    { optimizer: { ...OPTIMIZER, kind: "adamw" } },
    { optimizer: ADAFACTOR, replicas: 2, precision: "fp16", schedule: "1f1b", bucketSize: 100 },
    { optimizer: ADAFACTOR, schedule: "chimera", offload: true, sync: "eager-opt" },
    { optimizer: ADAFACTOR, schedule: "1f1b", buddy: true, faults },
  ];
  for (const options of more.slice(0, atDepth(-1, Infinity))) {
    await trainTwice(run, { ...options, workers: 2 });
  }
});

folderTest("averages evaluate as a model with them, also after a resume", async (directory) => {
  const whole = await run(), checkpoint = { directory };
  await run({ steps: 2, checkpoint, runtime: "local", workers: 2, schedule: "1f1b" });
  const resume = (await readCheckpoint(directory))!, { weights, moments } = resume.state;
  const averages = new Map(
    Array.from(weights, ([name, own]) => [name, moments.get(`${name}.ema`) ?? own]),
  );
  const plain = { every: 9, batches: HELD_OUT, atStart: true };
  const same = await run({ weights: averages, steps: 1, evaluation: plain });
  assert.equal(same.bits.evaluations[0]![1], whole.bits.evaluations[1]![1]);
  const newest = await run({ weights, steps: 1, evaluation: plain });
  assert.notEqual(newest.bits.evaluations[0]![1], whole.bits.evaluations[1]![1]);
  const factored = { optimizer: ADAFACTOR, checkpoint: { directory: join(directory, "factored") } };
  const { bits } = await run({ ...factored, steps: 2, runtime: "local", workers: 2 });
  const half = (await readCheckpoint(factored.checkpoint.directory))!;
  assert.deepEqual(half.shapes.moments.get("transformer.wte.weight.col_var"), [SIZES.hidden]);
  const ended = await run({ ...factored, resume: half, checkpoint: undefined });
  assert.equal(ended.bits.hash, (await run({ optimizer: ADAFACTOR })).bits.hash);
  assert.notEqual(bits.hash, ended.bits.hash);
  const rest = await run({ resume, runtime: "local", workers: 3, schedule: "zb-h1" });
  assert.equal(rest.bits.hash, whole.bits.hash);
  assert.deepEqual(rest.bits.evaluations.at(-1), whole.bits.evaluations.at(-1));
  const { ema: _, ...without } = OPTIMIZER;
  await assert.rejects(run({ resume, optimizer: without, evaluation: plain }), /moments of lion/);
});

Deno.test("averages and groups that do not fit are refused", async () => {
  const { ema: _, ...without } = OPTIMIZER;
  const data = batchesOf(SIZES), model = gpt2({ ...SIZES, tie: true }, SIZES.microBatch);
  const optimizer = { groups: [{ match: "lm_head.*", rate: 2 }] };
  const misspelt = { ...OPTIMIZER, groups: [FROZEN, { match: "*.layernorm*", rate: 2 }] };
  await assertRefused("optimizers", [
    () => run({ optimizer: without }),
    () => run({ schedule: "pipedream", clip: 0 }),
    () => run({ model, data, optimizer, evaluation: undefined } as never),
    () => run({ optimizer: misspelt }),
  ]);
});
