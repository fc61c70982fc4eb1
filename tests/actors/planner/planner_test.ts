/** The planner on a fictional machine with costs by formula. */

import { deepEqual, equal, ok } from "node:assert/strict";
import { atDepth } from "../../depth.ts";
import {
  type Candidate,
  type CandidateRun,
  candidatesOf,
  divisorsOf,
  type Forecast,
  leastBytes,
  leastStepMs,
  type PlanSpace,
  sizesOf,
} from "../../../actors/planner/forecast.ts";
import {
  afterLosses,
  excessOf,
  planRuns,
  scheduleOf,
  whyLonger,
} from "../../../actors/planner/plan.ts";
import {
  type Schedule,
  simulateStep,
  type StageModel,
  type StepModel,
} from "../../../schedules/mod.ts";
import { simulateWithin } from "../../../schedules/internal.ts";
import { assertRefused } from "../../kernels/graph/refused.ts";

/** Milliseconds of a layer for a sample, and for each micro-batch beside them. */
const LAYER_MS = 1, MICRO_BATCH_MS = 0.3;

/** Layers of the model. */
const LAYERS = 12;

/** The step of a candidate: layers in equal stages, a link, an all-reduce of each stage. */
function stepModelOf(candidate: Candidate, schedule: Schedule): StepModel {
  const { microBatch, recompute, replicas, coarsening = 4 } = candidate;
  const layers = LAYERS / schedule.stages;
  const forwardMs = layers * (LAYER_MS * microBatch + MICRO_BATCH_MS);
  const gradientBytes = 400 * layers;
  const stage = {
    ...{ forwardMs, backwardMs: 2 * forwardMs, gradientBytes, outputBytes: 10 * microBatch },
    recomputeMs: { none: 0, cheap: 0.1, full: 1 }[recompute] * forwardMs,
    optimizerMs: 0.5 * layers,
    memory: {
      ...{ weightBytes: gradientBytes, gradientBytes, optimizerBytes: 2 * gradientBytes },
      keptBytes: { none: 100, cheap: 60, full: 10 }[recompute] * microBatch * layers,
    },
  };
  return {
    ...{ schedule, replicas, dispatchMs: 0.02 },
    stages: Array.from({ length: schedule.stages }, () => stage),
    network: { link: { latencyMs: 0.1, bytesPerMs: 100 } },
    closing: { bucketBytes: 100, coarsening, launchMs: 0.05 },
  };
}

/** Returns a forecast that predicts by simulation and records its calls. */
function syntheticForecast(): Forecast & Readonly<Record<"placed" | "simulated", Candidate[]>> {
  const simulated: Candidate[] = [], placed: Candidate[] = [];
  return {
    simulated,
    placed,
    leastWorkMs({ microBatch, microBatches, recompute, workers }) {
      const again = { none: 0, cheap: 0.1, full: 1 }[recompute];
      const layersMs = LAYERS * (LAYER_MS * microBatch + MICRO_BATCH_MS);
      return microBatches * (3 + again) * layersMs / workers;
    },
    least(candidate, schedule) {
      placed.push(candidate);
      return stepModelOf(candidate, schedule);
    },
    bytes: (candidate, schedule) => simulateStep(stepModelOf(candidate, schedule)).peakBytes,
    step(candidate, schedule, mostMs = Infinity) {
      simulated.push(candidate);
      const step = simulateWithin(stepModelOf(candidate, schedule), mostMs);
      return step && { stepMs: step.makespanMs, simulated: step };
    },
  };
}

/** A small space: four devices, sixteen samples. */
const SMALL: PlanSpace = {
  ...{ devices: 4, batch: 16, layers: LAYERS, precision: ["fp32"] },
  schedules: ["gpipe", "1f1b", "interleaved", "zb-h1", "chimera", "hanayo", "message-driven"],
  recompute: ["none", "cheap", "full"],
};

