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
    arrays: fc.tuple(...NAMES.map(() => anyFloats(length))),
    scale: fc.float({ min: -2, max: 2, noNaN: true }),
    step: fc.integer({ min: 1, max: 100_000 }),
    isInPlace: fc.boolean(),
    /** Elements before each array: an odd number of them is no multiple of a vector. */
    skipped: fc.integer({ min: 0, max: 3 }),
  })
);

type Given = typeof givenArb extends fc.Arbitrary<infer T> ? T : never;

/** The bits of what a model makes of numbers; one NaN is as good as another. */
async function compute(
  device: Device,
  toModel: (step: Uint8Array) => Uint8Array,
  given: Given & { readonly times: number },
): Promise<Uint32Array[]> {
  const { scale, step, isInPlace, skipped, times } = given, owners: Tensor[] = [];
  const arrays = given.arrays.map((numbers) => Array.from({ length: times }, () => numbers).flat());
  const { length } = arrays[0]!;
  const kernel = await device.compile(toModel(stepModel(length, ADAMW_DEFAULTS, false)));
  const array = () => {
    const owner = device.alloc("f32", [skipped + length]);
    owners.push(owner);
    return device.view(owner, skipped, [length]);
  };
  const inputs: Record<string, Tensor> = {}, outputs: Record<string, Tensor> = {};
  NAMES.forEach((name, i) => {
    inputs[name] = array();
    device.write(inputs[name], Float32Array.from(arrays[i]!));
  });
  const scalars = scalarValues(ADAMW_DEFAULTS, step, 1e-3, scale, true);
  for (const [name, value] of Object.entries(scalars)) {
    owners.push(inputs[name] = tensorOf(device, [], [value]));
  }
  for (const name of NAMES.filter((name) => name !== "d")) {
    outputs[`${name}'`] = isInPlace ? inputs[name]! : array();
  }
  await kernel.bind(inputs, outputs)();
  const results = [];
  for (const tensor of Object.values(outputs)) {
    const values = await device.read<Float32Array<ArrayBuffer>>(tensor);
    results.push(new Uint32Array(values.map((value) => Number.isNaN(value) ? NaN : value).buffer));
  }
  kernel.close();
  owners.forEach((owner) => device.free(owner));
  return results;
}

/** Where arrays are to be long so that our kernel steps them, numbers come many times. */
const DEVICES = [
  { name: "wasm", open: () => openDevice("wasm"), times: 1 },
  { name: "native", open: () => openDevice("native", { isBlocking: true }), times: 400 },
];

for (const { name, open, times } of DEVICES) {
  Deno.test(`AdamW in one pass on ${name} has the bits of ONNX Runtime's operations`, async () => {
    const device = await open();
    try {
      await fc.assert(
        fc.asyncProperty(givenArb, async (one) => {
          const given = { ...one, times };
          const own = await compute(device, (step) => step, given);
          assert.deepEqual(own, await compute(device, lowerModel, given));
        }),
        { numRuns: 60 },
      );
      assert.equal(device.allocatedBytes, 0);
    } finally {
      device.close();
    }
  });
}
