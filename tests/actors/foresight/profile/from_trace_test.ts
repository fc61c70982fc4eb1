/** The trace of a run becomes costs of its stages, and a prediction of it the step that was traced. */

import assert from "node:assert/strict";
import { parseProfile, predictStep } from "../../../../actors/foresight/mod.ts";
import { profileOfTrace, type TracedRun } from "../../../../actors/foresight/profile/from_trace.ts";
import type { TracedAction } from "../../../../actors/pipeline/step.ts";
import { compileRun } from "../../../../actors/run/compile_run.ts";
import { mlp } from "../../../../kernels/mod.ts";
import { createSchedule } from "../../../../schedules/mod.ts";

const model = mlp({ inputs: 4, hidden: 4, layers: 3, classes: 2 }, 2);

const run: TracedRun = {
  device: "native",
  transport: "worker",
  replicas: 1,
  microBatch: 2,
  stages: [
    { parameters: 1000, share: 0.25, activationBytes: 8 },
    { parameters: 3000, share: 0.75, activationBytes: 24 },
  ],
};

/** A step of two stages and one micro-batch, whose actions begin so much later and take so much longer. */
const stepAt = (at: number, factor = 1): { traces: TracedAction[][] } => {
  const span = (name: string, start: number, end: number, more: Partial<TracedAction> = {}) => ({
    name,
    start: at + factor * start,
    end: at + factor * end,
    ...more.arrived !== undefined && { arrived: at + factor * more.arrived },
  });
  return {
    traces: [
      [
        span("0F0", 0, 1),
        span("0B0", 10.5, 13, { arrived: 10.25 }),
        span("reduce 0", 13.5, 13.75),
        span("optimizer", 14, 14.5),
      ],
      [
        span("1F0", 1.5, 4, { arrived: 1.25 }),
        span("1B0", 4.25, 10),
        span("reduce 1", 13.5, 14),
        span("optimizer", 14, 15.5),
      ],
    ],
  };
};

Deno.test("stages cost the means of their actions, but for those of a first step that warms up", () => {
  const { source, layers, links, dispatchMs, optimizer, closing } = profileOfTrace(run, [
    stepAt(0, 10),
    stepAt(1000),
    stepAt(2000),
  ]);
  assert.equal(source, "trace");
  assert.deepEqual(layers.map((one) => [one.forwardMs, one.backwardMs, one.atOnce]), [
    [1, 2.5, 2],
    [2.5, 5.75, 2],
  ]);
  assert.deepEqual(links, { worker: { latencyMs: 0.25 } });
  assert.equal(dispatchMs, 0.25);
  assert.equal(optimizer.msPerMillion, 2 / 0.004);
  // One copy of each stage adds nothing: what its all-reduce takes are norms.
  assert.equal(closing.norm.msPerMillion, 0.75 / 0.004);
  assert.equal(closing.stepMs, 15.5 - 13 - 2);
});

Deno.test("the profile of a trace can be kept, and a trace without steps has none", () => {
  const profile = profileOfTrace(run, [stepAt(0)]);
  assert.deepEqual(parseProfile(JSON.stringify(profile)), profile);
  assert.throws(() => profileOfTrace(run, []), /the trace must have a step/);
  const { traces: [first] } = stepAt(0);
  assert.throws(() => profileOfTrace(run, [{ traces: [first!, []] }]), /a backward of stage 1/);
});

Deno.test("copies of a stage share the cost of adding their gradients", () => {
  const copy = (worker: number): TracedAction[] => [
    { name: "0F0", start: 0, end: 1 },
    { name: "0B0", start: 1, end: 3 },
    { name: "reduce 0", start: 4, end: 5 + worker },
    { name: "optimizer", start: 6, end: 7 },
  ];
  const alone = { ...run, replicas: 2, stages: [{ ...run.stages[0]!, share: 1 }] };
  const { reduce, closing, optimizer } = profileOfTrace(alone, [{ traces: [copy(0), copy(1)] }]);
  // Each adds the half that it owns: 1.5 ms of a half for a thousand numbers.
  assert.equal(reduce.msPerMillion, 2 * 1.5 / 0.001);
  assert.equal(closing.norm.msPerMillion, 0);
  assert.equal(optimizer.msPerMillion, 1 / 0.001);
});

Deno.test("a prediction from a trace has the stages of the run, or shares its time out by work", () => {
  const schedule = createSchedule("1f1b", { workers: 2, microBatches: 1 });
  const compiled = compileRun({ model }, schedule);
  const total = compiled.model.costs.reduce((sum, one) => sum + one, 0);
  const shares = compiled.programs.map(({ programs, layers }) =>
    layers.reduce((sum, { program }) => {
      const { forward, backward } = programs[program]!.cost;
      return sum + forward + backward;
    }, 0) / total
  );
  const stages = run.stages.map((stage, i) => ({ ...stage, share: shares[i]! }));
  const profile = profileOfTrace({ ...run, stages }, [stepAt(0)]);
  const options = { model, device: "native", microBatches: 1, draws: 0 };
  const same = predictStep(profile, { ...options, workers: 2 });
  assert.deepEqual(same.model.stages.map((one) => one.forwardMs), [1, 2.5]);
  assert.deepEqual(same.notes, []);
  const one = predictStep(profile, options);
  assert.deepEqual(one.model.stages.map((stage) => [stage.forwardMs, stage.backwardMs]), [
    [3.5, 8.25],
  ]);
  assert.match(one.notes[0]!, /1 stages by their work, from 2 of a trace/);
  const larger = predictStep(profile, { ...options, model: model.withSamples!(4), workers: 2 });
  const forwardMs = larger.model.stages.reduce((sum, stage) => sum + stage.forwardMs, 0);
  assert.ok(Math.abs(forwardMs - 7) < 1e-9, `${forwardMs}`);
});
