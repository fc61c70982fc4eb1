/** AdamW in one pass has the bits of the operations of ONNX. */

import assert from "node:assert/strict";
import fc from "../../../fast_check.ts";
import { type Device, openDevice, type Tensor } from "../../../../kernels/mod.ts";
import { lowerModel } from "../../../../kernels/onnx/fused_ops.ts";
import { scalarValues, stepModel } from "../../../../kernels/optimizer/step_model.ts";
import { ADAMW_DEFAULTS } from "../../../../kernels/optimizer/optimizer_options.ts";
import { tensorOf } from "../models.ts";

const NAMES = ["w", "d", "m0", "m1"];

/** Any f32 there is: zeros of both signs, denormals, infinities and NaN among them. */
const anyFloats = (length: number) =>
  fc.array(fc.float(), { minLength: length, maxLength: length });

const givenArb = fc.integer({ min: 0, max: 67 }).chain((length) =>
  fc.record({
    length: fc.constant(length),
    arrays: fc.tuple(...NAMES.map(() => anyFloats(length))),
    scale: fc.float({ min: -2, max: 2, noNaN: true }),
    step: fc.integer({ min: 1, max: 100_000 }),
    isInPlace: fc.boolean(),
  })
);

type Given = typeof givenArb extends fc.Arbitrary<infer T> ? T : never;

/** The bits of what a model makes of numbers; one NaN is as good as another. */
async function compute(device: Device, model: Uint8Array, given: Given): Promise<Uint32Array[]> {
  const { arrays, scale, step, isInPlace, length } = given;
  const kernel = await device.compile(model);
  const inputs: Record<string, Tensor> = {}, outputs: Record<string, Tensor> = {};
  NAMES.forEach((name, i) => inputs[name] = tensorOf(device, [length], arrays[i]!));
  const scalars = scalarValues(ADAMW_DEFAULTS, step, 1e-3, scale, true);
  for (const [name, value] of Object.entries(scalars)) {
    inputs[name] = tensorOf(device, [], [value]);
  }
  for (const name of NAMES.filter((name) => name !== "d")) {
    outputs[`${name}'`] = isInPlace ? inputs[name]! : device.alloc("f32", [length]);
  }
  await kernel.bind(inputs, outputs)();
  const results = [];
  for (const tensor of Object.values(outputs)) {
    const values = await device.read<Float32Array<ArrayBuffer>>(tensor);
    results.push(new Uint32Array(values.map((value) => Number.isNaN(value) ? NaN : value).buffer));
  }
  kernel.close();
  for (const tensor of new Set([...Object.values(inputs), ...Object.values(outputs)])) {
    device.free(tensor);
  }
  return results;
}

Deno.test("AdamW in one pass on wasm has the bits of ONNX Runtime's operations", async () => {
  const device = await openDevice("wasm");
  try {
    await fc.assert(
      fc.asyncProperty(givenArb, async (given) => {
        const model = stepModel(given.length, ADAMW_DEFAULTS, false);
        const [own, onnx] = [
          await compute(device, model, given),
          await compute(device, lowerModel(model), given),
        ];
        assert.deepEqual(own, onnx);
      }),
      { numRuns: 60 },
    );
  } finally {
    device.close();
  }
});
