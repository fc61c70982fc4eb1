/** The weights of a stage: frozen weights, weights in several versions, weights on the host. */

import assert from "node:assert/strict";
import {
  compileModel,
  type Device,
  gpt2,
  type Layer,
  type LayerGraph,
  type Model,
  openReference,
  type Value,
} from "../../../kernels/mod.ts";
import { cutIntoStages } from "../../../kernels/compile/layout.ts";
import { openStage, type Stage } from "../../../kernels/stage/stage.ts";
import type { StageOptions } from "../../../kernels/stage/options.ts";
import type { StageState } from "../../../kernels/stage/state.ts";
import { assertClose } from "./pytorch.ts";
import {
  assertSameBits,
  drawTokens,
  drawWeights,
  openStages,
  sharedDevices,
  train,
} from "./stage_runs.ts";
import { BATCHES, isFrozen, MODEL, SGD, STAGES } from "./suite.ts";

const open = sharedDevices(["native", "reference"]);

Deno.test("frozen parameters are listed with the others, and given back as they were in FP16, too", async () => {
  const program = compileModel(MODEL, "none", { frozen: isFrozen, precision: "fp16" });
  const names = program.parameters.map(({ name, isFrozen }) => [name, isFrozen]);
  const all = compileModel(MODEL, "none").parameters;
  assert.deepEqual(names, all.map(({ name }) => [name, isFrozen(name)]));
  const first = drawWeights(program);
  for (const stage of await openStages(open("reference"), program, STAGES)) {
    for (const [name, values] of (await stage.save()).weights) {
      if (isFrozen(name)) assert.deepEqual(values, first.get(name), name);
    }
  }
});

Deno.test("a frozen stage has no memory for gradients and moments, and no kernel for W", async () => {
  const program = compileModel(MODEL, "none", { frozen: () => true });
  for (const { programs } of cutIntoStages(program, STAGES)) {
    assert.ok(programs.every(({ models }) => models.weight === undefined));
  }
  const device = await openReference();
  const [whole] = await openStages(device, program, 1, { backward: "never" });
  const { weights, moments } = await whole!.save();
  const bytes = [...weights.values()].reduce((sum, { byteLength }) => sum + byteLength, 0);
  assert.equal(moments.size, 0);
  assert.equal(whole!.buckets.length, 0);
  assert.deepEqual(await whole!.gradientSquares(), new Map());
  // The losses of two samples, the loss scale, and the scalars of AdamW for two sorts of tensors.
  assert.equal(device.allocatedBytes, bytes + 64 + 4 + 2 * 4 * 4);
});

Deno.test("a frozen parameter of a layer may be unused", () => {
  const build = (g: LayerGraph) => {
    g.parameter("unused", [3]);
    return g.sum(g.batch("x", [2, 3]), [1]);
  };
  const model = { name: "lazy", layers: [{ name: "lazy", build }], predictions: 2 };
  assert.throws(() => compileModel(model, "none"), /received "unused" unused/);
  const { programs } = compileModel(model, "none", { frozen: () => true });
  assert.equal(programs[0]!.models.backward, undefined);
});

Deno.test("a stopped gradient changes no value, and weights before it are not trained", async () => {
  const programOf = (stop: (g: LayerGraph, x: Value) => Value) => {
    const layers: Layer[] = [
      { name: "first", build: (g) => g.mul(g.batch("x", [2, 4]), g.parameter("w", [4])) },
      { name: "head", build: (g, x) => g.mul(stop(g, x!), g.parameter("w", [4])) },
      { name: "loss", build: (g, x) => g.sumOfSquares(x!, [1]) },
    ];
    return compileModel({ name: "m", layers, predictions: 2 }, "none");
  };
  const stopping = programOf((g, x) => g.stopGradient(x)), plain = programOf((_, x) => x);
  const batch = { x: Float32Array.from({ length: 8 }, (_, i) => i) };
  for (const device of ["native", "reference"]) {
    for (const backward of ["whole", "split"] as const) {
      const [stopped, all] = await Promise.all([stopping, plain].map(async (program) => {
        const stages = await openStages(open(device), program, 1, { backward });
        return { stage: stages[0]!, results: await train(stages, [batch], backward) };
      }));
      all!.results.delete("first.w");
      assertSameBits(stopped!.results, all!.results, `${device} ${backward}`);
      stopped!.stage.beginStep(1, 0.1, 1);
      for (const bucket of stopped!.stage.buckets.keys()) await stopped!.stage.stepBucket(bucket);
      const { weights } = await stopped!.stage.save(), drawn = drawWeights(stopping);
      assert.deepEqual(weights.get("first.w"), drawn.get("first.w"));
      assert.notDeepEqual(weights.get("head.w"), drawn.get("head.w"));
    }
  }
});

