/** Micro-batches of different lengths and sizes: targets of −1, and models for fewer samples. */

import assert from "node:assert/strict";
import {
  compileModel,
  countTargets,
  gpt2,
  mlp,
  outputsOf,
  splitBatch,
} from "../../../kernels/mod.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";
import { CONFIG, full, padded, SAMPLES, SHORT, testLengths } from "./lengths.ts";

for (const name of ISOLATE_DEVICES) testLengths(name);

Deno.test("predictions are the targets that are not −1", () => {
  const { predictions } = gpt2(CONFIG, SAMPLES);
  assert.ok(typeof predictions === "function");
  assert.equal(predictions(full), SAMPLES * CONFIG.seq);
  assert.equal(predictions(padded), SHORT + CONFIG.seq);
  assert.throws(() => predictions({ ids: full.ids! }), {
    name: "TypeError",
    message:
      'Cannot count predictions: the micro-batch must have the field "targets", received [ids]',
  });
  assert.throws(() => countTargets({ labels: Int32Array.of(1, -100) }, "labels"), {
    name: "RangeError",
    message: /received -100 at position 1/,
  });
});

for (
  const model of [gpt2(CONFIG, 4), mlp({ inputs: 6, hidden: 8, layers: 2, classes: 3 }, 4)]
) {
  Deno.test(`${model.name} for half the samples has the same parameters`, () => {
    assert.equal(model.samples, 4);
    const half = model.withSamples!(2);
    assert.equal(half.samples, 2);
    const [whole, halved] = [model, half].map((one) => compileModel(one, "none"));
    assert.deepEqual(halved!.parameters, whole!.parameters);
    const samplesOf = (program: typeof whole) => outputsOf(program!.programs.at(-1)!)[0]!.shape;
    assert.deepEqual([samplesOf(whole), samplesOf(halved)], [[4], [2]]);
  });
}

Deno.test("a micro-batch is split into views of its samples, or refused", () => {
  const parts = splitBatch(full, SAMPLES);
  assert.deepEqual(parts[1]!.ids, full.ids!.slice(CONFIG.seq));
  assert.equal(parts[1]!.ids!.buffer, full.ids!.buffer);
  assert.throws(() => splitBatch(full, 3), {
    name: "RangeError",
    message:
      'Cannot split the micro-batch: the field "ids" must be divisible by 3, received 16 elements',
  });
});