/** Every candidate that can be made, simulated. */
function exhausted(): { candidate: Candidate; schedule: Schedule; ms: number; bytes: number }[] {
  return [...candidatesOf(SMALL)].flatMap((candidate) => {
    let schedule: Schedule;
    try {
      schedule = scheduleOf(candidate);
    } catch {
      return [];
    }
    const step = simulateStep(stepModelOf(candidate, schedule));
    return [{ candidate, schedule, ms: step.makespanMs, bytes: Math.max(...step.peakBytes) }];
  });
}

const ALL = exhausted();

const shape = ({ schedule, workers, microBatch, recompute, options }: Candidate) =>
  JSON.stringify([schedule, workers, microBatch, recompute, options]);

/** A machine: its changes of a step, and the minimum tightness of one bound. */
type Machine = readonly [change: (model: StepModel) => Partial<StepModel>, tightest: number];

const stagesAs =
  (change: (stage: StageModel, nth: number) => Partial<StageModel>) => ({ stages }: StepModel) => ({
    stages: stages.map((stage, nth) => ({ ...stage, ...change(stage, nth) })),
  });

const timesAs = (by: { readonly gradientBytes?: number; readonly optimizerMs?: number }) =>
  stagesAs(({ gradientBytes = 0, optimizerMs = 0 }) => ({
    gradientBytes: (by.gradientBytes ?? 1) * gradientBytes,
    optimizerMs: (by.optimizerMs ?? 1) * optimizerMs,
  }));

const NO_MESSAGES: Partial<StepModel> = { network: undefined, dispatchMs: 0, closing: undefined };

const MACHINES: Readonly<Record<string, Machine>> = {
  "as it is": [() => ({}), 0.98],
  "no messages": [() => NO_MESSAGES, 1],
  "a slow all-reduce": [timesAs({ gradientBytes: 300 }), 0.98],
  "a slow optimizer": [timesAs({ optimizerMs: 1000 }), 0.98],
  "quick weights": [
    stagesAs(({ forwardMs }) => ({ inputMs: 1.5 * forwardMs, weightMs: 0.1 * forwardMs })),
    0.93,
  ],
  "uneven stages": [
    stagesAs(({ forwardMs, backwardMs }, nth) => ({
      forwardMs: (1 + nth) * forwardMs,
      backwardMs: (1 + (7 * nth) % 3) * backwardMs,
    })),
    0.98,
  ],
  // The slower a worker is, the less it has to do.
  "slow workers": [
    (model) => ({
      ...stagesAs(({ forwardMs }, nth) => ({ forwardMs: (1 + 2 * nth) * forwardMs }))(model),
      slowdowns: model.schedule.placement.map((_, w, { length }) => 1 + (length - w) / 4),
    }),
    0.93,
  ],
  "durations that vary": [
    () => ({ ...NO_MESSAGES, jitter: { law: "around", amount: 0.1, seed: 1 } }),
    0.85,
  ],
};

Deno.test("bounds of time are at most the time, and one is close for each machine", () => {
  ok(ALL.length > 200, `${ALL.length} candidates`);
  const plain = ALL.filter(({ candidate: { recompute } }) => recompute === "none");
  const some = plain.filter((_, i) => i % atDepth(4, 1) === 0);
  for (const [machine, [change, tightest]] of Object.entries(MACHINES)) {
    let closest = 0, stopped = 0, count = 0;
    for (const { candidate, schedule } of machine === "as it is" ? ALL : some) {
      const plain = stepModelOf(candidate, schedule), model = { ...plain, ...change(plain) };
      const { makespanMs: ms, computedMs } = simulateStep(model);
      // A simulation within a time stops only if the actions take longer, but then mostly.
      equal(simulateWithin(model, computedMs)?.makespanMs, ms, `${machine}, ${shape(candidate)}`);
      stopped += Number(simulateWithin(model, computedMs * 0.98) === undefined);
      count++;
      const share = leastStepMs(model, candidate.microBatches) / ms;
      ok(share <= 1 + 1e-9, `${machine}, ${shape(candidate)}: ${share} of ${ms} ms`);
      closest = Math.max(closest, share);
    }
    ok(closest >= tightest, `${machine}: ${closest}`);
    equal(stopped, count, machine);
  }
});