Deno.test("integers may pass between layers, where no gradient flows", async () => {
  const layers: Layer[] = [
    { name: "ids", build: (g) => g.reshape(g.batch("ids", [2, 3], "i32"), [6]) },
    { name: "same", build: (g, x) => g.reshape(x!, [6]) },
    { name: "table", build: (g, x) => g.gather(g.parameter("w", [5, 4]), x!) },
    { name: "loss", build: (g, x) => g.sumOfSquares(g.reshape(x!, [2, 12]), [1]) },
  ];
  const program = compileModel({ name: "m", layers, predictions: 2 }, "none");
  const weights = drawWeights(program).get("table.w")!, uses = [3, 2, 0, 0, 1];
  for (const backward of ["whole", "split"] as const) {
    const stages = await openStages(open("reference"), program, 1, { backward });
    const results = await train(stages, [{ ids: Int32Array.of(0, 1, 1, 4, 0, 0) }], backward);
    const wanted = new Map([["", weights.map((w, i) => 2 * w * uses[Math.floor(i / 4)]!)]]);
    assertClose(new Map([["", results.get("table.w")!]]), wanted, 1e-6);
  }
});

Deno.test("buckets of an offloaded stage can be stepped in any order", async () => {
  const options = { offload: true, bucketSize: 512 };
  const run = async (turn: <T>(order: T[]) => T[]) => {
    const [stage] = await openStages(open("reference"), compileModel(MODEL, "none"), 1, options);
    await train([stage!], BATCHES.slice(3), "whole");
    stage!.beginStep(1, 0.01, 1);
    for (const bucket of turn([...stage!.buckets.keys()])) await stage!.stepBucket(bucket);
    return new Map((await stage!.save()).weights);
  };
  assertSameBits(await run((order) => order.reverse()), await run((order) => order), "weights");
});

for (const precision of ["fp32", "fp16"] as const) {
  Deno.test(`a scan in ${precision} sees all gradients, or all weights and moments, in order`, async () => {
    // The table is longer than a piece.
    const sizes = { layers: 1, hidden: 36, heads: 2, seq: 4, vocab: 4000 };
    const frozen = (name: string) => name.includes("c_attn");
    const model = compileModel(gpt2(sizes, 1), "none", { precision, frozen });
    const [stage] = await openStages(open("native"), model, 1);
    await train([stage!], drawTokens(1, 4, 4000), "whole");
    await stage!.optimize(1, 0.01);
    const scan = async (what: "gradients" | "state") => {
      const seen: number[][] = [];
      await stage!.scan(what, (piece) => seen.push([...piece]));
      return seen.flat();
    };
    const { offset, length } = stage!.buckets.at(-1)!, { weights, moments } = await stage!.save();
    // The difference of long arrays would take minutes to print.
    const assertSame = (seen: readonly number[], all: readonly number[]) => {
      assert.equal(seen.length, all.length);
      assert.equal(seen.findIndex((value, i) => value !== all[i]), -1);
    };
    assertSame(await scan("gradients"), [...await stage!.readGradients(0, offset + length)]);
    const state = [...weights].flatMap(([name, values]) => {
      const own = [...moments].filter(([key]) => key.startsWith(`${name}.`));
      return [values, ...own.map(([, moment]) => moment)].flatMap((one) => [...one]);
    });
    assertSame(await scan("state"), state);
  });
}

