import { deepEqual, equal, match, ok, throws } from "node:assert/strict";
import { leastBytes, leastStepMs } from "../../../../actors/foresight/planner/bounds.ts";
import { candidatesOf, type PlanSpace } from "../../../../actors/foresight/planner/candidate.ts";
import { openForecast } from "../../../../actors/foresight/planner/open_forecast.ts";
import { planRuns, scheduleOf } from "../../../../actors/foresight/planner/plan.ts";
import type { Profile } from "../../../../actors/mod.ts";
import { ADAMW_DEFAULTS, gpt2, mlp } from "../../../../kernels/mod.ts";
import { statedProfile, withDearHead } from "./stated_profile.ts";

const CONFIG = { layers: 3, hidden: 32, heads: 2, seq: 16, vocab: 64 };

const SPACE: PlanSpace = {
  devices: 4,
  batch: 16,
  layers: 8,
  schedules: ["1f1b", "interleaved", "zb-v", "chimera", "message-driven", "seq1f1b", "terapipe"],
  recompute: ["none", "full"],
  precision: ["fp32"],
  offload: [false],
};

const open = (profile: Profile, model = gpt2(CONFIG, 1)) =>
  openForecast(profile, {
    model,
    optimizer: ADAMW_DEFAULTS,
    device: "reference",
    transport: "worker",
  });

Deno.test("what bounds a candidate of a real model is never above its prediction", () => {
  const forecast = open(statedProfile(CONFIG, 4));
  let bounded = 0;
  for (const candidate of candidatesOf(SPACE)) {
    let schedule;
    try {
      schedule = scheduleOf(candidate);
      forecast.bytes(candidate, schedule);
    } catch (error) {
      ok(error instanceof RangeError);
      continue;
    }
    const least = forecast.least(candidate, schedule), name = JSON.stringify(candidate);
    const { stepMs } = forecast.step(candidate, schedule);
    ok(leastStepMs(least, candidate.microBatches) <= stepMs * (1 + 1e-9), name);
    ok(leastBytes(least) <= Math.max(...forecast.bytes(candidate, schedule)), name);
    bounded++;
  }
  ok(bounded > 100, `${bounded}`);
});

Deno.test("a plan of a real model is the same each time, and its memory is what train plans", () => {
  const plan = () => planRuns(SPACE, open(statedProfile(CONFIG, 4)));
  const first = plan();
  deepEqual(plan(), first);
  equal(first.best.length, 10);
  const [{ peakBytes }] = first.best.toSorted((a, b) => a.peakBytes - b.peakBytes) as [
    typeof first.best[0],
  ];
  const within = planRuns(SPACE, open(statedProfile(CONFIG, 4)), { memoryLimitBytes: peakBytes });
  ok(within.best.every((run) => run.peakBytes <= peakBytes));
});

Deno.test("durations that vary make steps longer, and the parts still add up", () => {
  const profile = { ...statedProfile(CONFIG, 4), variation: [0.5, 0.75, 1, 1.25, 1.5] };
  const space = { ...SPACE, schedules: ["1f1b"], workers: [4] };
  const { best: [varied] } = planRuns(space, open(profile));
  const { best: [even] } = planRuns(space, open(statedProfile(CONFIG, 4)));
  ok(varied!.stepMs > even!.stepMs);
  const sum = Object.values(varied!.parts).reduce((total, one) => total + one, 0);
  ok(Math.abs(sum - varied!.stepMs) < 1e-6);
});

const dear = withDearHead(statedProfile(CONFIG, 4), 4);

/** A space in which stages of equal work are not the best ones where the head is dear. */
const CUT: PlanSpace = {
  ...SPACE,
  schedules: ["1f1b", "zb-v", "interleaved", "seq1f1b", "message-driven"],
  recompute: ["none"],
};

/** The same forecast, with stages of equal work alone. */
const evenly = (profile: Profile) => ({ ...open(profile), layout: () => undefined });

Deno.test("where the head is dear its stage has fewer layers, and the step is shorter", () => {
  const space: PlanSpace = { ...CUT, workers: [4] };
  const { best: [even] } = planRuns(space, evenly(dear));
  const { best: [cut, ...others] } = planRuns(space, open(dear));
  match(cut!.layout!, /\|H$/);
  ok(cut!.stepMs < 0.95 * even!.stepMs, `${cut!.stepMs} for ${even!.stepMs} ms`);
  ok(others.every(({ reason }) => reason));
  const schedule = scheduleOf(cut!), forecast = open(dear);
  equal(forecast.step(cut!, schedule).stepMs, cut!.stepMs);
  deepEqual(forecast.bytes(cut!, schedule), cut!.memoryBytes);
});

Deno.test("no choice is longer, or larger than the limit, for a layout that was tried", () => {
  let uneven = 0;
  for (const variation of [[], [0.5, 1, 1.5]]) {
    const profile = { ...dear, variation }, space = { ...CUT, schedules: ["1f1b", "zb-v"] };
    const all = planRuns(space, open(profile)).best, plain = planRuns(space, evenly(profile)).best;
    const largest = Math.max(...all.map(({ peakBytes }) => peakBytes));
    for (const memoryLimitBytes of [Infinity, largest - 1, plain[0]!.peakBytes]) {
      const [before] = planRuns(space, evenly(profile), { memoryLimitBytes }).best;
      const { best } = planRuns(space, open(profile), { memoryLimitBytes });
      ok(best[0]!.stepMs <= before!.stepMs);
      ok(best.every(({ peakBytes }) => peakBytes <= memoryLimitBytes));
      uneven += best.filter(({ layout }) => layout !== undefined).length;
    }
  }
  ok(uneven > 10, `${uneven}`);
});

Deno.test("no layout is sought where that takes long, or a trace has no costs of layers", () => {
  const candidate = { ...[...candidatesOf(SPACE)][0]!, replicas: 1, workers: 4, microBatches: 8 };
  const schedule = scheduleOf(candidate);
  ok(open(dear).layout!(candidate, schedule));
  equal(open({ ...dear, source: "trace" }).layout!(candidate, schedule), undefined);
  const long = { ...candidate, microBatches: 257 };
  equal(open(dear).layout!(long, scheduleOf(long)), undefined);
});

Deno.test("a worker that is alone never waits, whatever sums come to", () => {
  const profile = { ...statedProfile(CONFIG, 4), variation: [0.5, 0.75, 1, 1.25, 1.5] };
  for (const one of [profile, statedProfile(CONFIG, 4)]) {
    const { simulated, best } = planRuns({ ...SPACE, devices: 1 }, open(one));
    for (const { bubble, parts, stepMs } of [...simulated, ...best]) {
      ok(bubble >= 0 && bubble < 1e-3, `${bubble}`);
      const sum = Object.values(parts).reduce((total, part) => total + part, 0);
      ok(Math.abs(sum - stepMs) < 1e-6);
    }
  }
});

Deno.test("the profile of another model, or without the transport, is told", () => {
  throws(
    () =>
      planRuns(
        SPACE,
        open(statedProfile(CONFIG, 4), mlp({ inputs: 4, hidden: 8, layers: 6, classes: 2 }, 1)),
      ),
    /^RangeError: Cannot plan a batch of 16 for 4 devices: there must be a run that can be trained, received none: Cannot predict: the profile must have the cost of hidden/,
  );
  throws(
    () => planRuns(SPACE, open({ ...statedProfile(CONFIG, 4), links: {} })),
    /the transport worker/,
  );
});
