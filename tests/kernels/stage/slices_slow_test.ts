/** Slices of a sequence: losses and gradients are those of the whole, whatever is kept or split. */

import assert from "node:assert/strict";
import { activationBytes, planMemory } from "../../../kernels/stage/memory.ts";
import {
  ADAMW_DEFAULTS,
  type Batch,
  compileModel,
  type CompileOptions,
  type Device,
  gpt2,
  type Gpt2Config,
  type Layer,
  mlp,
  type Model,
  RECOMPUTE_POLICIES,
} from "../../../kernels/mod.ts";
import { type DropoutKey, openMask } from "../../../kernels/layers/dropout.ts";
import { sliceBatch } from "../../../kernels/batch.ts";
import type { Stage } from "../../../kernels/stage/stage.ts";
import { atDepth } from "../../depth.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";
import { assertClose } from "./pytorch.ts";
import {
  assertSameBits,
  backward,
  drawTokens,
  forward,
  gradientsOf,
  openStages,
  sharedDevices,
} from "./stage_runs.ts";
import { assertRefused } from "../graph/refused.ts";

const CONFIG: Gpt2Config = { layers: 2, hidden: 16, heads: 2, seq: 12, vocab: 32 };
const SAMPLES = 2, KEY: DropoutKey = { seed: 7, step: 3, microBatch: 5 };

const tokensOf = ({ seq, vocab }: Gpt2Config) => drawTokens(2, SAMPLES * seq, vocab);

/**
 * Losses by sample and gradients of micro-batches, all in flight at a time: forwards first slice first,
 * backwards last slice first, W immediately or later.
 */
async function trainSlices(
  stages: readonly Stage[],
  batches: readonly Batch[],
  slices: number,
  kind: "whole" | "split" | "split at once",
  key?: DropoutKey,
) {
  const results = new Map<string, Float32Array>(), slicing = { slices, samples: SAMPLES };
  for (const [m, fields] of batches.entries()) {
    const sum = new Float32Array(SAMPLES);
    for (let s = 0; s < slices; s++) {
      const own = sliceBatch(fields, slicing, s);
      const dropout = key && { ...key, microBatch: m };
      const losses = await forward(stages, m * slices + s, own, dropout);
      losses.forEach((loss, i) => sum[i]! += loss);
    }
    results.set(`loss ${m}`, sum);
  }
  const ordered = [...batches.keys()].flatMap((m) =>
    Array.from({ length: slices }, (_, s) => m * slices + slices - 1 - s)
  );
  for (const one of ordered) {
    await backward(stages, one, kind === "whole" ? "B" : "I");
    if (kind === "split at once") await backward(stages, one, "W");
  }
  if (kind === "split") { for (const one of ordered) await backward(stages, one, "W"); }
  for (const [name, gradient] of await gradientsOf(stages)) results.set(name, gradient);
  return results;
}

/** Compares slices with the whole sequence, relative to its norm, because the terms are summed in another order. */
async function assertWhole(
  device: Device,
  config: Gpt2Config,
  some: readonly number[],
  count: number,
  options: CompileOptions = {},
  tolerance = 1e-5,
): Promise<void> {
  const model = gpt2(config, SAMPLES), key = config.dropout ? KEY : undefined;
  const tokens = tokensOf(config);
  const whole = await openStages(device, compileModel(model, "none", options), count);
  const expected = await trainSlices(whole, tokens, 1, "whole", key);
  for (const slices of some) {
    const cut = compileModel(model, "none", { ...options, slices });
    const stages = await openStages(device, cut, count);
    const received = await trainSlices(stages, tokens, slices, "whole", key);
    assertClose(received, expected, tolerance, `${slices} slices:`);
  }
}

const open = sharedDevices(ISOLATE_DEVICES);

for (const name of ISOLATE_DEVICES) {
  const some = atDepth([3], [2, 3, 12]);
  Deno.test(`slices on ${name} have the losses and gradients of the whole sequence`, async () => {
    const ways = [{ tie: true, dropout: 0.3 }, { headSlices: 3 }];
    for (const way of name === "native" ? ways : atDepth(ways.slice(1), ways)) {
      await assertWhole(open(name), { ...CONFIG, ...way }, some, 2);
    }
    // In FP16 within its precision.
    if (name !== "wasm") await assertWhole(open(name), CONFIG, [3], 1, { precision: "fp16" }, 1e-2);
  });

  Deno.test(`recomputation and the split change no bit of slices on ${name}, in the planned memory`, async () => {
    const config = { ...CONFIG, dropout: 0.2 }, tokens = tokensOf(config), slices = 3;
    const ways = RECOMPUTE_POLICIES.flatMap((policy) =>
      (["whole", "split", "split at once"] as const).flatMap((kind) =>
        [undefined, 1].map((interval) => ({ policy, kind, interval }))
      )
    );
    let expected: ReadonlyMap<string, Float32Array> | undefined;
    const step = name === "native" ? 2 : 5;
    for (const { policy, kind, interval } of ways.filter((_, i) => i % atDepth(step, 1) === 0)) {
      const program = compileModel(gpt2(config, SAMPLES), policy, { slices });
      const options = {
        backward: kind === "whole" ? kind : "split",
        ...interval && { recomputeInterval: interval },
      } as const;
      const stages = await openStages(open(name), program, 1, options);
      const received = await trainSlices(stages, tokens, slices, kind, KEY);
      const what = `${policy}, ${kind}, interval ${interval}`;
      assertSameBits(received, expected ??= received, what);
      // If each W follows its I immediately, one backward at a time has memory.
      const most = kind === "split" ? 2 : 1;
      const slots = { slices: [2, 2, 2], backwards: [most, most, most], contexts: 2 };
      const planned = planMemory(program, { ...options, optimizer: ADAMW_DEFAULTS, slots });
      assert.deepEqual(stages[0]!.memory, planned, what);
    }
  });
}