Deno.test("bounds of bytes are at most the bytes, for any use of memory", () => {
  const some = ALL.filter(({ candidate: { recompute } }) => recompute === "none");
  for (const name of ["weightBytes", "gradientBytes", "optimizerBytes", "keptBytes"] as const) {
    let closest = 0;
    for (const { candidate, schedule } of some) {
      const plain = stepModelOf(candidate, schedule);
      const stages = plain.stages.map(({ memory, ...stage }) => ({
        ...stage,
        memory: { ...memory!, [name]: 1000 * memory![name]! },
      }));
      const bytes = Math.max(...simulateStep({ ...plain, stages }).peakBytes);
      const share = leastBytes({ ...plain, stages }) / bytes;
      ok(share <= 1, `${name}, ${shape(candidate)}: ${share} of ${bytes}`);
      closest = Math.max(closest, share);
    }
    ok(closest > (name === "keptBytes" ? 0.49 : 0.99), `${name}: ${closest}`);
  }
});

for (const memoryLimitBytes of [Infinity, 12_000, 8_000]) {
  Deno.test(`the choice within ${memoryLimitBytes} bytes is that of an exhaustive search`, () => {
    const plan = planRuns(SMALL, syntheticForecast(), { memoryLimitBytes });
    const fitting = ALL.filter(({ bytes }) => bytes <= memoryLimitBytes);
    const times = new Map<string, number>();
    for (const { candidate: { schedule, workers, microBatch, recompute }, ms } of fitting) {
      const key = [schedule, workers, microBatch, recompute].join(" ");
      times.set(key, Math.min(ms, times.get(key) ?? Infinity));
    }
    equal(plan.best[0]!.stepMs, Math.min(...times.values()));
    const found = plan.best.flatMap((run) => [run.schedule, ...run.alike].map(() => run.stepMs));
    deepEqual(found, [...times.values()].sort((a, b) => a - b).slice(0, found.length));
    equal(plan.best.length, 10);
  });
}

Deno.test("candidates that fit are never rejected, and the shown runs fit", () => {
  for (const { bytes: limit } of ALL.filter((_, i) => i % 150 === 0)) {
    const plan = planRuns(SMALL, syntheticForecast(), { memoryLimitBytes: limit, count: 1000 });
    const fitting = ALL.filter(({ bytes }) => bytes <= limit);
    equal(plan.counts.simulated, fitting.length);
    ok(plan.best.every(({ peakBytes }) => peakBytes <= limit));
  }
});

Deno.test("most candidates are never simulated, and the same profile gives the same plan", () => {
  const first = syntheticForecast(), one = planRuns(SMALL, first, { count: 3 });
  ok(first.simulated.length < ALL.length / 2, `${first.simulated.length} of ${ALL.length}`);
  deepEqual(planRuns(SMALL, syntheticForecast(), { count: 3 }), one);
  const { candidates, unserved, tooLarge, tooLong, simulated } = one.counts;
  equal(unserved + tooLarge + tooLong + simulated, candidates);
  const [all, few] = [10, 2].map((count) =>
    planRuns(SMALL, syntheticForecast(), { count, spread: 0.3 })
  );
  deepEqual([few!.best, few!.equal], [all!.best.slice(0, 2), 2]);
});

Deno.test("the bound by work saves placements and changes no plan", () => {
  for (const memoryLimitBytes of [Infinity, 12_000]) {
    const limits = { count: 3, memoryLimitBytes };
    const all = syntheticForecast(), few = syntheticForecast();
    const { best } = planRuns(SMALL, { ...all, leastWorkMs: () => 0 }, limits);
    deepEqual(planRuns(SMALL, few, limits).best, best);
    ok(few.placed.length < 0.8 * all.placed.length, `${few.placed.length} of ${all.placed.length}`);
    ok(few.simulated.length <= all.simulated.length);
  }
});

