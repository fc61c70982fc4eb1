/** Every operation of a device against the reference. */

import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import type { RegisterTest } from "../../devices.ts";
import type { Device, Tensor } from "../../../kernels/devices/device.ts";
import { openReference } from "../../../kernels/devices/reference/reference.ts";
import { Graph } from "../../../kernels/graph/graph.ts";
import { elementCount } from "../../../kernels/graph/shapes.ts";
import { hostArray, modelOf, numbersOf, pseudoRandom, tensorOf } from "./models.ts";
import { WINDOW_OPERATORS } from "./window_operators.ts";
import type { Operand, OperatorCase, Sizes } from "./operands.ts";
import { OPERATOR_CASES } from "./operator_cases.ts";

/**
 * How far results may lie apart, relative to the larger of 1 and the result. ONNX Runtime's
 * vectorised exp, tanh and erf are good to a few units in the last place of f32 (6e-8).
 */
const TOLERANCE = { f32: 2e-6, f16: 2e-3, i32: 0, i64: 0, bool: 0 };

/** Models of each case; each has random sizes and numbers. */
const RUNS = 8;

function numbersFor({ shape, dtype, range = [0, 0] }: Operand, seed: number): number[] {
  const [low, high] = range;
  const whole = dtype !== "f32" && dtype !== "f16";
  return pseudoRandom(seed, elementCount(shape)).map((random) => {
    const unit = (random + 1) / 2;
    return whole ? low + Math.floor(unit * (high - low + 1)) : low + unit * (high - low);
  });
}

function modelFor({ op, inputs, outputs, attributes, domain }: OperatorCase): Uint8Array {
  const g = new Graph();
  const operands = inputs.map(({ shape, dtype, constant }, i) =>
    constant ? g.constant(hostArray(dtype, constant), shape, dtype) : g.input(`x${i}`, shape, dtype)
  );
  const results = g.node(op, operands, outputs, attributes, domain);
  return modelOf(g, Object.fromEntries(results.map((value, i) => [`y${i}`, value])));
}

async function compute(device: Device, given: OperatorCase, seed: number): Promise<number[][]> {
  const kernel = await device.compile(modelFor(given));
  const inputs: Record<string, Tensor> = {}, outputs: Record<string, Tensor> = {};
  given.inputs.forEach((operand, i) => {
    if (operand.constant) return;
    const numbers = numbersFor(operand, seed + i * 1000);
    inputs[`x${i}`] = tensorOf(device, operand.shape, numbers, operand.dtype);
  });
  given.outputs.forEach(({ dtype, shape }, i) => outputs[`y${i}`] = device.alloc(dtype, shape));
  await kernel.bind(inputs, outputs)();
  const results = [];
  for (const tensor of Object.values(outputs)) results.push(await numbersOf(device, tensor));
  kernel.close();
  for (const tensor of [...Object.values(inputs), ...Object.values(outputs)]) device.free(tensor);
  return results;
}

async function compare(
  device: Device,
  judge: Device,
  given: OperatorCase,
  seed: number,
): Promise<void> {
  const results = await compute(device, given, seed), wanted = await compute(judge, given, seed);
  given.outputs.forEach(({ dtype }, output) => {
    wanted[output]!.forEach((want, i) => {
      const got = results[output]![i]!;
      const distance = Math.abs(got - want) / Math.max(1, Math.abs(want));
      assert.ok(distance <= TOLERANCE[dtype], `y${output}[${i}] is ${got} and must be ${want}`);
    });
  });
}

const sizes: fc.Arbitrary<Sizes> = fc.record({
  b: fc.integer({ min: 1, max: 3 }),
  n: fc.integer({ min: 1, max: 7 }),
  m: fc.integer({ min: 1, max: 9 }),
  k: fc.integer({ min: 1, max: 6 }),
});

/** Registers the test of a device, without what `isLeftOut` says of the name of a case. */
export function testOperators(
  name: string,
  open: () => Promise<Device>,
  runs = RUNS,
  isLeftOut: (operation: string) => boolean = () => false,
  test: RegisterTest = Deno.test,
): void {
  test(`the ${name} device computes every operation as the reference does`, async (t) => {
    const device = await open(), judge = await openReference();
    try {
      for (const [operation, make] of Object.entries({ ...OPERATOR_CASES, ...WINDOW_OPERATORS })) {
        await t.step({
          name: operation,
          ignore: isLeftOut(operation),
          fn: () =>
            fc.assert(
              fc.asyncProperty(
                sizes,
                fc.nat(),
                (sizes, seed) => compare(device, judge, make(sizes), seed),
              ),
              { numRuns: runs },
            ),
        });
      }
      assert.equal(device.allocatedBytes, 0);
    } finally {
      device.close();
      judge.close();
    }
  });
}