// Parts of 96 queries, slices of 64: parts of 32 are within both.
Deno.test("slices have the dropout of the whole where attention is taken in parts, too", () => {
  const config = { ...CONFIG, layers: 1, seq: 192, hidden: 8, dropout: 0.4 };
  return assertWhole(open("native"), config, atDepth([3], [2, 3, 6]), 1);
});

Deno.test("the mask of a slice is that of the whole sequence, cut, wherever a piece of it begins", () => {
  const mask = (shape: readonly number[]) =>
    ({ name: "mask.0", dtype: "f32", shape, probability: 0.5 }) as const;
  const whole = new Float32Array(2 * 12 * 5), slicing = { slices: 3, samples: 2 };
  openMask(mask([24, 5]), "a", KEY)(whole, 0);
  for (let index = 0; index < 3; index++) {
    const own = new Float32Array(2 * 4 * 5);
    const fill = openMask(mask([8, 5]), "a", KEY, { index, count: 3, samples: 2 });
    fill(own, 0);
    assert.deepEqual(own, sliceBatch({ whole }, slicing, index).whole);
    const piece = new Float32Array(20);
    fill(piece, 13);
    assert.deepEqual(piece, own.subarray(13, 33));
  }
});

Deno.test("layers that carry nothing share a program for all slices", () => {
  const { programs, layers } = compileModel(gpt2(CONFIG, SAMPLES), "none", { slices: 3 });
  // Embedding, attention and MLP of two blocks, head.
  assert.deepEqual(layers.map(({ slices }) => new Set(slices).size), [3, 3, 1, 3, 1, 1]);
  assert.equal(programs.length, 8);
});

Deno.test("slices keep their own activations, and the keys and values of a micro-batch once", () => {
  const { hidden, seq, layers } = CONFIG, slices = 3;
  const options = { backward: "whole", recomputeInterval: 1 } as const;
  const program = compileModel(gpt2(CONFIG, SAMPLES), "full", { slices });
  const { perSlice, perContext, perMicroBatch } = activationBytes(program, options);
  // Keys and values of all slices but the last, and their gradients.
  assert.equal(perContext, 4 * layers * 2 * 2 * SAMPLES * hidden * seq * 2 / 3);
  const bytes = perSlice!.reduce((sum, one) => sum + one.perMicroBatch, perContext!);
  assert.equal(bytes, perMicroBatch);
});

Deno.test("a model that cannot be cut into slices is refused by name", () => {
  const own = (build: Layer["build"]): Model => {
    const layers = [{ name: "own", build }];
    return { name: "mine", layers, samples: 2, predictions: 1, withSlices: () => layers };
  };
  const whole = own((g) => g.sum(g.mul(g.batch("x", [4, 2]), g.parameter("w", [2])), [1]));
  const grown = own((g) => {
    const { index, count } = g.part, x = g.batch("x", [4 / count, 2]);
    return g.sum(g.gemm(x, g.parameter("w", [2, index + 1])), [1]);
  });
  const models: Readonly<Record<string, Model>> = {
    "no sequences": mlp({ inputs: 2, hidden: 4, layers: 1, classes: 3 }, 1),
    "5 tokens": gpt2({ ...CONFIG, seq: 5 }, SAMPLES),
    "a whole field": whole,
    "a parameter that grows": grown,
  };
  const compile = (model: Model) => compileModel(model, "none", { slices: 2 });
  return assertRefused(
    "slices_of_models",
    Object.entries(models).map(([what, model]) => [what, () => compile(model)] as const),
  );
});

Deno.test("slices of a micro-batch that do not run in order are refused", async () => {
  const [tokens] = tokensOf(CONFIG);
  const program = compileModel(gpt2(CONFIG, SAMPLES), "none", { slices: 2 });
  const [stage] = await openStages(open("reference"), program, 1);
  const own = sliceBatch(tokens!, { slices: 2, samples: SAMPLES }, 1);
  const refusal =
    /^RangeError: Cannot run F: slices of micro-batch 0 must run in order, 0 next, received 1$/;
  await assert.rejects(() => stage!.forward(1, undefined, own), refusal);
});