Deno.test("a reason names a part by which the step is longer", () => {
  const { best: [best, ...others] } = planRuns(SMALL, syntheticForecast(), { count: 100 });
  const parts: readonly (readonly [RegExp, keyof CandidateRun["parts"]])[] = [
    [/^(kernels|recompute)/, "busyMs"],
    [/^dispatch/, "dispatchMs"],
    [/^communication/, "communicationMs"],
    [/^bubble/, "bubbleMs"],
    [/^(all-reduce|optimizer)/, "closingMs"],
  ];
  const seen = new Set<string>();
  for (const run of others) {
    const reason = run.reason!, named = parts.find(([words]) => words.test(reason));
    if (/^(memory|nothing)/.test(reason)) {
      ok(run.stepMs - best!.stepMs < 1e-6);
      continue;
    }
    ok(named, reason);
    const more = excessOf(run, best!)[named[1]];
    ok(more > 0, reason);
    const shown = Number(/: ([\d.e+-]+) ms more/.exec(reason)?.[1]);
    ok(Math.abs(shown - more) <= Math.max(0.5, 0.05 * more), `${reason}: ${more}`);
    seen.add(named[1]);
    if (/^recompute/.test(reason)) ok(run.recompute !== best!.recompute);
    if (/^all-reduce/.test(reason)) ok(run.replicas > best!.replicas);
  }
  ok(seen.size >= 3, [...seen].join());
  const { stepMs, bubble, parts: { bubbleMs, ...rest } } = best!;
  const more = { ...rest, bubbleMs: bubbleMs + 10 };
  const run = { ...best!, stepMs: stepMs + 10, bubble: bubble + 0.001, parts: more };
  equal(whyLonger(run, best!), "bubble: 10 ms more");
});

/** Plans after losses, of the best run with each of some schedules, in order. */
function remaining(schedules: readonly string[], workers: number, losses: number) {
  const forecast = syntheticForecast(), few = { microBatch: [1], recompute: ["none"] } as const;
  const best = schedules.flatMap((schedule) => {
    const space = { ...SMALL, ...few, schedules: [schedule], workers: [workers] };
    return planRuns(space, forecast).best.slice(0, 1);
  });
  return afterLosses(best, forecast, { layers: LAYERS, batch: SMALL.batch, losses });
}

Deno.test("after losses a plan has the layouts of failover, with their speed and memory", () => {
  const after = remaining(["1f1b"], 2, 3), [full, three, two, one] = after;
  const shape = after.map(({ workers, layout: { pipelines, depth }, copies, canMove }) =>
    [workers, pipelines, depth, copies, canMove].join(" ")
  );
  deepEqual(shape, ["4 2 2 2 true", "3 1 3 2 false", "2 2 1 2 true", "1 1 1 2 false"]);
  deepEqual(remaining(["1f1b"], 2, 9), after); // of a plan with fewer workers than devices
  for (const { run, speed } of after) {
    equal(speed, run.samplesPerSecond / full!.run.samplesPerSecond);
    equal(run.memoryBytes.length, run.workers);
  }
  // (2·8 + 3 − 1)/3 against (8 + 2 − 1)/2 times of the whole model: 0.75 without messages.
  ok(three!.speed > 0.7 && three!.speed < 0.8, `${three!.speed}`);
  ok(three!.speed > two!.speed && two!.speed > one!.speed);
  // Each pipeline of one worker has a copy; the last worker has both, and one micro-batch in flight.
  equal(one!.run.peakBytes, 2 * two!.run.peakBytes - 100 * LAYERS);
});

Deno.test("a plan whose stages have no copies never moves, and one without flushes is passed over", () => {
  const alone = remaining(["1f1b"], 4, 2).map(({ losses, canMove }) => [losses, canMove]);
  deepEqual(alone, [[0, false]]);
  const [full] = remaining(["pipedream", "1f1b"], 2, 1);
  equal(full!.rank, 2, "the best that can move");
});

Deno.test("the parts of a step add up to it", () => {
  for (const { parts, stepMs } of planRuns(SMALL, syntheticForecast()).best) {
    const sum = Object.values(parts).reduce((total, one) => total + one, 0);
    ok(Math.abs(sum - stepMs) < 1e-6 * stepMs, `${sum} for ${stepMs}`);
  }
});

