/** Profiles from files, which may be invalid, and from traces of runs. */

import assert from "node:assert/strict";
import { predictStep, profileOfTrace, type TracedRun } from "../../../actors/planner/predict.ts";
import {
  parseProfile,
  type Profile,
  PROFILE_BYTES_MAX,
  readProfile,
} from "../../../actors/planner/profile.ts";
import type { TracedAction } from "../../../actors/pipeline/step.ts";
import { compileRun } from "../../../actors/run/compile.ts";
import { mlp } from "../../../kernels/mod.ts";
import { createSchedule } from "../../../schedules/mod.ts";
import { acts } from "../run/timeline/acts.ts";
import { assertRefused } from "../../kernels/graph/refused.ts";
import { folderTest } from "../../in_folder.ts";
import CASES from "./profile.json" with { type: "json" };

const profile = CASES.profile as Profile;

/** The text of the profile with something else at a path. */
function withValue(path: readonly (string | number)[], value: unknown): string {
  const copy = structuredClone(profile) as unknown as Record<string | number, unknown>;
  let at = copy;
  for (const name of path.slice(0, -1)) at = at[name] as typeof copy;
  at[path.at(-1)!] = value;
  return JSON.stringify(copy);
}

Deno.test("a profile is read as it was written", () => {
  assert.deepEqual(parseProfile(JSON.stringify(profile)), profile);
});

Deno.test("other files and versions are refused, and invalid fields are named by their path", () => {
  const text = JSON.stringify(profile), refused = CASES.refused as [string[], unknown][];
  return assertRefused("profiles", [
    () => parseProfile(text.slice(0, -20)),
    () => parseProfile(""),
    () => parseProfile("[]"),
    () => parseProfile("{}"),
    () => parseProfile(text.replace('"version":1', '"version":1,"version":1')),
    () => parseProfile(text.replace("1.5", "1e999")),
    () => parseProfile(withValue(["layers", 0, "kind"], "x".repeat(5000))),
    ...refused.map(([path, value]) =>
      [
        `${path.join(".")}: ${JSON.stringify(value)}`,
        () => parseProfile(withValue(path, value)),
      ] as const
    ),
  ]);
});

folderTest("a device or a file that is too large is refused before it is read", async (folder) => {
  const path = `${folder}/profile.json`;
  await Deno.writeTextFile(path, JSON.stringify(profile));
  assert.deepEqual(readProfile(path), profile);
  await assertRefused("profile_files", [
    ["another version", async () => {
      await Deno.writeTextFile(path, withValue(["version"], 3));
      readProfile(path);
    }],
    ["a large file", async () => {
      await Deno.truncate(path, PROFILE_BYTES_MAX + 1);
      readProfile(path);
    }],
    () => readProfile("/dev/zero"),
    () => readProfile(`${folder}/nowhere.json`),
  ], { FOLDER: folder });
});

const model = mlp({ inputs: 4, hidden: 4, layers: 3, classes: 2 }, 2);

const run: TracedRun = {
  ...{ device: "native", transport: "worker", replicas: 1, microBatch: 2 },
  ...{ parameters: [1000, 3000], shares: [0.25, 0.75], activationBytes: [8, 24] },
};

/** A step of two stages and one micro-batch that begins at a time and takes `factor` times as long. */
const stepAt = (at: number, factor = 1): { traces: TracedAction[][] } => {
  const moved = ({ name, start, end, arrived }: TracedAction): TracedAction => ({
    ...{ name, start: at + factor * start, end: at + factor * end },
    ...arrived !== undefined && { arrived: at + factor * arrived },
  });
  return {
    traces: [
      acts("0F0 0-1, 0B0 10.5-13<10.25, reduce 0 13.5-13.75, optimizer 14-14.5").map(moved),
      acts("1F0 1.5-4<1.25, 1B0 4.25-10, reduce 1 13.5-14, optimizer 14-15.5").map(moved),
    ],
  };
};

Deno.test("costs of stages are the means of their actions, without the first step", () => {
  const steps = [stepAt(0, 10), stepAt(1000), stepAt(2000)];
  const { source, layers, links, dispatchMs, optimizer, closing } = profileOfTrace(run, steps);
  assert.equal(source, "trace");
  const costs = layers.map((one) => [one.forwardMs, one.backwardMs, one.atOnce]);
  assert.deepEqual(costs, [[1, 2.5, 2], [2.5, 5.75, 2]]);
  assert.deepEqual(links, { worker: { latencyMs: 0.25 } });
  assert.equal(dispatchMs, 0.25);
  assert.equal(optimizer.msPerMillion, 2 / 0.004);
  // One copy of each stage adds nothing: what its all-reduce takes are norms.
  assert.equal(closing.norm.msPerMillion, 0.75 / 0.004);
  assert.equal(closing.stepMs, 15.5 - 13 - 2);
});

Deno.test("the profile of a trace can be written and parsed, and a trace without steps is refused", () => {
  const profile = profileOfTrace(run, [stepAt(0)]);
  assert.deepEqual(parseProfile(JSON.stringify(profile)), profile);
  assert.throws(() => profileOfTrace(run, []), /the trace must have a step/);
  const { traces: [first] } = stepAt(0);
  assert.throws(() => profileOfTrace(run, [{ traces: [first!, []] }]), /a backward of stage 1/);
});

Deno.test("copies of a stage share the cost of adding their gradients", () => {
  const copy = (worker: number) =>
    acts(`0F0 0-1, 0B0 1-3, reduce 0 4-${5 + worker}, optimizer 6-7`);
  const alone = { ...run, replicas: 2, parameters: [1000], shares: [1], activationBytes: [8] };
  const { reduce, closing, optimizer } = profileOfTrace(alone, [{ traces: [copy(0), copy(1)] }]);
  // Each adds the half that it owns: 1.5 ms of a half for a thousand numbers.
  assert.equal(reduce.msPerMillion, 2 * 1.5 / 0.001);
  assert.equal(closing.norm.msPerMillion, 0);
  assert.equal(optimizer.msPerMillion, 1 / 0.001);
});

Deno.test("a prediction from a trace has the costs of its stages, or shares of them by work", () => {
  const schedule = createSchedule("1f1b", { workers: 2, microBatches: 1 });
  const compiled = compileRun({ model }, schedule);
  const total = compiled.model.costs.reduce((sum, one) => sum + one, 0);
  const shares = compiled.programs.map(({ programs, layers }) =>
    layers.reduce((sum, { program }) => {
      const { forward, backward } = programs[program]!.cost;
      return sum + forward + backward;
    }, 0) / total
  );
  const profile = profileOfTrace({ ...run, shares }, [stepAt(0)]);
  const options = { model, device: "native", microBatches: 1, draws: 0 };
  const same = predictStep(profile, { ...options, workers: 2 });
  assert.deepEqual(same.model.stages.map((one) => one.forwardMs), [1, 2.5]);
  assert.deepEqual(same.notes, []);
  const one = predictStep(profile, options);
  const times = one.model.stages.map(({ forwardMs, backwardMs }) => [forwardMs, backwardMs]);
  assert.deepEqual(times, [[3.5, 8.25]]);
  assert.match(one.notes[0]!, /1 stages by their work, from 2 of a trace/);
  const larger = predictStep(profile, { ...options, model: model.withSamples!(4), workers: 2 });
  const forwardMs = larger.model.stages.reduce((sum, stage) => sum + stage.forwardMs, 0);
  assert.ok(Math.abs(forwardMs - 7) < 1e-9, `${forwardMs}`);
});
