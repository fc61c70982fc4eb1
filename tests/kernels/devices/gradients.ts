/** What every device promises of gradients, and of convolutions, pooling and norms of images. */

import assert from "node:assert/strict";
import {
  addGradients,
  type Device,
  elementCount,
  Graph,
  openReference,
  type Tensor,
} from "../../../kernels/mod.ts";
import type { RegisterTest } from "../../devices.ts";
import type { Case } from "../graph/slopes.ts";
import { CASES } from "../graph/gradient_cases.ts";
import { COMPOSED_CASES, TIES, WINDOW_CASES } from "../graph/window_cases.ts";
import { modelOf, numbersOf, pseudoRandom, tensorOf } from "./models.ts";

/** The result of a graph and its gradients for all inputs, or some of them, on random numbers. */
async function compute(
  device: Device,
  one: Case,
  seed: number,
  wanted: (result: string) => boolean = () => true,
) {
  const { shapes, build, range: [low, high] = [-1, 1] } = one, isWhole = one === TIES;
  const g = new Graph(), inputs = shapes.map((shape, i) => g.input(`x${i}`, shape));
  const y = build(g, ...inputs), dy = g.input("dy", y.shape);
  const gradients = addGradients(g, [[y, dy]], inputs);
  const all = { y, ...Object.fromEntries(gradients.map((value, i) => [`d${i}`, value!])) };
  const results = Object.fromEntries(Object.entries(all).filter(([name]) => wanted(name)));
  const kernel = await device.compile(modelOf(g, results));
  const given = g.inputs.filter(({ name }) => kernel.inputs.includes(name));
  const bound = given.map((input): [string, Tensor] => [
    input.name,
    tensorOf(
      device,
      input.shape,
      pseudoRandom(seed + g.inputs.indexOf(input), elementCount(input.shape)).map((x) =>
        isWhole ? Math.round(x) : low + (high - low) * (x + 1) / 2
      ),
    ),
  ]);
  const found = Object.entries(results).map(([name, { shape }]): [string, Tensor] => [
    name,
    device.alloc("f32", shape),
  ]);
  await kernel.bind(Object.fromEntries(bound), Object.fromEntries(found))();
  const numbers: Record<string, number[]> = {};
  for (const [name, tensor] of found) numbers[name] = await numbersOf(device, tensor);
  for (const [, tensor] of [...bound, ...found]) device.free(tensor);
  kernel.close();
  return numbers;
}

/** Of 1, or of the largest number of a result. */
const TOLERANCE = 2e-6;

/** Registers the test of a device, without what `isLeftOut` says of the name of a case. */
export function testGradients(
  name: string,
  open: () => Promise<Device>,
  isLeftOut: (operation: string) => boolean = () => false,
  test: RegisterTest = Deno.test,
): void {
  test(`the ${name} device computes gradients as the reference does`, async (t) => {
    const device = await open(), judge = await openReference();
    try {
      const cases = Object.entries({ ...CASES, ...COMPOSED_CASES, "equal elements": TIES });
      for (const [operation, all] of cases) {
        await t.step({
          name: operation,
          ignore: isLeftOut(operation),
          fn: async () => {
            for (const [seed, one] of [all].flat().entries()) {
              const got = await compute(device, one, seed), want = await compute(judge, one, seed);
              for (const [result, numbers] of Object.entries(want)) {
                const size = Math.max(1, ...numbers.map(Math.abs));
                numbers.forEach((number, i) => {
                  const distance = Math.abs(got[result]![i]! - number) / size;
                  assert.ok(
                    distance <= TOLERANCE,
                    `case ${seed}: ${result}[${i}] is ${got[result]![i]} and must be ${number}`,
                  );
                });
              }
            }
          },
        });
      }
      assert.equal(device.allocatedBytes, 0);
    } finally {
      device.close();
      judge.close();
    }
  });
}

/** Registers the test of what a device computes of images. */
export function testBits(
  name: string,
  open: () => Promise<Device>,
  test: RegisterTest = Deno.test,
): void {
  test(`the ${name} device gives images and their gradients the same bits again, and one by one`, async () => {
    const device = await open();
    try {
      for (const [operation, all] of Object.entries({ ...WINDOW_CASES, ...COMPOSED_CASES })) {
        for (const [seed, one] of [all].flat().entries()) {
          const first = await compute(device, one, seed);
          assert.deepEqual(await compute(device, one, seed), first, operation);
          for (const result of Object.keys(first)) {
            const alone = await compute(device, one, seed, (name) => name === result);
            assert.deepEqual(alone[result], first[result], `${operation}, case ${seed}: ${result}`);
          }
        }
      }
    } finally {
      device.close();
    }
  });
}