Deno.test("k is tuned for the best runs, and kept if the step is shorter", () => {
  const plain = planRuns(SMALL, syntheticForecast()).best;
  const tuned = planRuns({ ...SMALL, coarsenings: [1, 16] }, syntheticForecast()).best;
  ok(tuned.some(({ coarsening }) => coarsening !== undefined));
  ok(tuned.every(({ stepMs }, i) => stepMs <= plain[i]!.stepMs));
});

Deno.test("a layout is kept if it fits and is shorter with varied durations", () => {
  const plain = syntheticForecast(), limit = 20_000;
  const factor = { shorter: [0.5, 0.5], "on paper": [0.5, 2], dust: [0.9999, 0.5] } as const;
  const planned = (how: keyof typeof factor, memoryLimitBytes: number) => {
    const times = (candidate: Candidate, schedule: Schedule, isVaried: 0 | 1) => {
      const step = plain.step(candidate, schedule)!;
      const by = candidate.layout === undefined ? 1 : factor[how][isVaried];
      return { ...step, stepMs: by * step.stepMs };
    };
    return planRuns(SMALL, {
      ...plain,
      bytes: (candidate, schedule) =>
        candidate.layout === undefined ? plain.bytes(candidate, schedule) : [limit],
      step: (candidate, schedule) => times(candidate, schedule, 0),
      varied: (candidate, schedule) => times(candidate, schedule, 1),
      layout: () => "E,2|H",
    }, { memoryLimitBytes }).best;
  };
  const isCut = ({ layout }: CandidateRun) => layout === "E,2|H";
  ok(planned("shorter", limit).every(isCut));
  ok(!planned("shorter", limit - 1).some(isCut));
  ok(!planned("on paper", limit).some(isCut));
  ok(!planned("dust", limit).some(isCut));
});

Deno.test("devices and batch are divided in all ways", () => {
  deepEqual(divisorsOf(12), [1, 2, 3, 4, 6, 12]);
  const sizes = sizesOf({ ...SMALL, devices: 6, batch: 12, workers: [2, 3] });
  deepEqual(sizes.map((one) => Object.values(one).join(" ")), [
    ...["2 3 1 4", "2 3 2 2", "2 3 4 1"],
    ...["3 2 1 6", "3 2 2 3", "3 2 3 2", "3 2 6 1"],
  ]);
  for (const { workers, replicas, microBatch, microBatches } of sizesOf(SMALL)) {
    equal(workers * replicas, SMALL.devices);
    equal(replicas * microBatch * microBatches, SMALL.batch);
  }
});

Deno.test("an impossible memory limit is refused with the smallest candidate and the missing bytes", async () => {
  const least = Math.min(...ALL.map(({ bytes }) => bytes)), mebibyte = 2 ** 20;
  const forecast = syntheticForecast();
  const bytes: typeof forecast.bytes = (...of) =>
    forecast.bytes(...of).map((one) => mebibyte * one);
  const large = { ...forecast, bytes };
  await assertRefused("memory_of_plans", [
    () => planRuns(SMALL, large, { memoryLimitBytes: 100 * mebibyte }),
  ], { LEAST: `${least}.00`, MISSING: `${least - 100}.00` });
  ok(planRuns(SMALL, large, { memoryLimitBytes: least * mebibyte }).best.length > 0);
});

Deno.test("batches, devices and losses for which there is no plan are refused in one sentence", () => {
  const plan = (more: object) => planRuns({ ...SMALL, ...more }, syntheticForecast());
  return assertRefused("plans", [
    () => plan({ devices: 7 * 5, workers: [5], batch: 8 }),
    () => plan({ devices: 8, workers: [3] }),
    () => plan({ schedules: ["zb-h2"], workers: [4], batch: 2, microBatch: [1] }),
    () => plan({ batch: 2 ** 14, microBatch: [1] }),
    () => plan({ devices: 5, workers: [1, 2, 4] }),
    () => remaining(["pipedream"], 4, 1),
  ]);
});

