import assert from "node:assert/strict";
import { learningRateAt } from "../../../kernels/mod.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";
import { testOptimizer } from "./optimizer.ts";

for (const name of ISOLATE_DEVICES) testOptimizer(name);

Deno.test("the learning rate warms up linearly and falls along half a cosine", () => {
  const rate = { rate: 2, schedule: "cosine", warmup: 4, steps: 104 } as const;
  assert.equal(learningRateAt(rate, 1), 0.5);
  assert.equal(learningRateAt(rate, 4), 2);
  assert.equal(learningRateAt(rate, 5), 2);
  assert.ok(Math.abs(learningRateAt(rate, 55) - 1) < 1e-12);
  assert.ok(learningRateAt(rate, 104) > 0 && learningRateAt(rate, 104) < 0.001);
  const constant = { ...rate, schedule: "constant" } as const;
  assert.equal(learningRateAt(constant, 104), 2);
});

Deno.test("linear and cosine fall from the full rate towards the last, half of it half way", () => {
  for (const schedule of ["linear", "cosine"] as const) {
    const rate = { rate: 3, schedule, warmup: 4, minRate: 1, steps: 104 };
    const rates = Array.from({ length: 104 }, (_, i) => learningRateAt(rate, i + 1));
    assert.deepEqual(rates.slice(0, 5), [0.75, 1.5, 2.25, 3, 3]);
    assert.ok(Math.abs(rates[54]! - 2) < 1e-12);
    assert.ok(rates.slice(5).every((value, i) => value < rates[i + 4]!), schedule);
    assert.ok(rates[103]! > 1 && rates[103]! <= 1.0201, schedule);
  }
});
