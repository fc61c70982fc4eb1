/** The vote before a step, on any device: whether gradients can be added and used. */

import assert from "node:assert/strict";
import {
  createParameters,
  type Device,
  type DeviceName,
  F16_MAX,
  openDevice,
  openGradientNorms,
  type Precision,
} from "../../../kernels/mod.ts";
import type { RegisterTest } from "../../devices.ts";

/** A matrix of more than one piece in FP16, and a vector. */
const SPECS = [{ name: "weight", shape: [700, 100] }, { name: "bias", shape: [5] }];

/** Sums of squares and votes of gradients that can be set one by one. */
export async function withNorms(
  name: DeviceName,
  precision: Precision,
  use: (
    norms: Awaited<ReturnType<typeof openGradientNorms>>,
    set: (parameter: number, at: number, value: number) => void,
    device: Device,
  ) => Promise<void>,
): Promise<void> {
  const device = await openDevice(name);
  try {
    const store = createParameters(device, SPECS, { moments: 1, precision });
    const one = (value: number) =>
      precision === "fp16" ? Float16Array.of(value) : Float32Array.of(value);
    await use(
      await openGradientNorms(device, store),
      (parameter, at, value) =>
        device.write(device.view(store.parameters[parameter]!.gradient, at, [1]), one(value)),
      device,
    );
  } finally {
    device.close();
  }
}

/** Registers the tests of a device in one precision. */
export function testGradientNorms(
  name: DeviceName,
  precision: Precision,
  test: RegisterTest = Deno.test,
): void {
  test(`one ${precision} gradient on ${name} that is not finite is enough to refuse a step`, async () => {
    await withNorms(name, precision, async ({ areSafe }, set) => {
      assert.equal(await areSafe(1), true);
      for (const value of [NaN, Infinity, -Infinity]) {
        for (const [parameter, at] of [[0, 0], [0, 3], [0, 69_999], [1, 4]] as const) {
          set(parameter, at, value);
          assert.equal(await areSafe(1), false, `${value} at ${at}`);
          set(parameter, at, 1);
          assert.equal(await areSafe(1), true);
        }
      }
    });
  });

  test(`sums of squares of ${precision} gradients on ${name} are exact where f32 is`, async () => {
    await withNorms(name, precision, async ({ squares }, set) => {
      for (const at of [0, 65_535, 65_536, 69_999]) set(0, at, 2);
      set(1, 2, -3);
      assert.deepEqual(await squares(), new Map([["weight", 16], ["bias", 9]]));
    });
  });
}

/** Registers the tests of how large FP16 gradients may be. */
export function testFp16Limits(name: DeviceName, test: RegisterTest = Deno.test): void {
  test(`FP16 gradients on ${name} may be 65504 over the number of copies`, async () => {
    await withNorms(name, "fp16", async ({ areSafe }, set) => {
      set(0, 65_537, -F16_MAX);
      assert.deepEqual([await areSafe(1), await areSafe(2)], [true, false]);
      set(0, 65_537, F16_MAX / 2);
      assert.deepEqual([await areSafe(1), await areSafe(2), await areSafe(3)], [true, true, false]);
    });
  });

  test(`FP16 gradients on ${name} leave 16 for the rounding of each addition but the first`, async () => {
    await withNorms(name, "fp16", async ({ areSafe }, set) => {
      const cases = [[10, 6536, true], [10, 6540, false], [34, 1911, true], [34, 1912, false]];
      for (const [copies, gradient, isSafe] of cases as [number, number, boolean][]) {
        set(0, 1, gradient);
        assert.equal(await areSafe(copies), isSafe, `${copies} copies of ${gradient}`);
      }
    });
  });
}

/** Registers the test of how large FP32 gradients may be. */
export function testFp32Limits(name: DeviceName, test: RegisterTest = Deno.test): void {
  test(`FP32 gradients on ${name} may be so large that the squares of a sum stay finite`, async () => {
    await withNorms(name, "fp32", async ({ areSafe }, set) => {
      set(1, 0, 1e18);
      assert.deepEqual([await areSafe(1), await areSafe(10), await areSafe(14)], [
        true,
        true,
        false,
      ]);
      set(1, 0, 2e19); // its square is infinite
      assert.equal(await areSafe(1), false);
    });
  });
}
