/**
 * Holds a plan against an exhaustive search for real: every run of a space is measured, and the best
 * of them again beside the one that the planner chooses.
 *
 * [Note: the same hours for both] Costs are measured by probes between the runs, never on the steps
 * themselves. All runs are taken twice, the second time backwards, so that a machine that becomes
 * slower is slow for all; the best are then measured in turn, round by round.
 *
 * @module
 */

import {
  ADAMW_DEFAULTS,
  type DeviceName,
  type Model,
  resolveDevice,
} from "../../../kernels/mod.ts";
import { median } from "../profile/median.ts";
import { type Meter, openMeter } from "../measuring/meter.ts";
import { type MeasuredRun, openMeasuredRun } from "../measuring/open_run.ts";
import { type Candidate, candidatesOf, type PlanSpace } from "./candidate.ts";
import { openForecast } from "./open_forecast.ts";
import { planRuns, scheduleOf } from "./plan.ts";

/** What is searched, and on what. */
export interface PlanCheckOptions {
  readonly space: PlanSpace;
  /** The model, for some micro-batch. */
  readonly model: Model;
  readonly device: DeviceName;
  /** Told in words what is done. */
  readonly announce: (line: string) => void;
}

/** A run of the space. Times are of a step, in milliseconds. */
export interface CheckedRun {
  readonly candidate: Candidate;
  /** The median of its steps in the exhaustive search. */
  readonly measuredMs: number;
  readonly predictedMs: number;
  /** The median of the rounds in which the best ones were measured again. */
  readonly againMs: number | undefined;
  /** Whether the planner chooses it. */
  readonly isChoice: boolean;
}

/** What the check comes to. */
export interface PlanCheck {
  /** All runs, the fastest first. */
  readonly runs: readonly CheckedRun[];
  readonly choice: CheckedRun;
  /** The fastest of those that were measured again. */
  readonly best: CheckedRun;
  /** By how much the choice is longer than the best, as a fraction. */
  readonly loss: number;
}

/** The most by which the choice may be longer than the best. */
export const LOSS_MAX = 0.03;

/** How many of the best are measured again. */
const BEST = 5;

/** Steps of a run in the exhaustive search, and those before them that do not count. */
const STEPS = 3, WARMUP = 1;

/** Rounds in which the best are measured again, steps of each. */
const ROUNDS = 7;

/** Runs between two measurements of the costs, and how long those last for each model and load. */
const RUNS_A_ROUND = 8, PROBE_MS = 500;

/** Checks a plan. */
export async function checkPlan(options: PlanCheckOptions): Promise<PlanCheck> {
  const { space, announce } = options, runs = servedCandidates(space);
  const device = await resolveDevice(options.device, announce);
  await using meter = await openMeter({
    device,
    models: modelsOf(options),
    sizes: {},
    loads: loadsUpTo(space.devices),
    isolate: "worker",
    links: ["worker"],
  });
  await meter.round(PROBE_MS);
  meter.reset();
  announce(`measuring ${runs.length} runs, each twice`);
  const times = await exhaust(runs, options, meter);
  const forecast = openForecast(meter.profile(), {
    model: options.model,
    optimizer: ADAMW_DEFAULTS,
    device: device.name,
    transport: "worker",
  });
  const [choice] = planRuns(space, forecast, { count: 1 }).best;
  const chosen = runs.findIndex((one) => keyOf(one) === keyOf(choice!));
  const checked = runs.map((candidate, i): CheckedRun => ({
    candidate,
    measuredMs: times[i]!,
    predictedMs: (forecast.varied ?? forecast.step)(candidate, scheduleOf(candidate)).stepMs,
    againMs: undefined,
    isChoice: i === chosen,
  })).sort((a, b) => a.measuredMs - b.measuredMs);
  const again = checked.filter((one, i) => i < BEST || one.isChoice);
  announce(`measuring the best ${again.length} again, in turn`);
  const medians = await measureInTurn(again.map(({ candidate }) => candidate), options);
  return planCheckOf(checked.map((one) => {
    const index = again.indexOf(one);
    return index < 0 ? one : { ...one, againMs: medians[index] };
  }));
}

