/** A head in slices of the vocabulary: the loss and gradients of a whole one, wherever it is cut. */

import assert from "node:assert/strict";
import {
  compileModel,
  cutIntoStages,
  generate,
  gpt2,
  openDevice,
  type StageOptions,
} from "../../../kernels/mod.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";
import { outcome, SMALL } from "../../actors/runs.ts";
import {
  assertSameBits,
  backward,
  compilingOnce,
  drawTokens,
  drawWeights,
  forward,
  gradientsOf,
  openStages,
  train,
} from "../stage/stage_runs.ts";

/** Slices of 67 token ids are of several sizes. */
const CONFIG = { layers: 1, hidden: 16, heads: 2, seq: 8, vocab: 67 };
const BATCHES = drawTokens(3, 2 * CONFIG.seq, CONFIG.vocab).map(({ ids, targets }) => ({
  ids,
  targets: targets.with(3, -1),
}));

/** Weights of a whole head, with logits of up to 100 so that one exponential outweighs others. */
function wholeWeights(factor = 400): Map<string, Float32Array> {
  const weights = drawWeights(compileModel(gpt2(CONFIG, 2), "none"));
  return weights.set("lm_head.weight", weights.get("lm_head.weight")!.map((w) => factor * w));
}

/** A table of rows cut as the head is. */
const cutRows = (table: Float32Array, slices: number): [string, Float32Array][] =>
  Array.from({ length: slices }, (_, k) => {
    const [from, to] = [k, k + 1].map((i) => Math.round(i * CONFIG.vocab / slices));
    return [`lm_head.${k}.weight`, table.slice(CONFIG.hidden * from!, CONFIG.hidden * to!)];
  });

function withSlices(weights: ReadonlyMap<string, Float32Array>, slices: number) {
  const { "lm_head.weight": head, ...others } = Object.fromEntries(weights);
  return new Map([...Object.entries(others), ...cutRows(head!, slices)]);
}

function assertNear(received: Float32Array, expected: Float32Array, what: string): void {
  const square = (values: Float32Array) => values.reduce((sum, value) => sum + value * value, 0);
  const distance = Math.sqrt(square(received.map((value, i) => value - expected[i]!)));
  assert.ok(distance <= 3e-6 * Math.sqrt(square(expected)) + 1e-6, `${what}: ${distance}`);
}

for (const name of ISOLATE_DEVICES) {
  Deno.test(`a head in slices has the loss and gradients of a whole one on ${name}`, async () => {
    const device = compilingOnce(await openDevice(name, { isBlocking: true }));
    const run = async (slices: number, weights: Map<string, Float32Array>) => {
      const model = compileModel(gpt2({ ...CONFIG, headSlices: slices }, 2), "none");
      const stages = await openStages(device, model, 1);
      for (const stage of stages) stage.load({ weights, moments: new Map() });
      const losses = await forward(stages, 0, BATCHES[0]!);
      await backward(stages, 0, "B");
      return { losses, gradients: await gradientsOf(stages) };
    };
    // Where all logits are equal, so are the sums of slices of one size.
    for (const [factor, all] of [[400, [2, 5]], [0, [67]]] as const) {
      const weights = wholeWeights(factor), expected = await run(1, weights);
      for (const slices of all) {
        const received = await run(slices, withSlices(weights, slices));
        assertNear(received.losses, expected.losses, `${slices} slices, losses`);
        for (const [key, gradient] of withSlices(expected.gradients, slices)) {
          assertNear(received.gradients.get(key)!, gradient, `${slices} slices, ${key}`);
        }
      }
    }
    device.close();
  });
}

Deno.test("a head in slices has the same bits wherever it is cut, recomputed and split", async () => {
  const device = compilingOnce(await openDevice("native", { isBlocking: true }));
  const config = { ...CONFIG, headSlices: 3 };
  const run = async (
    count: number,
    options: Partial<StageOptions>,
    recompute = "none" as const,
  ) => {
    const model = compileModel(gpt2(config, 2), recompute);
    const stages = await openStages(device, model, count, options);
    return await train(stages, BATCHES, options.backward === "split" ? "split" : "whole");
  };
  const expected = await run(1, {});
  for (const count of [2, 3, 6]) {
    for (const options of [{}, { backward: "split" }, { recomputeInterval: 1 }] as const) {
      assertSameBits(await run(count, options), expected, `${count} ${JSON.stringify(options)}`);
    }
  }
  device.close();
});

Deno.test("stages share a head in slices, which alone would be the slowest", () => {
  const config = { layers: 12, hidden: 768, heads: 12, seq: 256, vocab: 50_257 };
  const slowest = (headSlices: number) => {
    const program = compileModel(gpt2({ ...config, headSlices }, 2), "none");
    const total = (costs: readonly number[]) => costs.reduce((sum, cost) => sum + cost, 0);
    let first = 0;
    const shares = cutIntoStages(program, 4).map(({ layers }) => {
      const own = program.costs.slice(first, first += layers.length);
      return total(own) / total(program.costs);
    });
    return Math.max(...shares);
  };
  assert.ok(slowest(1) > 0.29, `${slowest(1)}`);
  assert.ok(slowest(4) < 0.275, `${slowest(4)}`);
});

Deno.test("a head in slices trains as one worker does, on stages that share it", async () => {
  const sizes = { ...SMALL, headSlices: 4 };
  const serial = await outcome(sizes, { device: "native", runtime: "serial" });
  for (const [schedule, workers] of [["1f1b", 8], ["hanayo", 2]] as const) {
    const run = await outcome(sizes, { device: "native", runtime: "local", schedule, workers });
    assert.deepEqual(run.bits, serial.bits, schedule);
  }
});

Deno.test("a model whose head is in slices generates what one with a whole head does", async () => {
  const device = await openDevice("native", { isBlocking: true });
  const tokensOf = (headSlices: number, weights: Map<string, Float32Array>) => {
    const config = { ...CONFIG, headSlices };
    return Array.fromAsync(generate(device, { config, weights, prompt: [1], tokens: 20, seed: 1 }));
  };
  const weights = wholeWeights();
  assert.deepEqual(await tokensOf(3, withSlices(weights, 3)), await tokensOf(1, weights));
  device.close();
});

Deno.test("a head that cannot be in slices is refused", () => {
  const refused = (more: Partial<Parameters<typeof gpt2>[0]>, message: RegExp) =>
    assert.throws(() => gpt2({ ...CONFIG, ...more }, 1), { name: "RangeError", message });
  refused({ headSlices: 0 }, /headSlices must be a positive integer, received 0/);
  refused({ headSlices: 68 }, /headSlices must be at most its vocabulary, 67, received 68/);
  refused({ headSlices: 2, tie: true }, /tied to the embedding must be in one slice, received 2/);
  refused({ headSlices: 2, hidden: 1, heads: 1 }, /hidden must be at least 2 .*, received 1/);
});
