/** Predictions combine the costs of layers by the schedule. */

import assert from "node:assert/strict";
import type { Profile } from "../../../actors/planner/profile.ts";
import { type PredictOptions, predictStep } from "../../../actors/planner/predict.ts";
import { recommendLayout } from "../../../actors/planner/costs.ts";
import { concurrencyOf } from "../../../actors/planner/predict.ts";
import { parametersOf, slicedFacts } from "../../../actors/planner/profile.ts";
import { compileRun } from "../../../actors/run/compile.ts";
import { compileModel, gpt2 } from "../../../kernels/mod.ts";
import { skipEdges } from "../../../kernels/compile/layout.ts";
import { startsOf } from "../../../kernels/compile/layout.ts";
import { createSchedule, simulateStep, withRecomputation } from "../../../schedules/mod.ts";
import { outcome, type Sizes, SMALL } from "../runs.ts";
import { assertRefused } from "../../kernels/graph/refused.ts";
import { SKIPPING } from "../pipeline/skipping_model.ts";
import { stated } from "./stated_profile.ts";

const SIZES = { layers: 2, hidden: 8, heads: 2, seq: 4, vocab: 16 };
const model = gpt2(SIZES, 2);

/** Milliseconds of a forward by kind; a backward takes twice as long, two thirds of it for the input. */
const FORWARD_MS: Record<string, number> = { embedding: 1, attention: 4, mlp: 6, head: 3 };

/** A forward of all layers. */
const ALL_MS = 1 + 2 * (4 + 6) + 3;

/** The profile of a GPT, in which this load takes `factor` times as long. */
const profileOf = (loads: Readonly<Record<number, number>> = { 1: 1 }, sizes = SIZES): Profile =>
  stated(
    compileModel(gpt2(sizes, 2), "none"),
    ({ kind }) =>
      Object.entries(loads).map(([atOnce, factor]) => {
        const forwardMs = factor * FORWARD_MS[kind]!, backwardMs = 2 * forwardMs;
        const halves = { inputMs: backwardMs * 2 / 3, weightMs: backwardMs / 3 };
        return { sizes, atOnce: Number(atOnce), forwardMs, backwardMs, ...halves };
      }),
  );

const predict = (profile: Profile, options: Partial<PredictOptions> = {}) =>
  predictStep(profile, { model, device: "native", microBatches: 3, ...options });

Deno.test("on one worker a step is the sum of its layers, forward and backward", () => {
  const { stepMs, notes } = predict(profileOf());
  assert.ok(Math.abs(stepMs - 3 * 3 * ALL_MS) < 1e-9, `${stepMs}`);
  assert.deepEqual(notes, []);
});

Deno.test("stages follow the layout, and idle time follows the schedule", () => {
  const layout = "E,1|1,H", options = { workers: 2, layout, schedule: "gpipe" };
  const { model, stepMs } = predict(profileOf(), options);
  assert.deepEqual(model.stages.map(({ forwardMs }) => forwardMs), [11, 13]);
  // The slower stage works except while the other has the first and the last micro-batch.
  assert.equal(stepMs, 3 * 3 * 13 + 3 * 11);
});

Deno.test("recomputation costs forwards, except for fresh activations", () => {
  const { model, stepMs } = predict(profileOf(), { recomputeInterval: 1 });
  // One worker runs each backward right after its forward: the head's segment is still there. Only the
  // output of the embedding is read, and it is kept.
  const again = ALL_MS - 3 - 1;
  assert.equal(model.stages[0]!.recomputeMs, again);
  assert.equal(stepMs, 3 * (3 * ALL_MS + again));
  const split = predict(profileOf(), { recomputeInterval: 1, workers: 2, schedule: "zb-h1" });
  for (const { backwardMs, weightMs, recomputeMs } of split.model.stages) {
    assert.ok(weightMs! >= backwardMs + recomputeMs!);
  }
  // All of a stage is one segment, and each W comes right after its I: nothing is computed again for it.
  const single = { recomputeInterval: 9, workers: 1, schedule: "zb-h1", microBatches: 1 };
  const whole = predict(profileOf(), single);
  assert.equal(whole.model.stages[0]!.weightMs, whole.model.stages[0]!.backwardMs);
  // As in a run, a message-driven backward is whole with an interval.
  const driven = { recomputeInterval: 1, workers: 2, schedule: "message-driven" };
  const { lists } = predict(profileOf(), driven).simulated.schedule;
  const kinds = lists.flatMap((list) => Array.from(list, ({ kind }) => kind));
  assert.deepEqual(new Set(kinds), new Set(["F", "B"]));
});

