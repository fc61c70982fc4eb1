/** The vote before a step: whether gradients can be added and used. */

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
import { ISOLATE_DEVICES } from "../../devices.ts";

/** A matrix of more than one piece in FP16, and a vector. */
const SPECS = [{ name: "weight", shape: [700, 100] }, { name: "bias", shape: [5] }];

async function withNorms(
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

for (const name of ISOLATE_DEVICES) {
  for (const precision of ["fp32", "fp16"] as const) {
    Deno.test(`one ${precision} gradient on ${name} that is not finite is enough to refuse a step`, async () => {
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

    Deno.test(`sums of squares of ${precision} gradients on ${name} are exact where f32 is`, async () => {
      await withNorms(name, precision, async ({ squares }, set) => {
        for (const at of [0, 65_535, 65_536, 69_999]) set(0, at, 2);
        set(1, 2, -3);
        assert.deepEqual(await squares(), new Map([["weight", 16], ["bias", 9]]));
      });
    });
  }

  Deno.test(`FP16 gradients on ${name} may be 65504 over the number of copies`, async () => {
    await withNorms(name, "fp16", async ({ areSafe }, set) => {
      set(0, 65_537, -F16_MAX);
      assert.deepEqual([await areSafe(1), await areSafe(2)], [true, false]);
      set(0, 65_537, F16_MAX / 2);
      assert.deepEqual([await areSafe(1), await areSafe(2), await areSafe(3)], [true, true, false]);
    });
  });

  Deno.test(`FP16 gradients on ${name} leave 16 for the rounding of each addition but the first`, async () => {
    await withNorms(name, "fp16", async ({ areSafe }, set) => {
      const cases = [[10, 6536, true], [10, 6540, false], [34, 1911, true], [34, 1912, false]];
      for (const [copies, gradient, isSafe] of cases as [number, number, boolean][]) {
        set(0, 1, gradient);
        assert.equal(await areSafe(copies), isSafe, `${copies} copies of ${gradient}`);
      }
    });
  });

  Deno.test(`FP32 gradients on ${name} may be so large that the squares of a sum stay finite`, async () => {
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

/** FP16 numbers around `value`, nearest multiples of its spacing. */
function neighbours(value: number, count: number): number[] {
  const [bits] = new Uint16Array(Float16Array.of(value).buffer);
  return [
    ...new Float16Array(
      Uint16Array.from({ length: count }, (_, i) => bits! + i - count / 2).buffer,
    ),
  ];
}

Deno.test("copies that pass the vote never overflow FP16 when they are added left to right", async () => {
  await withNorms("native", "fp16", async ({ areSafe }, set) => {
    let overflows = 0;
    for (let copies = 2; copies <= 64; copies++) {
      for (const gradient of [...neighbours(F16_MAX / copies, 12), 0.98 * F16_MAX / copies]) {
        set(1, 0, gradient);
        let sum = 0;
        for (let i = 0; i < copies; i++) sum = Math.f16round(sum + Math.f16round(gradient));
        const isSafe = await areSafe(copies), overflowed = !Number.isFinite(sum);
        assert.ok(!isSafe || !overflowed, `${copies} copies of ${gradient}`);
        if (gradient * copies <= 0.981 * F16_MAX) assert.ok(isSafe, `${copies} of ${gradient}`);
        if (overflowed && gradient * copies <= F16_MAX) overflows++;
      }
    }
    assert.ok(overflows > 0, "rounding alone must make some sums overflow");
  });
});
