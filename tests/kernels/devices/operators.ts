/** Every operation of a device, and gradients, against the reference; and the bits of images. */

import assert from "node:assert/strict";
import { type Device, openReference } from "../../../kernels/mod.ts";
import { elementCount } from "../../../kernels/graph/shapes.ts";
import { atDepth } from "../../depth.ts";
import type { RegisterTest } from "../../devices.ts";
import fc from "../../fast_check.ts";
import { computedOn, differentiated } from "../graph/computed.ts";
import { CASES } from "../graph/gradient_cases.ts";
import type { Case } from "../graph/slopes.ts";
import { COMPOSED_CASES, TIES, WINDOW_CASES } from "../graph/window_cases.ts";
import { closing, pseudoRandom, runModel, withDevice } from "./models.ts";
import {
  assertNear,
  modelFor,
  numbersFor,
  OPERATOR_CASES,
  type OperatorCase,
} from "./operator_cases.ts";

/** A device under test. */
export interface Tested {
  readonly name: string;
  readonly open: () => Promise<Device>;
  /** Models of each operation; each has random sizes and numbers. */
  readonly runs?: number;
  /** Gradients of each operation. */
  readonly cases?: number;
  /** Cases that the device does not compute, by their names. */
  readonly isLeftOut?: (operation: string) => boolean;
  readonly test?: RegisterTest;
}

/** Computes an operation on a device. */
type Results = Readonly<Record<string, readonly number[]>>;

/** Opens the device for one test, which must free its memory. */
const testDevice = ({ open }: Tested, use: (device: Device) => Promise<void>) =>
  withDevice(open(), async (device) => {
    const before = device.allocatedBytes;
    await use(device);
    assert.equal(device.allocatedBytes, before);
  });

/**
 * How far results may be apart, relative to the larger of 1 and the result. ONNX Runtime's
 * vectorised exp, tanh and erf are good to a few units in the last place of f32 (6e-8).
 */
const TOLERANCE = { f32: 2e-6, f16: 2e-3, i32: 0, i64: 0, bool: 0 };

/** The outputs of a case, by name. */
function computeOperator(device: Device, given: OperatorCase, seed: number) {
  return runModel(device, modelFor(given), ({ name }) => {
    const i = Number(name.slice(1));
    return numbersFor(given.inputs[i]!, seed + i * 1000);
  });
}

const sizes = fc.record({
  b: fc.integer({ min: 1, max: 3 }),
  n: fc.integer({ min: 1, max: 7 }),
  m: fc.integer({ min: 1, max: 9 }),
  k: fc.integer({ min: 1, max: 6 }),
});

/** Registers the test of all operations of a device. */
export function testOperators(tested: Tested): void {
  const { name, runs = atDepth(3, 20), isLeftOut = () => false, test = Deno.test } = tested;
  test(`the ${name} device computes every operation as the reference does`, (t) =>
    testDevice(tested, async (device) => {
      using judge = closing(await openReference());
      for (const [operation, make] of Object.entries(OPERATOR_CASES)) {
        if (isLeftOut(operation)) continue;
        const compare = async (given: OperatorCase, seed: number) => {
          const got = await computeOperator(device, given, seed);
          for (const [y, wanted] of await computeOperator(judge, given, seed)) {
            assertNear(got.get(y)!, wanted, TOLERANCE[given.outputs[Number(y[1])]!.dtype], y);
          }
        };
        await t.step(operation, () =>
          fc.assert(
            fc.asyncProperty(sizes, fc.nat(), (sizes, seed) => compare(make(sizes), seed)),
            { numRuns: runs },
          ));
      }
    }));
}

/** The result of a graph and its gradients for all inputs, or some of them, on random numbers. */
function computeGradients(
  device: Device,
  one: Case,
  seed: number,
  isWanted: (result: string) => boolean = () => true,
): Promise<Results> {
  const { shapes, build, range: [low, high] = [-1, 1] } = one, isWhole = one === TIES;
  const { g, results } = differentiated(shapes, build);
  const wanted = Object.fromEntries(Object.entries(results).filter(([name]) => isWanted(name)));
  const numbers = g.inputs.map(({ name, shape }, i) => [
    name,
    pseudoRandom(seed + i, elementCount(shape)).map((x) =>
      isWhole ? Math.round(x) : low + (high - low) * (x + 1) / 2
    ),
  ]);
  return computedOn(device, g, wanted, Object.fromEntries(numbers));
}

/** Of 1, or of the largest number of a result. */
const GRADIENT_TOLERANCE = 2e-6;

/** Registers the test of the gradients of a device. */
export function testGradients(tested: Tested): void {
  const { name, cases = Infinity, isLeftOut = () => false, test = Deno.test } = tested;
  test(`the ${name} device computes gradients as the reference does`, (t) =>
    testDevice(tested, async (device) => {
      using judge = closing(await openReference());
      const operations = { ...CASES, ...COMPOSED_CASES, "equal elements": TIES };
      for (const [operation, all] of Object.entries(operations)) {
        if (isLeftOut(operation)) continue;
        const compare = async (one: Case, seed: number) => {
          const got = await computeGradients(device, one, seed);
          for (const [result, wanted] of Object.entries(await computeGradients(judge, one, seed))) {
            const size = Math.max(1, ...wanted.map(Math.abs));
            const [found, all] = [got[result]!, wanted].map((list) => list.map((x) => x / size));
            assertNear(found!, all!, GRADIENT_TOLERANCE, `case ${seed}: ${result}`);
          }
        };
        await t.step(operation, async () => {
          const some = [all].flat().slice(0, cases);
          for (const [seed, one] of some.entries()) await compare(one, seed);
        });
      }
    }));
}

/** Registers the test of what a device computes of images. */
export function testBits(tested: Tested): void {
  const { name, cases = Infinity, isLeftOut = () => false, test = Deno.test } = tested;
  test(`the ${name} device gives images and their gradients the same bits again, and one by one`, () =>
    testDevice(tested, async (device) => {
      for (const [operation, all] of Object.entries({ ...WINDOW_CASES, ...COMPOSED_CASES })) {
        if (isLeftOut(operation)) continue;
        for (const [seed, one] of [all].flat().slice(0, cases).entries()) {
          const first = await computeGradients(device, one, seed);
          for (const result of Object.keys(first)) {
            const alone = await computeGradients(device, one, seed, (name) => name === result);
            assert.deepEqual(alone[result], first[result], `${operation}, case ${seed}: ${result}`);
          }
          assert.deepEqual(await computeGradients(device, one, seed), first, operation);
        }
      }
    }));
}