Deno.test("a recomputation before its backward takes the time of its forwards", () => {
  const plain = createSchedule("gpipe", { workers: 1, microBatches: 2 });
  const again = withRecomputation(plain);
  const ms = (schedule: typeof plain) =>
    simulateStep(predict(profileOf(), { schedule, microBatches: 2 }).model).computedMs;
  const { model } = predict(profileOf(), { schedule: again, microBatches: 2 });
  const { recomputeMs } = model.stages[0]!;
  assert.ok(recomputeMs! > 0);
  assert.equal(ms(again) - ms(plain), 2 * recomputeMs!);
});

Deno.test("each stage has the costs of its load", () => {
  const profile = profileOf({ 1: 1, 2: 2 });
  const alone = predict(profile), both = predict(profile, { workers: 2, schedule: "gpipe" });
  assert.deepEqual(alone.atOnce, [1]);
  assert.ok(both.atOnce.every((load) => load > 1.2 && load < 2), `${both.atOnce}`);
  const { stages } = predict(profileOf(), { workers: 2, schedule: "gpipe" }).model;
  for (const [i, { forwardMs }] of both.model.stages.entries()) {
    const once = stages[i]!.forwardMs;
    assert.ok(forwardMs > once && forwardMs < 2 * once, `${forwardMs}`);
    // Halfway between two measured loads, the cost is halfway too.
    assert.ok(Math.abs(forwardMs - both.atOnce[i]! * once) < 0.02 * once, `${forwardMs}`);
  }
});

Deno.test("each stage has the costs of all that its worker holds", () => {
  const profile = profileOf(), all = parametersOf(slicedFacts(compileModel(model, "none"))[0]!);
  const layers = profile.layers.flatMap((one) =>
    [0, all].map((heldParameters, i) => ({
      ...{ ...one, heldParameters, forwardMs: one.forwardMs * (1 + i) },
    }))
  );
  const factors = (options: Partial<PredictOptions>) => {
    const usual = predict(profile, options).model.stages;
    const { stages } = predict({ ...profile, layers }, options).model;
    return stages.map(({ forwardMs }, i) => forwardMs / usual[i]!.forwardMs);
  };
  assert.deepEqual(factors({}), [2]);
  const halves = factors({ workers: 2, layout: "E,1|1,H" });
  assert.ok(halves.every((one) => one > 1.2 && one < 1.8), `${halves}`);
  assert.ok(Math.abs(halves[0]! + halves[1]! - 3) < 1e-9, `${halves}`);
  // Each worker of Chimera holds both stages.
  assert.deepEqual(factors({ workers: 2, microBatches: 2, schedule: "chimera" }), [2, 2]);
});

Deno.test("dispatch, messages, votes, optimizer and the rest of a step are added", () => {
  const bare = profileOf(), options = { workers: 2, schedule: "1f1b" };
  const { stepMs } = predict(bare, options), { closing } = bare;
  const more = (profile: Partial<Profile>) =>
    predict({ ...bare, ...profile }, options).stepMs - stepMs;
  assert.equal(more({ closing: { ...closing, stepMs: 7 } }), 7);
  assert.ok(more({ dispatchMs: 0.1 }) >= 0.6);
  assert.ok(more({ links: { worker: { latencyMs: 0.1 } } }) > 0);
  for (const name of ["vote", "norm", "end"] as const) {
    assert.ok(more({ closing: { ...closing, [name]: { ms: 0, msPerMillion: 1000 } } }) > 0, name);
  }
  assert.ok(Math.abs(more({ optimizer: { ms: 1, msPerMillion: 0 } }) - 1) < 1e-9);
});

