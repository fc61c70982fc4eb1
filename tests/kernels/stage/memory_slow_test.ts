/** The memory of a stage: planned, counted, by the formulas, and with recomputation. */

import assert from "node:assert/strict";
import { atDepth } from "../../depth.ts";
import fc, { forAll } from "../../fast_check.ts";
import { activationBytes, planMemory } from "../../../kernels/stage/memory.ts";
import {
  ADAMW_DEFAULTS,
  compileModel,
  gpt2,
  type Layer,
  openReference,
  type Precision,
  PRECISIONS,
  RECOMPUTE_POLICIES,
} from "../../../kernels/mod.ts";
import { bestRecomputeInterval } from "../../../kernels/stage/activations.ts";
import type { StageOptions } from "../../../kernels/stage/options.ts";
import { checkStageOptions } from "../../../kernels/stage/state.ts";
import { cutIntoStages } from "../../../kernels/compile/layout.ts";
import { elementCount } from "../../../kernels/graph/shapes.ts";
import { flatLength } from "../../../kernels/stage/parameters.ts";
import { openStage } from "../../../kernels/stage/stage.ts";
import { ownMemory } from "../own_memory.ts";
import {
  backward,
  compilingBy,
  compilingOnce,
  drawTokens,
  forward,
  openStages,
} from "./stage_runs.ts";
import { assertPlanned, CONFIG, SGD } from "./suite.ts";
import { assertRefused } from "../graph/refused.ts";

const compile = (precision: Precision, frozen?: (name: string) => boolean, config = CONFIG) =>
  compileModel(gpt2(config, 2), "cheap", { precision, frozen });

const SPLIT = { backward: "split" } as const, NEVER = { backward: "never" } as const;
const WAYS: readonly Partial<StageOptions>[] = [
  ...[{}, { bucketSize: 600 }, { offload: true }, { offload: true, bucketSize: 600 }],
  ...[{ ...SPLIT, recomputeInterval: 2 }, { ...SPLIT, offload: true }, { ...NEVER, versions: 3 }],
];

/** If views are not free, gradients of copies are added on the device. */
const ADDING: readonly Partial<StageOptions>[] = [
  ...[{ addends: 2 }, { addends: 3 }, { addends: 2, collects: true, offload: true }],
];

for (const isOwn of [false, true]) {
  const where = isOwn ? " on a device with separate memory" : "";
  Deno.test(`every byte of a stage is planned${where}`, async () => {
    const reference = compilingOnce(await openReference());
    const device = isOwn ? ownMemory(reference) : reference;
    for (const optimizer of [ADAMW_DEFAULTS, SGD]) {
      const ways = [...WAYS, ...isOwn ? ADDING : []];
      // Except for its single moment, SGD holds the same memory as AdamW.
      const some = optimizer === SGD ? atDepth([WAYS[0]!, WAYS[3]!], ways) : ways;
      for (const precision of PRECISIONS) {
        for (const [i, way] of some.entries()) {
          const frozen = (name: string) => i % 2 === 1 && name.includes("h.0.");
          const what = `${optimizer.kind} ${precision} ${JSON.stringify(way)}`;
          await assertPlanned(device, compile(precision, frozen), { optimizer, ...way }, what);
        }
      }
    }
  });
}

/** Bytes of parameters and optimizer for each trained number, and for each element of a bucket. */
const FORMULAS: Readonly<Record<string, readonly [number, number]>> = {
  ...{ "fp32 adamw": [16, 0], "fp32 adamw offloaded": [8, 8], "fp16 adamw": [16, 4] },
  ...{ "fp16 adamw offloaded": [4, 16], "fp32 sgd": [12, 0], "fp32 sgd offloaded": [8, 4] },
  ...{ "fp16 sgd": [12, 4], "fp16 sgd offloaded": [4, 12] },
};

Deno.test("a stage takes the bytes on the device that the formulas of its precision and optimizer say", () => {
  const bucketSize = 2048, config = { layers: 2, hidden: 32, heads: 2, seq: 8, vocab: 64 };
  for (const [name, [each, ofBucket]] of Object.entries(FORMULAS)) {
    const model = compile(name.startsWith("fp16") ? "fp16" : "fp32", undefined, config);
    const { device } = planMemory(model, {
      ...{ optimizer: name.includes("adamw") ? ADAMW_DEFAULTS : SGD, backward: "whole" },
      ...{ offload: name.endsWith("offloaded"), bucketSize, slots: 1 },
    });
    const { activations: _, other: __, ...parts } = device;
    const held = Object.values(parts).reduce((a, b) => a + b, 0);
    assert.equal(held, each * flatLength(model.parameters) + ofBucket * bucketSize, name);
    // Parameters are padded to 64 bytes, which must not matter.
    const trained = model.parameters.reduce((sum, { shape }) => sum + elementCount(shape), 0);
    assert.ok(flatLength(model.parameters) / trained < 1.05, name);
  }
});

