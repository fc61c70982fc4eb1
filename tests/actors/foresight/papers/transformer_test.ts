import assert from "node:assert/strict";
import { recomputedStepFlops } from "../../../../schedules/mod.ts";
import {
  AXONN_MODELS,
  BERT_48,
  GPT2_64,
  headFlops,
  layerBytes,
  layerFlops,
  parametersOf,
} from "../../../../actors/foresight/papers/transformer.ts";

Deno.test("Chimera's models have as many parameters as its Table 4 says, to the last one", () => {
  assert.equal(parametersOf(BERT_48), 669_790_012);
  assert.equal(parametersOf(GPT2_64), 1_389_327_360);
});

Deno.test("AxoNN's models have the parameters of its Table I within 3 %", () => {
  for (const [billions, model] of Object.entries(AXONN_MODELS)) {
    const ratio = parametersOf(model) / (1e9 * Number(billions));
    assert.ok(Math.abs(ratio - 1) < 0.03, `${billions} billion: ${ratio}`);
  }
});

Deno.test("a forward, once more, and a backward of two are AxoNN's operations of a step", () => {
  for (const model of Object.values(AXONN_MODELS)) {
    const counted = 4 * model.layers * layerFlops(model, 3) + 3 * headFlops(model, 3);
    assert.ok(Math.abs(counted / recomputedStepFlops(model, 3) - 1) < 1e-12);
  }
});

Deno.test("layers keep what Korthikanti et al. count in 16 bits: sbh(34 + 5as/h)", () => {
  const model = AXONN_MODELS[12], { sequence: s, hidden: h, heads: a } = model;
  assert.ok(Math.abs(layerBytes(model, 2) / (2 * s * h * (34 + 5 * a * s / h)) - 1) < 1e-12);
});
