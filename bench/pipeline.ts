/**
 * Compares two workers with one, and one worker with the serial loop.
 *
 * [Note: the limit of a step] Ideally the step of one worker is divided among the workers, plus the
 * bubble. Uneven stages increase the time; so does a machine on which workers slow each other down
 * (they share caches and memory, and the clock may fall). These three give the limit of a step; time
 * beyond it is messages, copies and waiting.
 *
 * [Note: lost time] The actions of a traced step are simulated, each on its worker, in its order, with
 * its measured duration, as soon as its input is computed. The time that the step took beyond this is
 * lost. Other programs lengthen actions in both, so the difference is valid on a busy machine.
 *
 * @module
 */

import type { TracedAction } from "../actors/pipeline/step.ts";
import {
  ADAMW_DEFAULTS,
  type Batch,
  compileModel,
  type Device,
  type DeviceName,
  openDevice,
} from "../kernels/mod.ts";
import { cutIntoStages } from "../kernels/compile/layout.ts";
import type { MessageArray, StageValues } from "../kernels/devices/device.ts";
import { openStage } from "../kernels/stage/stage.ts";
import { splitsBackward } from "../schedules/internal.ts";
import { analyze, createSchedule, type Schedule } from "../schedules/mod.ts";
import { type Row, rowMaker, valueRow } from "./report.ts";
import { interleave, type RoundOptions, spread } from "./timing.ts";
import {
  benchBatches,
  type BenchEngine,
  benchModel,
  type BenchRun,
  closing,
  firstWeights,
  openBenchEngine,
  rowsOfDevices,
  SMALL,
  tokensOf,
  type Workload,
} from "./workload.ts";

/** A model and the schedule for which it is cut. */
interface Cut {
  readonly device: DeviceName;
  readonly workload: Workload;
  readonly schedule: string;
  readonly workers: number;
  /** Micro-batches of a step, N. */
  readonly microBatches: number;
  readonly rounds: number;
}

/** Kinds of actions of a stage. */
type Kind = "F" | "B" | "I" | "W";

/** Median milliseconds of each kind, by stage. */
type StageTimes = Readonly<Record<Kind, readonly number[]>>;

/** Converts the times of each kind. */
const mapTimes = <T>({ F, B, I, W }: Readonly<Record<Kind, T>>, to: (times: T) => number[]) => (
  { F: to(F), B: to(B), I: to(I), W: to(W) }
);

/** Opens the stages with their inputs, so that each can run alone: one micro-batch goes through them. */
async function openStages(device: Device, schedule: Schedule, workload: Workload, fields: Batch) {
  const model = compileModel(benchModel(workload), "none"), weights = firstWeights(workload);
  const backward = splitsBackward(schedule) ? "split" : "whole";
  const boundaries = [];
  let input: StageValues | undefined;
  for (const program of cutIntoStages(model, schedule.stages)) {
    const stage = await openStage(device, program, { optimizer: ADAMW_DEFAULTS, backward });
    stage.load({ weights, moments: new Map() });
    const { output } = await stage.forward(0, input, fields);
    stage.drop(0);
    // A gradient has the length of the output.
    boundaries.push({ stage, input, gradient: new Float32Array((output as MessageArray).length) });
    input = output;
  }
  return boundaries;
}

/** Times each stage separately. */
async function timeStages(
  { device: name, workload, rounds }: Cut,
  schedule: Schedule,
): Promise<StageTimes> {
  using device = closing(await openDevice(name, { isBlocking: true }));
  const [fields] = benchBatches(1, 1, workload);
  const kinds = splitsBackward(schedule) ? ["F", "I", "W"] as const : ["F", "B"] as const;
  const boundaries = await openStages(device, schedule, workload, fields!);
  const samples: Record<Kind, number[][]> = { F: [], B: [], I: [], W: [] };
  const cases = boundaries.map(({ stage, input, gradient }, i) =>
    [`${i}`, async () => {
      for (const kind of kinds) {
        const start = performance.now();
        if (kind === "F") await stage.forward(0, input, fields!);
        else await stage.backward(0, kind, gradient, 1 / tokensOf(workload));
        (samples[kind][i] ??= []).push(performance.now() - start);
      }
    }] as const
  );
  await interleave(Object.fromEntries(cases), { rounds });
  return mapTimes(samples, (all) => all.map((one) => spread(one).median));
}