Deno.test("offloaded states and FP32 weights of frozen parameters are counted on the host", () => {
  const program = compile("fp16"), length = flatLength(program.parameters);
  const plan = (model: typeof program, offload: boolean) =>
    planMemory(model, { optimizer: ADAMW_DEFAULTS, backward: "whole", offload, slots: 0 });
  assert.deepEqual(plan(program, true).host, { master: 4 * length, moments: 8 * length });
  assert.deepEqual(plan(program, false).host, { master: 0, moments: 0 });
  const frozen = plan(compile("fp16", (name) => name === "lm_head.weight"), false);
  assert.deepEqual(frozen.host, { master: 4 * 32 * 16, moments: 0 });
  assert.equal(frozen.device.weights, 2 * length);
});

Deno.test("recomputation keeps fewer activations, and FP16 halves them except for FP32 values", () => {
  const kept: number[] = [];
  for (const policy of RECOMPUTE_POLICIES) {
    const [half, whole] = (["fp16", "fp32"] as const).map((precision) => {
      const model = compileModel(gpt2({ ...CONFIG, hidden: 32 }, 2), policy, { precision });
      return planMemory(model, { optimizer: SGD, backward: "whole", slots: 4 }).device;
    });
    assert.equal(half!.weights, whole!.weights / 2);
    const share = half!.activations / whole!.activations;
    assert.ok(share > 0.5 && share < 0.53, `${policy}: ${share}`);
    kept.push(whole!.activations);
  }
  assert.ok(kept[0]! > kept[1]! && kept[1]! > kept[2]!, `none, cheap, full: ${kept}`);
});

Deno.test("a plan for a model of billions of numbers takes no memory", () => {
  const config = { layers: 1, hidden: 16_384, heads: 1, seq: 1, vocab: 2 };
  const options = { optimizer: SGD, backward: "whole", offload: true, slots: 1 } as const;
  assert.ok(planMemory(compile("fp16", undefined, config), options).host.master > 1e10);
});

Deno.test("a bucket larger than the stage is refused where a user asks for it", async () => {
  const device = await openReference(), stages = cutIntoStages(compile("fp32"), 6);
  const options = { optimizer: SGD, backward: "whole" } as const;
  const elements = flatLength([{ shape: [32, 16] }, { shape: [8, 16] }]);
  const stage = await openStage(device, stages[0]!, { ...options, bucketSize: elements });
  assert.deepEqual(stage.buckets, [{ offset: 0, length: elements, isDecayed: true }]);
  await assertRefused("bucket_sizes", [
    ["more", () => openStage(device, stages[0]!, { ...options, bucketSize: elements + 1 })],
    ["a million", () => checkStageOptions(stages[5]!, { ...options, bucketSize: 1e6 })],
    ...[0, 1.5, -1, NaN].map((bucketSize) =>
      [bucketSize, () => planMemory(stages[0]!, { ...options, bucketSize, slots: 1 })] as const
    ),
  ]);
  // Nothing is stepped in a stage that is not trained, so any size is good.
  const [frozen] = cutIntoStages(compile("fp32", () => true), 6);
  await openStage(device, frozen!, { ...options, bucketSize: 1e6 });
});

/** y = tanh(x·w): saves only its output. */
const LAYERS = 12, ROWS = 16, WIDTH = 8;
const uniform: Layer[] = Array.from({ length: LAYERS }, (_, i): Layer => ({
  name: `layer ${i}`,
  build: (g, x) =>
    g.tanh(g.matmul(x ?? g.batch("x", [ROWS, WIDTH]), g.parameter("w", [WIDTH, WIDTH]))),
}));

