/**
 * Trains random plans of a small model on this machine, and compares the planner's choice with the best
 * of them. The costs are measured in the same rounds as the plans.
 *
 * @module
 */

import { OTHERS_LOAD_MAX, othersLoad } from "../actors/planner/check.ts";
import {
  type Candidate,
  candidatesOf,
  openForecast,
  type PlanSpace,
} from "../actors/planner/forecast.ts";
import { openMeter } from "../actors/planner/measure.ts";
import { type MeasuredRun, openMeasuredRun } from "../actors/planner/measure_links.ts";
import { describeCandidate, planRuns, scheduleOf } from "../actors/planner/plan.ts";
import { type Profile, spreadOf as profileSpread } from "../actors/planner/profile.ts";
import { compileRun } from "../actors/run/compile.ts";
import { SCHEDULES } from "../console/commands/plan.ts";
import { ADAMW_DEFAULTS, gpt2 } from "../kernels/mod.ts";
import { substream } from "../kernels/random.ts";
import { ifServed } from "../schedules/internal.ts";
import { type Row, rowMaker, valueRow } from "./report.ts";
import { interleave, roundsWithin, type Spread, spread, spreadOf } from "./timing.ts";

const SIZES = { layers: 4, hidden: 256, heads: 4, seq: 64, vocab: 512 };

const modelOf = (microBatch: number) => gpt2(SIZES, microBatch);

/** Most workers, and samples of a step. */
const WORKERS_MAX = 4, BATCH = 16;

/** Returns the space of the planner on this machine; the plans are drawn from it. */
export const spaceOf = (cores: number): PlanSpace => ({
  devices: Math.min(cores, WORKERS_MAX),
  takesFewer: true,
  batch: BATCH,
  layers: modelOf(1).layers.length,
  schedules: SCHEDULES,
  microBatch: [1, 2, 4],
  recompute: ["none", "full"],
  precision: ["fp32"],
});

/** Options of `train` for a plan. */
const optionsOf = (plan: Candidate) => ({
  schedule: plan.schedule,
  scheduleOptions: plan.options,
  workers: plan.workers,
  replicas: plan.replicas,
  microBatches: plan.microBatches,
  recompute: plan.recompute,
  layout: plan.layout,
  model: modelOf(plan.microBatch),
});

/** Draws plans that can be trained, one of each schedule in turn: the same ones for the same seed. */
export function drawPlans(space: PlanSpace, runs: number, seed: number): Candidate[] {
  const generator = substream(seed, "plans");
  const all = candidatesOf(space).map((plan) => ({ plan, draw: generator.next() >>> 0 }));
  const groups = Map.groupBy(all.sort((a, b) => a.draw - b.draw), ({ plan }) => plan.schedule);
  const inTurn = [...groups.values()].flatMap((group) =>
    group.map(({ plan }, turn) => ({ plan, turn }))
  ).sort((a, b) => a.turn - b.turn);
  const drawn: Candidate[] = [];
  for (const { plan } of inTurn) {
    if (drawn.length === runs) break;
    if (ifServed(() => compileRun(optionsOf(plan), scheduleOf(plan)))) drawn.push(plan);
  }
  return drawn;
}

const openPlan = (plan: Candidate): Promise<MeasuredRun> =>
  openMeasuredRun({ ...optionsOf(plan), device: "native", runtime: "workers" });

/** Steps of a plan, the first of which do not count. */
const WARMUP = 2, STEPS = 5;

/** Returns the median milliseconds of a plan's step. */
async function stepMsOf(plan: Candidate): Promise<number> {
  await using run = await openPlan(plan);
  const times: number[] = [];
  for (let step = -WARMUP; step < roundsWithin(STEPS); step++) {
    const { ms } = await run.step();
    if (step >= 0) times.push(ms);
  }
  return spread(times).median;
}

/** Plans between two rounds of the meter, and minimum milliseconds of each of its models. */
const PLANS_PER_ROUND = 4, PROBE_MS = 200;

/** A plan with its measured step. */
type MeasuredPlan = { readonly plan: Candidate; readonly ms: number };

