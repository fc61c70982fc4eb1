import assert from "node:assert/strict";
import { F16_MAX } from "../../../kernels/mod.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";
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
