/** What probes have measured becomes costs: means by kind of layer and load. */

import assert from "node:assert/strict";
import {
  actionTimes,
  layerCosts,
  loadCosts,
} from "../../../../actors/foresight/measuring/make_profile.ts";
import { variationOf } from "../../../../actors/foresight/profile/variation.ts";
import type { LayerFacts } from "../../../../actors/foresight/profile/layer_facts.ts";
import { type LoadTimes, openProbes } from "../../../../actors/foresight/measuring/probe_layers.ts";
import { drawBatch, drawWeights } from "../../../../actors/foresight/measuring/probe_data.ts";
import { createSystem } from "../../../../actors/runtime/mod.ts";
import { ADAMW_DEFAULTS, compileModel, mlp, t5 } from "../../../../kernels/mod.ts";

const facts: LayerFacts = {
  kind: "mlp",
  precision: "fp32",
  parameters: 500_000,
  activationBytes: 10,
  outputBytes: 5,
  forwardFlops: 100,
  backwardFlops: 200,
};

const none = { runs: 0, ms: 0 };

/** One round of one model under a load. */
const round = (atOnce: number, more: Partial<LoadTimes> = {}): LoadTimes => ({
  model: 0,
  atOnce,
  layers: new Map([["mlp", {
    facts,
    sums: { F: { runs: 2, ms: 6 }, B: { runs: 1, ms: 5 }, I: none, W: none },
  }]]),
  actions: [{ F: [4, 4], B: [6], I: [], W: [] }],
  closing: [{ voteMs: 1, normMs: 2, optimizerMs: 4, endMs: 0.5, parameters: 500_000 }],
  ...more,
});

const about = {
  device: "native",
  sizes: { hidden: 8 },
  models: [{ microBatch: 4, recompute: "none" as const }],
};

Deno.test("a layer costs the mean of its runs, each load by itself, over all rounds", () => {
  const slower = {
    layers: new Map([["mlp", {
      facts,
      sums: { F: { runs: 2, ms: 10 }, B: { runs: 1, ms: 7 }, I: none, W: { runs: 1, ms: 3 } },
    }]]),
  };
  const costs = layerCosts([round(1), round(2, slower), round(1, slower)], about);
  assert.deepEqual(
    costs.map((
      { atOnce, forwardMs, backwardMs, inputMs, weightMs },
    ) => [atOnce, forwardMs, backwardMs, inputMs, weightMs]),
    [[1, 4, 6, 0, 3], [2, 5, 7, 0, 3]],
  );
  assert.equal(costs[0]!.microBatch, 4);
  assert.deepEqual(layerCosts([round(1)], about)[0]!.weightMs, undefined);
});

Deno.test("what ends a step costs by the million of numbers, each load by itself", () => {
  const [alone, together] = loadCosts([round(1), round(2), round(2)]);
  assert.deepEqual(alone, {
    atOnce: 1,
    optimizer: { ms: 0, msPerMillion: 8 },
    vote: { ms: 0, msPerMillion: 2 },
    norm: { ms: 0, msPerMillion: 4 },
    end: { ms: 0, msPerMillion: 1 },
  });
  assert.deepEqual(together, { ...alone, atOnce: 2 });
});

Deno.test("actions vary around a mean of one, whatever the kinds take", () => {
  const actions = [{ F: [1, 2, 3], B: [10, 20, 30], I: [], W: [7] }];
  const factors = variationOf(actionTimes([round(1, { actions })]));
  assert.equal(factors.length, 101);
  assert.ok(Math.abs(factors[0]! - 0.5) < 0.02 && Math.abs(factors.at(-1)! - 1.5) < 0.02);
  const mean = factors.reduce((sum, one) => sum + one, 0) / factors.length;
  assert.ok(Math.abs(mean - 1) < 0.01, `${mean}`);
  assert.deepEqual(variationOf([[3], []]), []);
});

Deno.test("a model that is no chain, and has ties, is measured", async () => {
  let now = 0;
  await using system = createSystem({ now: () => now++ });
  const config = { layers: 2, hidden: 4, heads: 1, seq: 3, vocab: 5, tie: true };
  const program = compileModel(t5(config, 1), "none");
  const probes = openProbes(system, {
    device: { name: "reference" },
    models: [{
      program,
      weights: drawWeights(program),
      fields: drawBatch(program),
      microBatch: 1,
      recompute: "none",
    }],
    loads: [1],
    optimizer: ADAMW_DEFAULTS,
    isolate: "local",
  });
  const costs = layerCosts(await probes.measure(400, () => now), about);
  // The last cross attention differs from the first only in that it adds to no gradient.
  assert.equal(costs.length, program.programs.length - 1);
  for (const { forwardMs, backwardMs } of costs) assert.ok(forwardMs > 0 && backwardMs > 0);
});

Deno.test("probes of a model tell each kind of layer, on a clock that counts its readings", async () => {
  let now = 0;
  await using system = createSystem({ now: () => now++ });
  const program = compileModel(mlp({ inputs: 3, hidden: 4, layers: 2, classes: 2 }, 2), "none");
  const model = {
    program,
    weights: drawWeights(program),
    fields: drawBatch(program),
    microBatch: 2,
    recompute: "none" as const,
  };
  const probes = openProbes(system, {
    device: { name: "reference" },
    models: [model],
    loads: [1],
    optimizer: ADAMW_DEFAULTS,
    isolate: "local",
  });
  const times = await probes.measure(400, () => now);
  const costs = layerCosts(times, about);
  assert.deepEqual(costs.map(({ kind, atOnce }) => `${kind} ${atOnce}`), [
    "hidden 1",
    "hidden 1",
    "classifier 1",
  ]);
  // Nobody reads the clock between the beginning of a run and its end.
  assert.deepEqual(costs.map(({ forwardMs }) => forwardMs), [1, 1, 1]);
  // The last layer writes over its logits, step by step, before its backward: those runs count, too.
  const steps = program.programs.at(-1)!.overwrites!.length;
  assert.deepEqual(costs.map(({ backwardMs }) => backwardMs), [1, 1, 1 + steps]);
  assert.deepEqual(costs.slice(0, 3).map(({ parameters }) => parameters), [16, 20, 10]);
});
