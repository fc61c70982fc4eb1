/** The layout that a profile recommends, and one that is cut for the schedule by estimated work. */

import assert from "node:assert/strict";
import {
  type PredictOptions,
  predictStep,
  recommendLayout,
} from "../../../actors/foresight/mod.ts";
import { compileRun } from "../../../actors/run/compile_run.ts";
import { gpt2 } from "../../../kernels/mod.ts";
import { createSchedule, simulateStep, withRecomputation } from "../../../schedules/mod.ts";
import { outcome, type Sizes, SMALL } from "../runs.ts";
import { profileOf } from "./stated_layers.ts";

const SIZES = { layers: 3, hidden: 8, heads: 2, seq: 4, vocab: 16 };
const model = gpt2(SIZES, 2);

Deno.test("of all layouts none has a shorter step than the one that is recommended", () => {
  const profile = profileOf(SIZES);
  for (const name of ["1f1b", "zb-h1", "chimera"]) {
    const schedule = createSchedule(name, { workers: 2, microBatches: 4 });
    const compiled = compileRun({ model }, schedule);
    const { layout, makespan, isExact } = recommendLayout(profile, {
      schedule,
      compiled,
      device: "native",
    });
    assert.ok(isExact);
    const stepOf = (layout: string) => {
      const options: PredictOptions = { model, schedule, workers: 2, layout, device: "native" };
      return predictStep(profile, { ...options, microBatches: 4 }).simulated.computedMs;
    };
    const blocks = [0, 0.5, 1, 1.5, 2, 2.5, 3];
    const others = blocks.map((first) =>
      [["E", first], [3 - first, "H"]].map((one) => one.filter((piece) => piece !== 0).join(","))
        .join("|")
    );
    const least = Math.min(...others.map(stepOf));
    assert.ok(Math.abs(stepOf(layout) - least) < 1e-6, `${name}: ${layout}`);
    assert.ok(Math.abs(makespan - least) < 1e-6, `${name}: ${makespan} for ${least}`);
  }
});

Deno.test("a recomputation is predicted with the time of what it computes again", () => {
  const profile = profileOf(SIZES), sizes = { workers: 1, microBatches: 2 };
  const plain = createSchedule("gpipe", sizes), again = withRecomputation(plain);
  const ms = (schedule: typeof plain) => {
    const options = { model, schedule, microBatches: 2, device: "native" };
    const prediction = predictStep(profile, options);
    return simulateStep(prediction.model).computedMs;
  };
  const { stages: [stage] } = predictStep(profile, {
    ...{ model, schedule: again, microBatches: 2, device: "native" },
  }).model;
  assert.ok(stage!.recomputeMs! > 0);
  assert.equal(ms(again) - ms(plain), 2 * stage!.recomputeMs!);
});

Deno.test("--layout schedule trains with the bits of every other cut", async () => {
  const sizes: Sizes = { ...SMALL, layers: 3, hidden: 16, seq: 8, microBatches: 4 };
  const how = { device: "reference", runtime: "local", workers: 2, schedule: "1f1b" } as const;
  const cut = await outcome(sizes, { ...how, layout: "schedule" });
  assert.deepEqual(cut.bits, (await outcome(sizes, how)).bits);
});