Deno.test("varied durations lengthen a step in which workers wait", () => {
  const variation = [0.5, 0.75, 1, 1.25, 1.5], varied = { ...profileOf(), variation };
  const steady = predict(profileOf(), { workers: 2, microBatches: 8 }).stepMs;
  const drawn = predict(varied, { workers: 2, microBatches: 8 }).stepMs;
  assert.ok(drawn > steady && drawn < 1.25 * steady, `${drawn} ${steady}`);
  assert.equal(predict(varied, { workers: 2, microBatches: 8, draws: 0 }).stepMs, steady);
  // A worker that waits for no other worker takes the mean time, whatever the draws.
  const alone = predict(varied).stepMs;
  assert.ok(Math.abs(alone - 3 * 3 * ALL_MS) < 1e-6, `${alone}`);
  const free = profileOf().layers.map((layer) => ({
    ...layer,
    ...{ forwardMs: 0, backwardMs: 0, inputMs: 0, weightMs: 0, recomputeMs: 0 },
  }));
  const { stepMs } = predict({ ...profileOf(), layers: free, variation }, { workers: 2 });
  assert.ok(stepMs >= 0 && stepMs < ALL_MS, `layers that are free make no NaN: ${stepMs}`);
});

Deno.test("unmeasured sizes are scaled by their work, with a note", () => {
  const { stepMs, notes } = predict(profileOf(), { model: gpt2(SIZES, 4) });
  const once = predict(profileOf()).stepMs;
  assert.ok(stepMs > 1.9 * once && stepMs < 2.2 * once, `${stepMs / once}`);
  assert.ok(notes.some((note) => /^scaled: mlp: 2.00 times the forward/.test(note)), `${notes}`);
});

Deno.test("a prediction names costs that are missing in the profile", async () => {
  await assertRefused("missing_costs", [
    () => predict(profileOf(), { device: "wasm" }),
    () => predict(profileOf(), { transport: "mpi" }),
  ]);
  const crowded = "6 workers share 4 cores, which was not measured";
  assert.ok(predict(profileOf(), { workers: 2, replicas: 3 }).notes.includes(crowded));
  assert.deepEqual(predict(profileOf(), { workers: 2, replicas: 2 }).notes, []);
});

Deno.test("the load of a stage is the mean number of computing workers during its actions", () => {
  const load = (microBatches: number, replicas?: number) => {
    const schedule = createSchedule("gpipe", { workers: 2, microBatches });
    const stage = { forwardMs: 1, backwardMs: 2 };
    return concurrencyOf(simulateStep({ schedule, stages: [stage, stage] }), replicas);
  };
  assert.deepEqual(load(1), [1, 1]);
  // F0 . | F1 F0 | . F1 | . B0 | B0 B1 | B1 . : the two overlap for half of their time.
  assert.deepEqual(load(2), [1.5, 1.5]);
  assert.deepEqual(load(2, 2), [3, 3]);
});