/** Measures the plans, and the costs between them. */
async function measurePlans(space: PlanSpace, plans: readonly Candidate[]) {
  await using meter = await openMeter({
    device: { name: "native" },
    models: space.microBatch!.flatMap((microBatch) =>
      space.recompute.map((recompute) => ({ model: modelOf(microBatch), microBatch, recompute }))
    ),
    sizes: SIZES,
    loads: [...new Set([1, space.devices])],
    isolate: "worker",
    links: ["worker"],
  });
  await meter.round(PROBE_MS);
  meter.reset();
  const measured: MeasuredPlan[] = [];
  for (const [index, plan] of plans.entries()) {
    if (index % PLANS_PER_ROUND === 0) await meter.round(PROBE_MS);
    measured.push({ plan, ms: await stepMsOf(plan) });
  }
  return { measured, profile: meter.profile() };
}

/** Plans that are measured again, and their rounds. */
const AGAIN = 5, ROUNDS = 20;

/** Largest time of the choice, in those of the best measured plan, unless they are equal. */
const CHOICE_MAX = 1.03;

/** Measures the best plans and the choice of the planner again, in the same rounds. */
async function compareAgain(
  choice: Candidate,
  measured: readonly MeasuredPlan[],
  predicted: (plan: Candidate) => number,
): Promise<{ readonly rows: readonly Row[]; readonly ratio: Spread }> {
  const best = measured.toSorted((a, b) => a.ms - b.ms).slice(0, AGAIN).map(({ plan }) => plan);
  await using stack = new AsyncDisposableStack();
  const cases: Record<string, () => Promise<number>> = {}, plans = [choice, ...best];
  for (const [index, plan] of plans.entries()) {
    const run = stack.use(await openPlan(plan));
    cases[index] = async () => (await run.step()).ms;
  }
  const rounds = await interleave(cases, { rounds: ROUNDS }), row = rowMaker(rounds);
  const rows = plans.map((plan, index) =>
    row(`${index === 0 ? "choice: " : ""}${describeCandidate(plan)}`, "ms", (ms) => ms[index]!, {
      note: `predicted ${predicted(plan).toFixed(1)}`,
    })
  );
  const [_, ...others] = rows.map(({ measured }) => measured!.median);
  const first = 1 + others.indexOf(Math.min(...others));
  return { rows, ratio: spreadOf(rounds, (ms) => ms[0]! / ms[first]!) };
}

/** Returns the row of the choice: within 3 % of the best measured plan, or equal within the spread. */
function choiceRow(ratio: Spread, share: number, load: number): Row {
  const equalMax = (1 + share) / (1 - share), isEqual = ratio.median < equalMax;
  const isNear = ratio.median <= CHOICE_MAX || !isEqual;
  const busy = `; not calibrated: other programs use ${(100 * load).toFixed(0)} % of this machine`;
  return {
    name: "choice ÷ best measured",
    unit: "×",
    measured: ratio,
    target: { atMost: isNear ? CHOICE_MAX : Number(equalMax.toFixed(2)) },
    note: `${isEqual ? "equal" : "not equal"} within the profile's ±${(100 * share).toFixed(1)} %` +
      (load > OTHERS_LOAD_MAX ? busy : ""),
  };
}

/** Returns the function that predicts the milliseconds of a plan's step. */
function predictionsOf(profile: Profile) {
  const forecast = openForecast(profile, {
    model: modelOf(1),
    optimizer: ADAMW_DEFAULTS,
    device: "native",
    transport: "worker",
  });
  const predicted = (plan: Candidate): number => {
    const schedule = scheduleOf(plan);
    return (forecast.varied ?? forecast.step)(plan, schedule)!.stepMs;
  };
  return { forecast, predicted };
}

/** Milliseconds for which the load of other programs is measured. */
const LOAD_MS = 1000;

/** Measures random plans, and the planner's choice beside the best. */
export async function plansBench(runs = 60, seed = 1): Promise<Row[]> {
  const load = await othersLoad(LOAD_MS), space = spaceOf(navigator.hardwareConcurrency);
  const { measured, profile } = await measurePlans(space, drawPlans(space, runs, seed));
  const { forecast, predicted } = predictionsOf(profile), share = profileSpread(profile);
  const { best: [choice] } = planRuns(space, forecast, { spread: share });
  const { rows, ratio } = await compareAgain(choice!, measured, predicted);
  return [
    choiceRow(ratio, share, load),
    ...rows,
    valueRow(
      `predicted ÷ measured, ${measured.length} plans`,
      "×",
      measured.map(({ plan, ms }) => predicted(plan) / ms),
    ),
  ];
}
