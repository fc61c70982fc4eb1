/** A prediction is what the profile says of each layer, put together as the schedule does. */

import assert from "node:assert/strict";
import { type PredictOptions, predictStep, type Profile } from "../../../actors/foresight/mod.ts";
import { concurrencyOf } from "../../../actors/foresight/concurrency.ts";
import { gpt2 } from "../../../kernels/mod.ts";
import { profileOf as statedProfile } from "./stated_layers.ts";
import { createSchedule, simulateStep } from "../../../schedules/mod.ts";

const SIZES = { layers: 2, hidden: 8, heads: 2, seq: 4, vocab: 16 };
const model = gpt2(SIZES, 2);

const profileOf = (loads?: Readonly<Record<number, number>>) => statedProfile(SIZES, loads);

const predict = (profile: Profile, options: Partial<PredictOptions> = {}) =>
  predictStep(profile, { model, device: "native", microBatches: 3, ...options });

/** A forward of all layers. */
const ALL_MS = 1 + 2 * (4 + 6) + 3;

Deno.test("on one worker a step is the sum of its layers, forward and backward", () => {
  const { stepMs, notes } = predict(profileOf());
  assert.ok(Math.abs(stepMs - 3 * 3 * ALL_MS) < 1e-9, `${stepMs}`);
  assert.deepEqual(notes, []);
});

Deno.test("stages are those of the layout, and idle time is the schedule's", () => {
  const layout = "E,1|1,H", options = { workers: 2, layout, schedule: "gpipe" };
  const { model, stepMs } = predict(profileOf(), options);
  assert.deepEqual(model.stages.map(({ forwardMs }) => forwardMs), [11, 13]);
  // The slower stage works all the time but while the other has the first and the last micro-batch.
  assert.equal(stepMs, 3 * 3 * 13 + 3 * 11);
});

Deno.test("recomputation costs forwards, but for what the forward has just left", () => {
  const { model, stepMs } = predict(profileOf(), { recomputeInterval: 1 });
  // One worker runs each backward right after its forward: the head's segment is still there. Of the
  // embedding nothing but its output is read, which is kept.
  const again = ALL_MS - 3 - 1;
  assert.equal(model.stages[0]!.recomputeMs, again);
  assert.equal(stepMs, 3 * (3 * ALL_MS + again));
  const split = predict(profileOf(), { recomputeInterval: 1, workers: 2, schedule: "zb-h1" });
  for (const { backwardMs, weightMs, recomputeMs } of split.model.stages) {
    assert.ok(weightMs! >= backwardMs + recomputeMs!);
  }
  // All of a stage is one segment, and each W comes right after its I: nothing is computed again for it.
  const whole = predict(profileOf(), {
    ...{ recomputeInterval: 9, workers: 1, schedule: "zb-h1", microBatches: 1 },
  });
  assert.equal(whole.model.stages[0]!.weightMs, whole.model.stages[0]!.backwardMs);
});

Deno.test("each stage costs what it does under the load that it meets", () => {
  const profile = profileOf({ 1: 1, 2: 2 });
  const alone = predict(profile), both = predict(profile, { workers: 2, schedule: "gpipe" });
  assert.deepEqual(alone.atOnce, [1]);
  assert.ok(both.atOnce.every((load) => load > 1.2 && load < 2), `${both.atOnce}`);
  const costs = both.model.stages.map(({ forwardMs }) => forwardMs);
  const [first, second] = predict(profileOf(), { workers: 2, schedule: "gpipe" }).model.stages;
  assert.ok(costs[0]! > first!.forwardMs && costs[0]! < 2 * first!.forwardMs);
  assert.ok(costs[1]! > second!.forwardMs && costs[1]! < 2 * second!.forwardMs);
});

Deno.test("dispatch, messages, votes, optimizer and the rest of a step are added", () => {
  const bare = profileOf(), options = { workers: 2, schedule: "1f1b" };
  const { stepMs } = predict(bare, options);
  const more: Profile = { ...bare, closing: { ...bare.closing, stepMs: 7 } };
  assert.equal(predict(more, options).stepMs, stepMs + 7);
  const longer = (profile: Partial<Profile>) =>
    predict({ ...bare, ...profile }, options).stepMs > stepMs;
  assert.ok(longer({ dispatchMs: 0.1 }));
  assert.ok(longer({ links: { worker: { latencyMs: 0.1 } } }));
  assert.ok(longer({ optimizer: { ms: 1, msPerMillion: 0 } }));
  assert.ok(longer({ closing: { ...bare.closing, vote: { ms: 0, msPerMillion: 1000 } } }));
});

