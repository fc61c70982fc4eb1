/** Costs of probes are brought to what workers of runs took, load by load. */

import assert from "node:assert/strict";
import {
  calibrate,
  type CalibratedLoad,
} from "../../../../actors/foresight/measuring/calibrate.ts";
import { openLayerCosts } from "../../../../actors/foresight/profile/find_costs.ts";
import { layerFacts } from "../../../../actors/foresight/profile/layer_facts.ts";
import type { LayerCost, LoadCost } from "../../../../actors/foresight/profile/profile.ts";
import { ADAMW_DEFAULTS, compileModel, cutIntoStages, mlp } from "../../../../kernels/mod.ts";

const program = compileModel(mlp({ inputs: 4, hidden: 4, layers: 3, classes: 2 }, 2), "none");
const facts = layerFacts(program, { optimizer: ADAMW_DEFAULTS });

/** Every layer takes 1 ms forward and 2 ms backward, whatever the load. */
const costsAt = (atOnce: number): LayerCost[] =>
  facts.map((one) => ({
    ...one,
    ...{ sizes: {}, microBatch: 2, device: "native", recompute: "none", atOnce },
    ...{ forwardMs: 1, backwardMs: 2, inputMs: 1, weightMs: 1 },
  }));

const onceAt = (atOnce: number): LoadCost => {
  const cost = { ms: 1, msPerMillion: 0 };
  return { atOnce, optimizer: cost, vote: cost, norm: cost, end: cost };
};

const [first, second] = cutIntoStages(program, 2).map(({ layers }) => layers.length);

/** One worker, whose actions take so many times what costs say. */
const alone = (factor: number): CalibratedLoad => ({
  model: 0,
  atOnce: 1,
  steps: [[[
    { name: "0F0", start: 0, end: 4 * factor },
    { name: "0B0", start: 20, end: 20 + 8 * factor },
    { name: "reduce 0", start: 50, end: 51 },
    { name: "optimizer", start: 60, end: 62 },
  ]]],
});

/** Two workers that compute all at the same time: each is beside the other for all of it. */
const both = (factor: number): CalibratedLoad => {
  const trace = (stage: number, layers: number) => {
    const half = 1.5 * factor * layers;
    return [
      { name: `${stage}F0`, start: 0, end: factor * layers },
      { name: `${stage}B0`, start: factor * layers, end: 2 * half },
      { name: "optimizer", start: 50, end: 52 },
    ];
  };
  return { model: 0, atOnce: 2, steps: [[trace(0, first!), trace(1, second!)]] };
};

const layersAt = (layers: readonly LayerCost[], atOnce: number) =>
  layers.filter((one) => one.atOnce === atOnce);

Deno.test("a load that took longer in a run than in probes costs so much more, all parts alike", () => {
  const probed = { layers: [costsAt(1)], loads: [onceAt(1)], programs: [program] };
  const { layers, loads } = calibrate(probed, [alone(1.25)]);
  for (const { forwardMs, backwardMs, inputMs, weightMs } of layers) {
    assert.deepEqual([forwardMs, backwardMs, inputMs, weightMs], [1.25, 2.5, 1.25, 1.25]);
  }
  // 3 ms of what costs say takes 2.
  assert.deepEqual(loads.map(({ optimizer }) => optimizer.ms), [1.5]);
});

Deno.test("each load has a factor of its own, that of a lower one known before", () => {
  const layers = [[...costsAt(1), ...costsAt(2)]], loads = [onceAt(1), onceAt(2)];
  const runs = [both(1.5), alone(1)]; // in any order
  const calibrated = calibrate({ layers, loads, programs: [program] }, runs).layers;
  assert.ok(layersAt(calibrated, 1).every(({ forwardMs }) => forwardMs === 1));
  const [one] = layersAt(calibrated, 2);
  assert.ok(one!.forwardMs > 1.4 && one!.forwardMs <= 1.5 + 1e-9, `${one!.forwardMs}`);
  // What is predicted for the load of that run is what it took.
  const { layer } = openLayerCosts(calibrated, "native");
  assert.ok(layer(facts[1]!, 1.5).forwardMs > 1 && layer(facts[1]!, 1.5).forwardMs < 1.5);
});

Deno.test("a load without a run costs what probes say", () => {
  const layers = [[...costsAt(1), ...costsAt(2)]], loads = [onceAt(1), onceAt(2)];
  const calibrated = calibrate({ layers, loads, programs: [program] }, [alone(2)]).layers;
  assert.ok(layersAt(calibrated, 1).every(({ forwardMs }) => forwardMs === 2));
  assert.ok(layersAt(calibrated, 2).every(({ forwardMs }) => forwardMs === 1));
});