Deno.test("steps of more than 1024 micro-batches are skipped", () => {
  const plan = planRuns({ ...SMALL, batch: 2 ** 14 }, syntheticForecast());
  ok(plan.best.every(({ microBatches }) => microBatches <= 1024));
});

Deno.test("thousands of devices are planned with few simulations", () => {
  const forecast = syntheticForecast();
  const space: PlanSpace = { ...SMALL, devices: 2048, batch: 16_384, recompute: ["none"] };
  const plan = planRuns(space, forecast, { count: 5 });
  equal(plan.best.length, 5);
  ok(plan.best.every(({ workers, replicas }) => workers * replicas === 2048));
});

Deno.test("message-driven is tried in all orders, with limits of activations and of the backlog", () => {
  const options = candidatesOf({ ...SMALL, schedules: ["message-driven"], workers: [4] })
    .map(({ options }) => options);
  const values = (name: keyof typeof options[number]) => new Set(options.map((one) => one[name]));
  deepEqual(values("order"), new Set(["fifo", "bf", "bfw"]));
  deepEqual(values("chunks"), new Set([undefined, 1, 2]));
  deepEqual(values("weightBacklog"), new Set([undefined, 1, 2]));
  ok(values("activationLimit").size > 2);
});

Deno.test("with fewer devices a plan is never slower, and one that leaves some idle can win", () => {
  const workers = [1, 2, 4], odd: PlanSpace = { ...SMALL, devices: 5, takesFewer: true, workers };
  const { best: [first] } = planRuns(odd, syntheticForecast());
  const { best: [four] } = planRuns({ ...SMALL, workers }, syntheticForecast());
  equal(first!.stepMs, four!.stepMs);
  equal(first!.workers * first!.replicas, 4);
  const sizes = sizesOf({ ...SMALL, devices: 64, takesFewer: true, layers: 96 });
  const used = new Set(sizes.map(({ workers, replicas }) => workers * replicas));
  deepEqual(used, new Set([64, 56, 48, 32]));
});

Deno.test("a search that is over has the best so far, and says how many were not tried", () => {
  const whole = planRuns(SMALL, syntheticForecast()), { counts } = whole;
  for (const calls of [0, 1, 40, candidatesOf(SMALL).length + 3]) {
    let left = calls;
    const found: number[] = [], shares = { bounds: [0], plans: [0] };
    const plan = planRuns(SMALL, syntheticForecast(), {
      used: () => left-- <= 0 ? 1 : 0,
      found: ({ best }) => found.push(best[0]!.stepMs),
      progress: (what, done, all) => shares[what].push(done / all),
    });
    equal(plan.best[0]!.stepMs, found.at(-1));
    ok(plan.best[0]!.stepMs >= whole.best[0]!.stepMs);
    const { candidates, unserved, tooLarge, tooLong, simulated, untried } = plan.counts;
    equal(unserved + tooLarge + tooLong + simulated + untried, candidates);
    equal(untried > 0, true, `${calls}`);
    for (const all of Object.values(shares)) deepEqual(all, all.toSorted((a, b) => a - b));
  }
  equal(counts.untried, 0);
});

Deno.test("runs whose times overlap within the spread are equal: least memory, then the simpler", () => {
  const count = 40, { best } = planRuns(SMALL, syntheticForecast(), { count });
  for (const spread of [0.005, 0.05]) {
    const plan = planRuns(SMALL, syntheticForecast(), { count, spread });
    const most = best[0]!.stepMs * (1 + spread) / (1 - spread);
    const expected = best.filter(({ stepMs }) => stepMs < most);
    equal(plan.equal, expected.length);
    equal(plan.best[0]!.peakBytes, Math.min(...expected.map(({ peakBytes }) => peakBytes)));
    for (const [i, run] of plan.best.slice(1, plan.equal).entries()) {
      ok(run.peakBytes >= plan.best[i]!.peakBytes);
      ok(/^equal within the spread, ±/.test(run.reason!), run.reason);
    }
    ok(plan.best.slice(plan.equal).every(({ stepMs }) => stepMs >= most));
  }
});
