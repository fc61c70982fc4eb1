/** Slices of a sequence: losses and gradients are those of the whole, whatever is kept or split. */

import assert from "node:assert/strict";
import {
  activationBytes,
  ADAMW_DEFAULTS,
  type Batch,
  compileModel,
  type CompileOptions,
  type Device,
  type DropoutKey,
  gpt2,
  type Gpt2Config,
  type Layer,
  type LayerGraph,
  mlp,
  type Model,
  openMask,
  planMemory,
  RECOMPUTE_POLICIES,
  sliceBatch,
  type Stage,
} from "../../../kernels/mod.ts";
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

const CONFIG: Gpt2Config = { layers: 2, hidden: 16, heads: 2, seq: 12, vocab: 32 };
const SAMPLES = 2, KEY: DropoutKey = { seed: 7, step: 3, microBatch: 5 };

const tokensOf = ({ seq, vocab }: Gpt2Config) => drawTokens(2, SAMPLES * seq, vocab);

/**
 * Losses by sample and gradients of micro-batches, all in flight at a time: forwards first slice first,
 * backwards last slice first, W at once or late.
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

/** Holds slices to the whole sequence: relative to its norm, as they are other sums of the same terms. */
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
  const some = name === "native" ? [2, 3, 12] : atDepth([3], [2, 3, 12]);
  Deno.test(`slices on ${name} have the losses and gradients of the whole sequence`, async () => {
    for (const config of [{ ...CONFIG, headSlices: 3 }, { ...CONFIG, tie: true, dropout: 0.3 }]) {
      await assertWhole(open(name), config, some, 2);
    }
  });

  Deno.test(`recomputation and the split change no bit of slices on ${name}, in the planned memory`, async () => {
    const config = { ...CONFIG, dropout: 0.2 }, tokens = tokensOf(config), slices = 3;
    const kinds = ["whole", "split", "split at once"] as const;
    const ways = RECOMPUTE_POLICIES.flatMap((policy) =>
      kinds.flatMap((kind) => [undefined, 1].map((interval) => ({ policy, kind, interval })))
    );
    let expected: ReadonlyMap<string, Float32Array> | undefined;
    for (const [i, { policy, kind, interval }] of ways.entries()) {
      if (name !== "native" && atDepth(i % 4 > 0, false)) continue;
      const program = compileModel(gpt2(config, SAMPLES), policy, { slices });
      const options = {
        backward: kind === "whole" ? kind : "split",
        ...interval && { recomputeInterval: interval },
      } as const;
      const stages = await openStages(open(name), program, 1, options);
      const received = await trainSlices(stages, tokens, slices, kind, KEY);
      const what = `${policy}, ${kind}, interval ${interval}`;
      assertSameBits(received, expected ??= received, what);
      const planned = planMemory(program, {
        ...options,
        optimizer: ADAMW_DEFAULTS,
        slots: { slices: [2, 2, 2], contexts: 2 },
      });
      assert.deepEqual(stages[0]!.memory, planned, what);
    }
  });

  Deno.test(`slices on ${name} train in FP16 as whole sequences do, within its precision`, () =>
    assertWhole(open(name), CONFIG, [3], 1, { precision: "fp16" }, 1e-2));
}

// Parts of 96 queries, slices of 64: parts of 32 are within both.
Deno.test("slices have the dropout of the whole where attention is taken in parts, too", () =>
  assertWhole(
    open("native"),
    { ...CONFIG, layers: 1, seq: 192, hidden: 8, dropout: 0.4 },
    [2, 3, 6],
    1,
  ));

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
  const count = (name: string) => new Set(layers.find((one) => one.name === name)!.slices).size;
  assert.deepEqual(["embedding", "block 0 attention", "block 0 mlp", "head"].map(count), [
    3,
    3,
    1,
    1,
  ]);
  assert.equal(programs.length, 8);
});

Deno.test("slices keep their own activations, and the keys and values of a micro-batch once", () => {
  const { hidden, seq, layers } = CONFIG, slices = 3;
  const options = { backward: "whole", recomputeInterval: 1 } as const;
  const { perSlice, perContext, perMicroBatch } = activationBytes(
    compileModel(gpt2(CONFIG, SAMPLES), "full", { slices }),
    options,
  );
  // Keys and values of all slices but the last, and their gradients.
  assert.equal(perContext, 4 * layers * 2 * 2 * SAMPLES * hidden * seq * 2 / 3);
  assert.equal(perSlice!.reduce((sum, one) => sum + one, perContext!), perMicroBatch);
});

Deno.test("a model that cannot be cut into slices is refused by name", () => {
  const cut = (model: Model, slices: number) => compileModel(model, "none", { slices });
  assert.throws(() => cut(mlp({ inputs: 2, hidden: 4, layers: 1, classes: 3 }, 1), 2), {
    name: "TypeError",
    message:
      "Cannot cut sequences into 2 slices: the model must have sequences, and say so with withSlices and samples; received mlp without withSlices",
  });
  assert.throws(
    () => cut(gpt2(CONFIG, SAMPLES), 5),
    /^RangeError: Cannot cut GPT-2 into slices: the 12 tokens of a sample must be divisible by their number, received 5$/,
  );
  const rows = (g: LayerGraph) => g.batch("x", [4, 2]);
  const model = (build: Layer["build"]): Model => {
    const layers = [{ name: "own", build }];
    return { name: "mine", layers, samples: 2, predictions: 1, withSlices: () => layers };
  };
  assert.throws(
    () => cut(model((g) => g.sum(g.mul(rows(g), g.parameter("w", [2])), [1])), 2),
    /^TypeError: Cannot cut the layer "own" into 2 slices: of its field "x" each slice must have one part of 2, received \[4,2\] of \[4,2\]$/,
  );
  const grown = model((g) => {
    const { index, count } = g.slice, x = g.batch("x", [4 / count, 2]);
    return g.sum(g.gemm(x, g.parameter("w", [2, index + 1])), [1]);
  });
  assert.throws(
    () => cut(grown, 2),
    /^TypeError: Cannot cut the layer "own" into 2 slices: its parameters and its output must be alike in all slices$/,
  );
});

Deno.test("slices of a micro-batch that do not run in order are refused", async () => {
  const [tokens] = tokensOf(CONFIG);
  const program = compileModel(gpt2(CONFIG, SAMPLES), "none", { slices: 2 });
  const [stage] = await openStages(open("reference"), program, 1);
  const own = sliceBatch(tokens!, { slices: 2, samples: SAMPLES }, 1);
  await assert.rejects(
    () => stage!.forward(1, undefined, own),
    /^RangeError: Cannot run F: slices of micro-batch 0 must run in order, 0 next, received 1$/,
  );
});