/** Returns the length of a step in the unit of the times. */
function makespanOf(schedule: Schedule, { F, B, I, W }: StageTimes): number {
  const backward = B.length > 0 ? { backward: B } : { input: I, weight: W };
  return analyze(schedule, { forward: F, ...backward }).makespan;
}

/** Measures the stages and simulates the schedule with their times. */
async function measureLimits(cut: Cut) {
  const { workers, microBatches } = cut;
  const schedule = createSchedule(cut.schedule, { workers, microBatches });
  const times = await timeStages(cut, schedule);
  const totals = Array.from(
    { length: schedule.stages },
    (_, i) => Object.values(times).reduce((sum, one) => sum + (one[i] ?? 0), 0),
  );
  const total = totals.reduce((sum, one) => sum + one, 0);
  const mean = (values: readonly number[]) =>
    values.map(() => values.reduce((sum, value) => sum + value, 0) / values.length);
  const even = makespanOf(schedule, mapTimes(times, mean));
  const uneven = makespanOf(schedule, times), work = microBatches * total;
  return {
    /** The share of time in which a worker waits, with even stages. */
    bubble: 1 - work / workers / even,
    /** The efficiency of uneven stages relative to even ones, 0 to 1. */
    balance: even / uneven,
    /** The time of a step relative to that of one worker, with bubble and balance. */
    ofOneWorker: uneven / work,
    /** The share of each stage in all work. */
    shares: totals.map((one) => one / total),
  };
}

/** The limits of a schedule. */
type ScheduleLimits = Awaited<ReturnType<typeof measureLimits>>;

/** Synchronous schedules without copies of weights. */
const SCHEDULES = ["1f1b", "interleaved", "zb-h1", "zb-v"] as const;

/** Returns the milliseconds of the fastest of some steps, after a warm-up step. */
async function fastestStep(run: BenchRun, steps: number): Promise<number> {
  await using engine = await openBenchEngine(run);
  const rounds = await interleave({ step: async () => void await engine.step() }, {
    rounds: steps,
    warmup: 1,
    isAlone: false,
  });
  return Math.min(...rounds.map(({ ms }) => ms.step));
}

/** Tries the schedules one after another, so that one model is in memory at a time. */
export async function fastestSchedule(
  run: Omit<BenchRun, "schedule">,
  steps: number,
): Promise<{ schedule: string; rows: Row[] }> {
  const tried: { schedule: string; ms: number }[] = [];
  for (const schedule of SCHEDULES) {
    tried.push({ schedule, ms: await fastestStep({ ...run, schedule }, steps) });
  }
  const { schedule } = tried.reduce((best, one) => one.ms < best.ms ? one : best);
  const rows = tried.map((one) =>
    valueRow(
      `${run.device}, ${run.workers} workers, ${one.schedule}: fastest step of ${steps}`,
      "ms",
      [one.ms],
      one.schedule === schedule ? { note: "taken" } : {},
    )
  );
  return { schedule, rows };
}

/** Milliseconds of a round: one worker, one beside a second, independent one, and two of a model. */
type LimitRound = Readonly<Record<"one" | "twins" | "two", number>>;

const percent = (share: number) => `${(100 * share).toFixed(1)} %`;

/** Returns the rows of rounds and of the limits. */
function limitRows(
  rounds: readonly LimitRound[],
  { bubble, balance, ofOneWorker, shares }: ScheduleLimits,
  workers: number,
): Row[] {
  const ideal = (one: number) => one / workers / (1 - bubble);
  const beyond = ({ two, twins }: LimitRound) => 100 * (two / (twins * ofOneWorker) - 1);
  const least = (key: keyof LimitRound) => Math.min(...rounds.map((round) => round[key]));
  const fastest: LimitRound = { one: least("one"), twins: least("twins"), two: least("two") };
  const efficiency = rounds.map(({ one, two }) => 100 * ideal(one) / two);
  const best = percent(ideal(fastest.one) / fastest.two);
  return [
    valueRow("ideal ÷ two workers", "%", efficiency, {
      target: { atLeast: 85 },
      note: `of fastest steps ${best}; bubble ${percent(bubble)} of a worker's time`,
    }),
    valueRow("  at most, by the balance of stages", "%", [100 * balance], {
      note: `work: ${shares.map(percent).join(", ")}`,
    }),
    valueRow("  at most, by the machine", "%", rounds.map(({ one, twins }) => 100 * one / twins), {
      note: "a worker alone ÷ beside an independent one",
    }),
    valueRow("two workers ÷ what both leave − 1", "%", rounds.map(beyond), {
      target: { atMost: 3 },
      note: `of fastest steps ${beyond(fastest).toFixed(1)} %`,
    }),
  ];
}