const SMALL: Model = gpt2({ layers: 1, hidden: 16, heads: 2, seq: 4, vocab: 16 }, 2);
const TOKENS = drawTokens(4, 8, 16);

async function openVersions(device: Device, options: Partial<StageOptions>, state?: StageState) {
  const { precision } = options, model = compileModel(SMALL, "none", { precision });
  const way = { optimizer: SGD, backward: "whole", ...options } as const;
  const stage = await openStage(device, model, way);
  stage.load(state ?? { weights: drawWeights(model), moments: new Map() });
  return stage;
}

/** The gradients that the backward of one micro-batch leaves. */
async function backwardAlone(stage: Stage, m: number) {
  stage.zeroGradients();
  await stage.backward(m, "B", undefined, 1 / 8);
  const { offset, length } = stage.buckets.at(-1)!;
  return await stage.readGradients(0, offset + length);
}

const forward = (stage: Stage, m: number, age = 0) =>
  stage.forward(m, undefined, TOKENS[m]!, undefined, age);

/** Options that are combined with versions: storage, optimizer step and reads of weights. */
const HALF = { precision: "fp16" } as const,
  VERSIONED: readonly Partial<StageOptions>[] = [
    ...[{}, { offload: true }, HALF, { ...HALF, offload: true }, { recomputeInterval: 1 }],
  ];

for (const options of VERSIONED) {
  Deno.test(`a backward has the weights of its forward, whatever was updated since ${JSON.stringify(options)}`, async () => {
    const stage = await openVersions(open("native"), { ...options, versions: 2 });
    /** The gradients of a stage that has only these weights. */
    const expected = async (m: number, at: StageState) => {
      const alone = await openVersions(open("native"), options, at);
      await forward(alone, m);
      return await backwardAlone(alone, m);
    };
    const first = await stage.save();
    await forward(stage, 0);
    await forward(stage, 1);
    await backwardAlone(stage, 0);
    assert.equal(stage.weightVersions, 1);
    await stage.optimize(1, 0.1);
    assert.equal(stage.weightVersions, 2);
    const second = await stage.save();
    assert.notDeepEqual(second.weights, first.weights);
    await forward(stage, 2);
    assert.deepEqual(await backwardAlone(stage, 1), await expected(1, first));
    assert.equal(stage.weightVersions, 1);
    // On request, also a new micro-batch has the weights before the newest.
    await forward(stage, 3, 1);
    assert.deepEqual(await backwardAlone(stage, 3), await expected(3, first));
    assert.deepEqual(await backwardAlone(stage, 2), await expected(2, second));
  });
}

Deno.test("updates with versions have the bits of updates in place", async () => {
  const device = open("native");
  const stages = [await openVersions(device, {}), await openVersions(device, { versions: 3 })];
  for (let step = 1; step <= 5; step++) {
    for (const stage of stages) {
      await forward(stage, step % 4);
      await backwardAlone(stage, step % 4);
      await stage.optimize(step, 0.1);
    }
    const [plain, versioned] = await Promise.all(stages.map((stage) => stage.save()));
    assert.deepEqual(versioned, plain);
  }
  await assert.rejects(() => forward(stages[1]!, 0, 3), /at most 2 updates old, received 3/);
});

Deno.test("an update with all versions in use is refused, as are weights that are not kept", async () => {
  const stage = await openVersions(open("reference"), { versions: 2 });
  await forward(stage, 0);
  await stage.optimize(1, 0.1);
  // The newest weights are never written over, even where no micro-batch uses them.
  const newest = await stage.save();
  const update = () => stage.optimize(2, 0.1);
  const sentence = "Cannot update weights: one of 2 versions must be free, received all in use";
  const message = new RegExp(`^RangeError: ${sentence}$`);
  await assert.rejects(update, message);
  assert.deepEqual(await stage.save(), newest);
  await forward(stage, 1);
  await assert.rejects(update, message);
  const old =
    /^RangeError: Cannot use old weights: they must be at most 1 updates old, received 2$/;
  await assert.rejects(() => forward(stage, 2, 2), old);
  await backwardAlone(stage, 0);
  await stage.optimize(2, 0.1);
});