Deno.test("the cost of slices and halves of micro-batches is that of their kernels", () => {
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

const PROGRAM = compileModel(SKIPPING, "none");

/** A profile in which each layer takes 1 ms forward, with a link of this bandwidth. */
const skipping = (bytesPerMs: number) =>
  stated(PROGRAM, () => [{ atOnce: 1, forwardMs: 1, backwardMs: 2 }], {
    links: { worker: { latencyMs: 0, bytesPerMs } },
  });

const predictSkips = (profile: Profile, layout = "auto") =>
  predict(profile, { model: SKIPPING, workers: 4, microBatches: 6, schedule: "1f1b", layout });

Deno.test("a prediction includes skip connections between the stages of the layout", () => {
  const { model, simulated } = predictSkips(skipping(16)), { edges, ...chain } = model.schedule;
  const inModel = skipEdges(PROGRAM, startsOf(PROGRAM, 4)).map(({ key: _, ...edge }) => edge);
  assert.deepEqual(edges, inModel);
  assert.ok(inModel.some(({ from, to }) => to.some((stage) => stage > from + 1)));
  assert.ok(inModel.every(({ bytes }) => bytes > 0));
  assert.ok(simulated.computedMs > simulateStep({ ...model, schedule: chain }).computedMs);
  assert.ok(simulated.peakBytes.some((bytes) => bytes > 0));
});

Deno.test("halves of micro-batches send a skip value in two messages", () => {
  const { model: { schedule } } = predict(skipping(16), {
    ...{ workers: 4, microBatches: 8, model: SKIPPING },
    ...{ schedule: "chimera", scheduleOptions: { scale: "halving" } },
  });
  const whole = skipEdges(PROGRAM, startsOf(PROGRAM, 4));
  assert.ok(schedule.lists!.some(({ cuts }) => cuts === 2));
  // Values that do not depend on samples, such as the scale, are sent with each half: twice the bytes.
  const sizes = schedule.edges!.map(({ bytes }, i) => bytes! / whole[i]!.bytes);
  assert.deepEqual([...new Set(sizes)].sort(), [1, 2]);
});

Deno.test("the recommended layout considers skip connections", () => {
  const profile = skipping(4), schedule = createSchedule("1f1b", { workers: 4, microBatches: 6 });
  const compiled = compileRun({ model: SKIPPING }, schedule);
  const cut = { schedule, compiled, device: "native" }, link = profile.links.worker!;
  const weighed = recommendLayout(profile, { ...cut, link }), blind = recommendLayout(profile, cut);
  const stepOf = (layout: string) => predictSkips(profile, layout).simulated.computedMs;
  assert.notEqual(weighed.layout, blind.layout);
  assert.ok(stepOf(weighed.layout) < stepOf(blind.layout));
});

Deno.test("no layout has a shorter step than the recommended one", () => {
  const sizes = { ...SIZES, layers: 3 }, profile = profileOf({ 1: 1 }, sizes);
  const model = gpt2(sizes, 2);
  const layouts = [0, 0.5, 1, 1.5, 2, 2.5, 3].map((first) =>
    [["E", first], [3 - first, "H"]].map((one) => one.filter((piece) => piece !== 0).join(","))
      .join("|")
  );
  for (const name of ["1f1b", "zb-h1", "chimera"]) {
    const schedule = createSchedule(name, { workers: 2, microBatches: 4 });
    const cut = { schedule, compiled: compileRun({ model }, schedule), device: "native" };
    const { layout, makespan, isExact } = recommendLayout(profile, cut);
    assert.ok(isExact);
    const stepOf = (layout: string) =>
      predict(profile, { model, schedule, workers: 2, layout, microBatches: 4 })
        .simulated.computedMs;
    const least = Math.min(...layouts.map(stepOf));
    assert.ok(Math.abs(stepOf(layout) - least) < 1e-6, `${name}: ${layout}`);
    assert.ok(Math.abs(makespan - least) < 1e-6, `${name}: ${makespan} for ${least}`);
  }
});

Deno.test("--layout schedule trains with the bits of every other cut", async () => {
  const sizes: Sizes = { ...SMALL, layers: 3, hidden: 16, seq: 8, microBatches: 4 };
  const how = { device: "reference", runtime: "local", workers: 2, schedule: "1f1b" } as const;
  const cut = await outcome(sizes, { ...how, layout: "schedule" });
  assert.deepEqual(cut.bits, (await outcome(sizes, how)).bits);
});
