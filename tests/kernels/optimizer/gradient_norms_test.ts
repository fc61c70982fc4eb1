import assert from "node:assert/strict";
import {
  createParameters,
  F16_MAX,
  openGradientNorms,
  openReference,
} from "../../../kernels/mod.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";
import { ownMemory } from "../own_memory.ts";
import { testFp16Limits, testFp32Limits, testGradientNorms, withNorms } from "./gradient_norms.ts";

for (const name of ISOLATE_DEVICES) {
  for (const precision of ["fp32", "fp16"] as const) testGradientNorms(name, precision);
  testFp16Limits(name);
  testFp32Limits(name);
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

for (const precision of ["fp32", "fp16"] as const) {
  Deno.test(`a long ${precision} gradient on a device of its own memory is reduced in rows, and none is missed`, async () => {
    const device = ownMemory(await openReference()), shape = [2 ** 9, 3 * 2 ** 9];
    const specs = [{ name: "long", shape }, { name: "short", shape: [5] }];
    const store = createParameters(device, specs, { moments: 1, precision });
    const { squares, areSafe } = await openGradientNorms(device, store);
    const length = shape[0]! * shape[1]!;
    for (const at of [0, length / 256 - 1, length / 256, length - 1]) {
      const values = precision === "fp16" ? new Float16Array(length) : new Float32Array(length);
      values[at] = 3;
      device.write(store.parameters[0]!.gradient, values);
      assert.deepEqual(await squares(), new Map([["long", 9], ["short", 0]]));
      assert.equal(await areSafe(2), true);
      values[at] = precision === "fp16" ? F16_MAX : 2e19;
      device.write(store.parameters[0]!.gradient, values);
      assert.equal(await areSafe(2), false);
    }
    device.close();
  });
}
