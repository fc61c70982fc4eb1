/** Values that go beyond the next stage are predicted, and weighed by the layout that is recommended. */

import assert from "node:assert/strict";
import {
  type LayerCost,
  predictStep,
  type Profile,
  recommendLayout,
} from "../../../actors/foresight/mod.ts";
import { layerFacts } from "../../../actors/foresight/profile/layer_facts.ts";
import { compileRun } from "../../../actors/run/compile_run.ts";
import { ADAMW_DEFAULTS, compileModel, skipEdges, startsOf } from "../../../kernels/mod.ts";
import { createSchedule, simulateStep } from "../../../schedules/mod.ts";
import { SKIPPING } from "../skips/skipping_model.ts";

const nothing = { ms: 0, msPerMillion: 0 };
const sizes = { workers: 4, microBatches: 6 };
const SCHEDULE = createSchedule("1f1b", sizes);
const PROGRAM = compileModel(SKIPPING, "none");

/** A profile in which each layer takes a ms forward, and a link carries so many bytes in a ms. */
function profileOf(bytesPerMs: number): Profile {
  const layers = layerFacts(PROGRAM, { optimizer: ADAMW_DEFAULTS }).map((one): LayerCost => ({
    ...one,
    ...{
      sizes: {},
      microBatch: SKIPPING.samples ?? 1,
      device: "native",
      recompute: "none",
      atOnce: 1,
    },
    ...{ forwardMs: 1, backwardMs: 2 },
  }));
  return {
    ...{ format: "troupe-profile", version: 1, source: "stated" },
    machine: { name: "paper", cores: 4 },
    layers,
    ...{ optimizer: nothing, reduce: nothing, dispatchMs: 0, notes: [] },
    links: { worker: { latencyMs: 0, bytesPerMs } },
    closing: { vote: nothing, norm: nothing, end: nothing, stepMs: 0 },
  };
}

const predicted = (profile: Profile, layout: string) =>
  predictStep(profile, { ...sizes, model: SKIPPING, schedule: "1f1b", device: "native", layout });

Deno.test("a prediction counts what goes beyond the next stage, where the layout cuts the model", () => {
  const { model, simulated } = predicted(profileOf(16), "auto"), { edges } = model.schedule;
  const inModel = skipEdges(PROGRAM, startsOf(PROGRAM, 4)).map(({ key: _, ...edge }) => edge);
  assert.deepEqual(edges, inModel);
  assert.ok(inModel.some(({ from, to }) => to.some((stage) => stage > from + 1)));
  assert.ok(inModel.every(({ bytes }) => bytes > 0));
  const { edges: _, ...chain } = model.schedule;
  assert.ok(simulated.computedMs > simulateStep({ ...model, schedule: chain }).computedMs);
  assert.ok(simulated.peakBytes.some((bytes) => bytes > 0));
});

Deno.test("halves of micro-batches bring all of a value in two messages", () => {
  const { model: { schedule } } = predictStep(profileOf(16), {
    ...{ workers: 4, microBatches: 8, model: SKIPPING, device: "native" },
    ...{ schedule: "chimera", scheduleOptions: { scale: "halving" } },
  });
  const whole = skipEdges(PROGRAM, startsOf(PROGRAM, 4));
  assert.ok(schedule.lists!.some((list) => list.hasHalves));
  // What does not depend on samples, such as the scale, is sent with each half: twice as many bytes.
  const sizes = schedule.edges!.map(({ bytes }, i) => bytes! / whole[i]!.bytes);
  assert.deepEqual([...new Set(sizes)].sort(), [1, 2]);
});

Deno.test("the layout that is recommended weighs them", () => {
  const profile = profileOf(4), compiled = compileRun({ model: SKIPPING }, SCHEDULE);
  const cut = { schedule: SCHEDULE, compiled, device: "native" };
  const link = profile.links.worker!;
  const weighed = recommendLayout(profile, { ...cut, link }), blind = recommendLayout(profile, cut);
  const stepOf = (layout: string) => predicted(profile, layout).simulated.computedMs;
  assert.notEqual(weighed.layout, blind.layout);
  assert.ok(stepOf(weighed.layout) < stepOf(blind.layout));
});