/**
 * Returns a traced action with the action of another stage whose output it needs, if it has one; none
 * for an all-reduce or the optimizer.
 */
function computedOf(worker: number, { name, start, end }: TracedAction) {
  const [, stage, kind, microBatch] = /^(\d+)([FBIW])(\d+)$/.exec(name) ?? [];
  if (stage === undefined) return [];
  const before = Number(stage) + (kind === "F" ? -1 : 1);
  // Split backwards pass the gradient on by I.
  const needs = kind === "W" ? "" : `${before}${kind}${microBatch}`;
  return [{ worker, name, needs, start, end }];
}

/** Returns the milliseconds that a traced step lost between its actions. */
export function lostMs(traces: readonly (readonly TracedAction[])[]): number {
  const all = traces.flatMap((trace, worker) => trace.flatMap((one) => computedOf(worker, one)));
  const ends = new Map<string, number>(), freeAt = traces.map(() => 0);
  // Actions began after their inputs, so that these are played before them.
  for (const { worker, name, needs, start, end } of all.sort((a, b) => a.start - b.start)) {
    const played = Math.max(freeAt[worker]!, ends.get(needs) ?? 0) + end - start;
    freeAt[worker] = played;
    ends.set(name, played);
  }
  return Math.max(...all.map(({ end }) => end)) - all[0]!.start - Math.max(...freeAt);
}

/**
 * Measures one worker, two, and what bounds the speed of two.
 *
 * @param more measures that take part in the rounds.
 */
export async function measureWorkers<More extends string = never>(
  cut: Cut,
  options: RoundOptions,
  more = {} as Readonly<Record<More, () => Promise<void>>>,
) {
  const { device, workload, schedule, workers, microBatches } = cut;
  const limits = await measureLimits(cut), lost: number[] = [];
  const run = { device, workload, schedule, microBatches };
  await using one = await openBenchEngine({ ...run, workers: 1 });
  await using twin = await openBenchEngine({ ...run, workers: 1 });
  await using both = await openBenchEngine({ ...run, workers, isTraced: true });
  const rounds = await interleave<More | keyof LimitRound>({
    ...more,
    one: timed(one),
    async two() {
      const start = performance.now(), { traces } = await both.outcome();
      const ms = performance.now() - start;
      lost.push(100 * lostMs(traces) / ms);
      return ms;
    },
    twins: async () => void await Promise.all([one.step(), twin.step()]),
  }, options);
  return {
    rounds,
    rows: [
      ...limitRows(rounds.map(({ ms }) => ms), limits, workers),
      valueRow("  of that, between actions", "%", lost, {
        note: "messages, their copies, and other time outside of actions",
      }),
    ],
  };
}

const timed = ({ step }: BenchEngine) => async () => void await step();

async function measure(device: DeviceName): Promise<Row[]> {
  const run = { device, workload: SMALL, schedule: "1f1b", microBatches: 8 };
  await using loop = await openBenchEngine({ ...run, workers: 0 });
  const options = device === "native" ? { rounds: 11 } : { rounds: 5, warmup: 1 };
  const cut = { ...run, workers: 2, rounds: 9 };
  const { rounds, rows } = await measureWorkers(cut, options, { serial: timed(loop) });
  const otherCores = rounds.flatMap((round) => round.otherCores ?? []), row = rowMaker(rounds);
  const least = (name: "one" | "serial") => Math.min(...rounds.map(({ ms }) => ms[name]));
  const fastest = 100 * (least("one") / least("serial") - 1);
  const others = "  other programs meanwhile", cores = "cores";
  return [
    row("step, serial loop", "ms", ({ serial }) => serial),
    row("step, one worker", "ms", ({ one }) => one),
    row("step, two workers", "ms", ({ two }) => two),
    row("one worker ÷ serial loop − 1", "%", ({ one, serial }) => 100 * (one / serial - 1), {
      target: { atMost: 1 },
      note: `fastest step of each: ${fastest.toFixed(1)} %`,
    }),
    ...rows,
    otherCores.length > 0 ? valueRow(others, cores, otherCores) : { name: others, unit: cores },
  ].map((row) => ({ ...row, name: `${device}: ${row.name}` }));
}

/** Measures each device. */
export const pipelineBench = (): Promise<Row[]> => rowsOfDevices(measure);