Deno.test("a worker of equal layers needs what the formula says: G·N/(G·ac) inputs and ac layers", () => {
  const workers = 2, unit = 4 * ROWS * WIDTH;
  const loss: Layer = { name: "loss", build: (g, x) => g.sum(x!, [1]) };
  const model = compileModel({ name: "m", layers: [...uniform, loss], predictions: 1 }, "none");
  // The second half without the loss is the stage of the middle: it has an input and an output.
  const own = { ...model, layers: model.layers.slice(LAYERS / workers, LAYERS) };
  for (const ac of [1, 2, 3, 6]) {
    const whole = activationBytes(own, { backward: "whole", recomputeInterval: ac });
    assert.equal(whole.perMicroBatch, unit * LAYERS / (workers * ac), `interval ${ac}`);
    // Layer by layer the output and its saved copy, but for the output that is kept; and two
    // gradients between layers.
    assert.equal(own.programs[own.layers[0]!.program]!.saved.length, 1);
    assert.equal(whole.shared, unit * (2 * ac + 2), `interval ${ac}`);
  }
});

Deno.test("the best interval has the least of G(N/(G·ac) + 1) + ac, within a worker's layers", async () => {
  const size = fc.integer({ min: 1, max: 200 });
  await forAll(100, [size, size], (layers, workers) => {
    const units = (ac: number) => workers * (layers / (workers * ac) + 1) + ac;
    const best = bestRecomputeInterval(layers, workers), most = Math.ceil(layers / workers);
    assert.ok(best >= 1 && best <= most);
    for (let ac = 1; ac <= most; ac++) assert.ok(units(best) <= units(ac) + 1e-9, `${ac}`);
  });
  assert.equal(bestRecomputeInterval(100, 4), 10);
  assert.throws(() => bestRecomputeInterval(0, 1), /layers must be a positive integer, received 0/);
});

const DEEP = { ...CONFIG, layers: 4 };

/** Stages of ten layers on a device that counts the models that it runs. */
async function openCounted(recomputeInterval: number) {
  const reference = await openReference();
  let runs = 0;
  const device = compilingBy(reference, async (model) => {
    const kernel = await reference.compile(model);
    const bind: typeof kernel.bind = (...bound) => {
      const run = kernel.bind(...bound);
      return () => (runs++, run());
    };
    return { ...kernel, bind };
  });
  const options = { backward: "split", recomputeInterval } as const;
  const stages = await openStages(device, compileModel(gpt2(DEEP, 2), "none"), 1, options);
  const [fields] = drawTokens(1, 2 * DEEP.seq, DEEP.vocab);
  const count = async (action: () => Promise<unknown>) => {
    runs = 0;
    await action();
    return runs;
  };
  return {
    stage: stages[0]!,
    forward: (m: number) => count(() => forward(stages, m, fields!)),
    backward: (m: number, kind: "B" | "I" | "W") => count(() => backward(stages, m, kind)),
    recompute: (m: number) => count(() => stages[0]!.recompute(m)),
  };
}

Deno.test("a backward runs forwards again only where their activations are gone", async () => {
  const { forward, backward } = await openCounted(2);
  assert.equal(await forward(0), 10);
  // Segments [embedding, 0] [1, 2] [3, head], a block being two layers: F has left the last.
  // The head's logits are written over, in two steps, wherever they were computed.
  assert.equal(await backward(0, "B"), 7 + 2 + 10);
  await forward(0);
  await forward(1);
  assert.equal(await backward(0, "B"), 10 + 2 + 10);
  // I has no kernel for the embedding; it leaves the first segment, which W needs last.
  assert.equal(await backward(1, "I"), 10 + 2 + 9);
  assert.equal(await backward(1, "W"), 10 + 2 + 10);
});

Deno.test("a backward does not compute again what R has brought back for its micro-batch", async () => {
  const { stage, forward, backward, recompute } = await openCounted(10);
  await forward(0);
  assert.equal(await recompute(0), 0, "F has left it there");
  await forward(1);
  assert.equal(await recompute(0), 10);
  assert.equal(await recompute(0), 0);
  assert.equal(await backward(0, "B"), 2 + 10);
  assert.equal(await recompute(1), 10);
  await forward(2);
  assert.equal(await backward(1, "B"), 10 + 2 + 10, "F of 2 came between");
  assert.equal(await recompute(2), 10);
  assert.equal(await backward(2, "I"), 2 + 9);
  assert.equal(await backward(2, "W"), 10, "W finds what I has used");
  await assert.rejects(stage.recompute(2), /must have had its F here/);
});

Deno.test("an interval that is not a positive integer is refused", async () => {
  const device = await openReference(), model = compile("fp32");
  const open = (recomputeInterval: number) => openStages(device, model, 1, { recomputeInterval });
  await assertRefused(
    "intervals",
    [0, 1.5, -1].map((interval) => [interval, () => open(interval)]),
  );
});
