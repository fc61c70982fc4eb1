/** Slices of a sequence: losses and gradients are those of the whole, whatever is kept or split. */

import assert from "node:assert/strict";
import {
  activationBytes,
  ADAMW_DEFAULTS,
  type Batch,
  compileModel,
  type DropoutKey,
  gpt2,
  type Gpt2Config,
  type Layer,
  type LayerGraph,
  mlp,
  type Model,
  openDevice,
  openMask,
  planMemory,
  RECOMPUTE_POLICIES,
  sliceBatch,
  type Stage,
} from "../../../kernels/mod.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";
import {
  assertSameBits,
  backward,
  compilingOnce,
  drawTokens,
  forward,
  gradientsOf,
  openStages,
} from "./stage_runs.ts";

const CONFIG: Gpt2Config = { layers: 2, hidden: 16, heads: 2, seq: 12, vocab: 32 };
const SAMPLES = 2, KEY: DropoutKey = { seed: 7, step: 3, microBatch: 5 };
/** Relative to the largest value: losses and gradients of slices are other sums of the same terms. */
const TOLERANCE = 1e-5;

const tokensOf = ({ seq, vocab }: Gpt2Config) => drawTokens(2, SAMPLES * seq, vocab);

/** Losses by sample and gradients of two micro-batches, two of them in flight at a time. */
async function trainWhole(stages: readonly Stage[], batches: readonly Batch[], key?: DropoutKey) {
  const results = new Map<string, Float32Array>();
  for (const [m, fields] of batches.entries()) {
    results.set(`loss ${m}`, await forward(stages, m, fields, key && { ...key, microBatch: m }));
  }
  for (const m of batches.keys()) await backward(stages, m, "B");
  for (const [name, gradient] of await gradientsOf(stages)) results.set(name, gradient);
  return results;
}

/** The same of slices: forwards first slice first, backwards last slice first, W at once or late. */
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

function assertClose(
  received: ReadonlyMap<string, Float32Array>,
  expected: ReadonlyMap<string, Float32Array>,
  what: string,
  tolerance = TOLERANCE,
) {
  assert.deepEqual([...received.keys()].sort(), [...expected.keys()].sort(), what);
  for (const [name, values] of received) {
    const wanted = expected.get(name)!;
    const largest = wanted.reduce((most, one) => Math.max(most, Math.abs(one)), 1e-30);
    const difference = values.reduce(
      (most, one, i) => Math.max(most, Math.abs(one - wanted[i]!)),
      0,
    );
    assert.ok(
      difference <= tolerance * largest,
      `${what}: ${name} is off by ${difference / largest}`,
    );
  }
}

for (const name of ISOLATE_DEVICES) {
  Deno.test(`slices on ${name} have the losses and gradients of the whole sequence`, async () => {
    const device = compilingOnce(await openDevice(name));
    for (const config of [{ ...CONFIG, headSlices: 3 }, { ...CONFIG, tie: true, dropout: 0.3 }]) {
      const key = "dropout" in config ? KEY : undefined, tokens = tokensOf(config);
      const model = gpt2(config, SAMPLES);
      const whole = await openStages(device, compileModel(model, "none"), 2);
      const expected = await trainWhole(whole, tokens, key);
      for (const slices of [2, 3, 12]) {
        const stages = await openStages(device, compileModel(model, "none", { slices }), 2);
        const received = await trainSlices(stages, tokens, slices, "whole", key);
        assertClose(received, expected, `${slices} slices`);
      }
    }
    device.close();
  });

  Deno.test(`whatever is computed again or apart, slices on ${name} have the same bits, in the planned memory`, async () => {
    const device = compilingOnce(await openDevice(name)), slices = 3;
    const config = { ...CONFIG, dropout: 0.2 }, tokens = tokensOf(config);
    let expected: ReadonlyMap<string, Float32Array> | undefined;
    for (const policy of RECOMPUTE_POLICIES) {
      const program = compileModel(gpt2(config, SAMPLES), policy, { slices });
      for (const kind of ["whole", "split", "split at once"] as const) {
        for (const recomputeInterval of [undefined, 1]) {
          const options = {
            backward: kind === "whole" ? "whole" : "split",
            ...recomputeInterval && { recomputeInterval },
          } as const;
          const stages = await openStages(device, program, 1, options);
          const received = await trainSlices(stages, tokens, slices, kind, KEY);
          const what = `${policy}, ${kind}, interval ${recomputeInterval}`;
          assertSameBits(received, expected ??= received, what);
          const planned = planMemory(program, {
            ...options,
            optimizer: ADAMW_DEFAULTS,
            slots: { slices: [2, 2, 2], contexts: 2 },
          });
          assert.deepEqual(stages[0]!.memory, planned, what);
        }
      }
    }
    device.close();
  });

  Deno.test(`slices on ${name} train in FP16 as whole sequences do, within its precision`, async () => {
    const device = compilingOnce(await openDevice(name)), precision = "fp16";
    const model = gpt2(CONFIG, SAMPLES), tokens = tokensOf(CONFIG);
    const whole = await openStages(device, compileModel(model, "none", { precision }), 1);
    const expected = await trainWhole(whole, tokens);
    const cut = compileModel(model, "none", { precision, slices: 3 });
    const stages = await openStages(device, cut, 1);
    assertClose(await trainSlices(stages, tokens, 3, "whole"), expected, "fp16", 1e-2);
    device.close();
  });
}

Deno.test("slices have the dropout of the whole where attention is taken in parts, too", async () => {
  // Parts of 96 queries, slices of 64: parts of 32 lie within both.
  const config = { ...CONFIG, layers: 1, seq: 192, hidden: 8, heads: 2, dropout: 0.4 };
  const device = compilingOnce(await openDevice("native")), tokens = tokensOf(config);
  const model = gpt2(config, SAMPLES);
  const whole = await openStages(device, compileModel(model, "none"), 1);
  const expected = await trainWhole(whole, tokens, KEY);
  for (const slices of [2, 3, 6]) {
    const stages = await openStages(device, compileModel(model, "cheap", { slices }), 1);
    const received = await trainSlices(stages, tokens, slices, "whole", KEY);
    assertClose(received, expected, `${slices} slices`);
  }
  device.close();
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

Deno.test("what cannot be cut into slices is refused by name", () => {
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
  const device = await openDevice("reference"), [tokens] = tokensOf(CONFIG);
  const [stage] = await openStages(
    device,
    compileModel(gpt2(CONFIG, SAMPLES), "none", { slices: 2 }),
    1,
  );
  const own = sliceBatch(tokens!, { slices: 2, samples: SAMPLES }, 1);
  await assert.rejects(
    () => stage!.forward(1, undefined, own),
    /^RangeError: Cannot run F: slices of micro-batch 0 must run in order, 0 next, received 1$/,
  );
  device.close();
});