/** What runs come to, some of which were measured again, the choice among them. */
export function planCheckOf(checked: readonly CheckedRun[]): PlanCheck {
  const timeOf = ({ againMs = Infinity }: CheckedRun) => againMs;
  const best = checked.reduce((a, b) => timeOf(b) < timeOf(a) ? b : a);
  const choice = checked.find(({ isChoice }) => isChoice)!;
  return { runs: checked, choice, best, loss: timeOf(choice) / timeOf(best) - 1 };
}

/** The candidates that can be run. */
function servedCandidates(space: PlanSpace): Candidate[] {
  return [...candidatesOf(space)].filter((candidate) => {
    try {
      return scheduleOf(candidate).stages <= space.layers;
    } catch (error) {
      if (error instanceof RangeError) return false;
      throw error;
    }
  });
}

const keyOf = ({ schedule, workers, microBatch, recompute }: Candidate): string =>
  [schedule, workers, microBatch, recompute].join(" ");

/** Every model that a candidate runs. */
function modelsOf({ space, model }: PlanCheckOptions) {
  const sizes = new Set([...candidatesOf(space)].map(({ microBatch }) => microBatch));
  return [...sizes].flatMap((microBatch) =>
    space.recompute.map((recompute) => ({
      model: model.withSamples!(microBatch),
      microBatch,
      recompute,
    }))
  );
}

/** 1, 2, 4 … up to the most. */
const loadsUpTo = (most: number): number[] => [
  ...[1, 2, 4, 8, 16, 32, 64, 128].filter((load) => load < most),
  most,
];

/** Measures every run, and then every run again, backwards; costs in between. */
async function exhaust(
  runs: readonly Candidate[],
  options: PlanCheckOptions,
  meter: Meter,
): Promise<number[]> {
  const steps = runs.map((): number[] => []), indices = runs.map((_, i) => i);
  for (const [nth, index] of [...indices, ...indices.toReversed()].entries()) {
    if (nth % RUNS_A_ROUND === 0) await meter.round(PROBE_MS);
    await using run = await openRun(runs[index]!, options);
    await takeSteps(run, WARMUP);
    for (let step = 0; step < STEPS; step++) steps[index]!.push((await run.step()).ms);
  }
  return steps.map(median);
}

/** Measures some runs in turn, round by round: for each its median. */
async function measureInTurn(
  runs: readonly Candidate[],
  options: PlanCheckOptions,
): Promise<number[]> {
  await using stack = new AsyncDisposableStack();
  const open: { readonly run: MeasuredRun; readonly rounds: number[] }[] = [];
  for (const candidate of runs) {
    open.push({ run: stack.use(await openRun(candidate, options)), rounds: [] });
  }
  for (const { run } of open) await takeSteps(run, WARMUP);
  for (let round = 0; round < ROUNDS; round++) {
    const order = round % 2 === 0 ? open : open.toReversed();
    for (const { run, rounds } of order) rounds.push(await takeSteps(run, STEPS));
  }
  return open.map(({ rounds }) => median(rounds));
}

/** The mean of some steps. */
async function takeSteps(run: MeasuredRun, steps: number): Promise<number> {
  let sum = 0;
  for (let step = 0; step < steps; step++) sum += (await run.step()).ms;
  return sum / steps;
}

const openRun = (
  { schedule, options, workers, replicas, microBatch, microBatches, recompute }: Candidate,
  { model, device }: PlanCheckOptions,
): Promise<MeasuredRun> =>
  openMeasuredRun({
    ...{ schedule, scheduleOptions: options, workers, replicas, microBatches, recompute, device },
    model: model.withSamples!(microBatch),
    runtime: "workers",
  });