Deno.test("durations that vary make a step longer than their means, where workers wait", () => {
  const variation = [0.5, 0.75, 1, 1.25, 1.5], varied = { ...profileOf(), variation };
  const steady = predict(profileOf(), { workers: 2, microBatches: 8 }).stepMs;
  const drawn = predict(varied, { workers: 2, microBatches: 8 }).stepMs;
  assert.ok(drawn > steady, `${drawn} ${steady}`);
  assert.equal(predict(varied, { workers: 2, microBatches: 8, draws: 0 }).stepMs, steady);
});

Deno.test("where a profile says that layers are free, durations that vary make no NaN", () => {
  const free = profileOf().layers.map((layer) => ({
    ...layer,
    ...{ forwardMs: 0, backwardMs: 0, inputMs: 0, weightMs: 0, recomputeMs: 0 },
  }));
  const profile = { ...profileOf(), layers: free, variation: [0.5, 1, 1.5] };
  const { stepMs } = predict(profile, { workers: 2 });
  assert.ok(stepMs >= 0 && stepMs < ALL_MS, `${stepMs}`);
});

Deno.test("sizes that were not measured are scaled by their work, and the prediction says so", () => {
  const { stepMs, notes } = predict(profileOf(), { model: gpt2(SIZES, 4) });
  const once = predict(profileOf()).stepMs;
  assert.ok(stepMs > 1.9 * once && stepMs < 2.2 * once, `${stepMs / once}`);
  assert.ok(notes.some((note) => /^scaled: mlp: 2.00 times the forward/.test(note)), `${notes}`);
});

Deno.test("what the profile lacks is named", () => {
  assert.throws(
    () => predict(profileOf(), { device: "wasm" }),
    /must have the cost of embedding \(wasm, fp32\), received embedding \(native, fp32\)/,
  );
  assert.throws(
    () => predict(profileOf(), { transport: "mpi" }),
    /must have the transport mpi, received worker/,
  );
  const { notes } = predict(profileOf(), { workers: 2, replicas: 3 });
  assert.ok(notes.includes("6 workers share 4 cores: that was not measured"));
});

Deno.test("workers that compute at once are counted over the time of each stage", () => {
  const schedule = createSchedule("gpipe", { workers: 2, microBatches: 1 });
  const stage = { forwardMs: 1, backwardMs: 2 };
  assert.deepEqual(concurrencyOf(simulateStep({ schedule, stages: [stage, stage] })), [1, 1]);
  const two = createSchedule("gpipe", { workers: 2, microBatches: 2 });
  // F0 . | F1 F0 | . F1 | . B0 | B0 B1 | B1 . : each is beside the other for half of its time.
  const { timeline, schedule: listed } = simulateStep({ schedule: two, stages: [stage, stage] });
  assert.deepEqual(concurrencyOf({ timeline, schedule: listed }), [1.5, 1.5]);
  assert.deepEqual(concurrencyOf({ timeline, schedule: listed }, 2), [3, 3]);
});

Deno.test("slices, halves and recomputations by actions of their own cost what their kernels do", () => {
  const whole = predict(profileOf(), { workers: 2 }).model.stages;
  const sliced = predict(profileOf(), {
    ...{ workers: 2, schedule: "seq1f1b", scheduleOptions: { slices: 2 } },
  });
  const sum = (stages: typeof whole) => stages.reduce((ms, one) => ms + one.forwardMs, 0);
  // Attention of a slice has fewer keys, but takes over those of the slices before it.
  const ratio = sum(sliced.model.stages) / sum(whole);
  assert.ok(ratio > 0.8 && ratio < 1.1, `${ratio}`);
  assert.ok(sliced.notes.some((note) => note.startsWith("scaled: attention")));
  const halved = predict(profileOf(), {
    ...{ workers: 2, microBatches: 4, schedule: "chimera", scheduleOptions: { scale: "halving" } },
  });
  assert.ok(Math.abs(sum(halved.model.stages) / sum(whole) - 1) < 0.1);
});
