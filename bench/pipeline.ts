/**
 * Two workers against one, and one worker against the serial loop.
 *
 * [Note: the limit of a step] One worker's step is spread over the workers but for the bubble: the
 * ideal. Stages that are not alike leave less of it; so does a machine on which a worker is slower
 * when another one works beside it (they share caches and memory, and the clock may fall). The limit
 * is what all three leave; what the step takes beyond it is messages, copies and waiting.
 *
 * [Note: played again] The actions of a traced step are played again on paper, each on its worker, in
 * its order, for as long as it took, as soon as what it needs has been computed. What the step took
 * longer than that is lost. Other programs make actions longer, and so both: the difference stands on
 * a busy machine, too.
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
import type { MessageArray, Passed } from "../kernels/devices/device.ts";
import { openStage, type Stage } from "../kernels/stage/stage.ts";
import { analyze, createSchedule, type Schedule } from "../schedules/mod.ts";
import { type Row, rowMaker, valueRow } from "./report.ts";
import { interleave, type Round, spread } from "./timing.ts";
import {
  benchBatches,
  benchDevices,
  type BenchEngine,
  benchModel,
  type BenchRun,
  firstWeights,
  openBenchEngine,
  SMALL,
  tokensOf,
  type Workload,
} from "./workload.ts";

/** What is cut, for which schedule. */
interface Cut {
  readonly device: DeviceName;
  readonly workload: Workload;
  readonly schedule: string;
  readonly workers: number;
  /** Micro-batches of a step, N. */
  readonly microBatches: number;
  readonly rounds: number;
}

/** The parts of a stage's work, as a schedule runs them. */
type Kind = "F" | "B" | "I" | "W";

/** Median milliseconds of each kind, by stage. */
type StageTimes = Readonly<Record<Kind, readonly number[]>>;

/** What a schedule can reach. */
interface ScheduleLimits {
  /** The share of its time that a worker waits where stages are alike. */
  readonly bubble: number;
  /** What uneven stages leave of what the bubble leaves, 0 to 1. */
  readonly balance: number;
  /** The step over one worker's, as bubble and balance leave it. */
  readonly ofOneWorker: number;
  /** The share of each stage in the work. */
  readonly shares: readonly number[];
}

/** What a stage got and gave, so that it can run alone. */
interface Boundary {
  readonly stage: Stage;
  /** Output of the stage before. */
  readonly input: Passed | undefined;
  /** As long as the gradient that comes back. */
  readonly gradient: MessageArray;
}

/** The backward of a schedule: whole, or its two parts. */
const kindsOf = ({ lists = [] }: Schedule): readonly Kind[] =>
  lists.some((list) => [...list].some(({ kind }) => kind === "W")) ? ["F", "I", "W"] : ["F", "B"];

/** Opens the stages and passes one micro-batch through them. */
async function openStages(
  device: Device,
  schedule: Schedule,
  workload: Workload,
  fields: Batch,
): Promise<Boundary[]> {
  const model = compileModel(benchModel(workload), "none"), weights = firstWeights(workload);
  const backward = kindsOf(schedule).includes("W") ? "split" : "whole";
  const boundaries: Boundary[] = [];
  let input: Passed | undefined;
  for (const program of cutIntoStages(model, schedule.stages)) {
    const stage = await openStage(device, program, { optimizer: ADAMW_DEFAULTS, backward });
    stage.load({ weights, moments: new Map() });
    const { output } = await stage.forward(0, input, fields);
    stage.drop(0);
    boundaries.push({ stage, input, gradient: new Float32Array((output as MessageArray).length) });
    input = output;
  }
  return boundaries;
}

/** Times each stage by itself. */
async function timeStages(
  { device: name, workload, rounds }: Cut,
  schedule: Schedule,
): Promise<StageTimes> {
  const device = await openDevice(name, { isBlocking: true });
  try {
    const [fields] = benchBatches(1, 1, workload), kinds = kindsOf(schedule);
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
    const medians = (all: readonly (readonly number[])[]) => all.map((one) => spread(one).median);
    const { F, B, I, W } = samples;
    return { F: medians(F), B: medians(B), I: medians(I), W: medians(W) };
  } finally {
    device.close();
  }
}

/** The length of a step in the unit of the times. */
function makespanOf(schedule: Schedule, { F, B, I, W }: StageTimes): number {
  const backward = B.length > 0 ? { backward: B } : { input: I, weight: W };
  return analyze(schedule, { forward: F, ...backward }).makespan;
}

/** Measures the stages, and executes the schedule on paper with what they take. */
export async function measureLimits(cut: Cut): Promise<ScheduleLimits> {
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
  const { F, B, I, W } = times;
  const even = makespanOf(schedule, { F: mean(F), B: mean(B), I: mean(I), W: mean(W) });
  const uneven = makespanOf(schedule, times), work = microBatches * total;
  return {
    bubble: 1 - work / workers / even,
    balance: even / uneven,
    ofOneWorker: uneven / work,
    shares: totals.map((one) => one / total),
  };
}

/** Synchronous schedules that have each weight once. */
const SCHEDULES = ["1f1b", "interleaved", "zb-h1", "zb-v"] as const;

/** Milliseconds of the fastest of some steps, after one that does not count. */
async function fastestStep(run: BenchRun, steps: number): Promise<number> {
  await using engine = await openBenchEngine(run);
  const rounds = await interleave({ step: async () => void await engine.step() }, {
    rounds: steps,
    warmup: 1,
    isAlone: false,
  });
  return Math.min(...rounds.map(({ ms }) => ms.step));
}

/** Tries the schedules one after the other, so that one model is held at a time. */
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

/** Milliseconds of a round: one worker, that beside an independent one, and the two that share. */
interface LimitRound {
  readonly one: number;
  readonly twins: number;
  readonly two: number;
}

const percent = (share: number) => `${(100 * share).toFixed(1)} %`;

/** The rows, from some rounds and what was measured of the stages. */
export function limitRows(
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

/** An action of a stage on a micro-batch. */
interface Played {
  readonly name: string;
  /** The action of another stage whose output it takes; none at the ends of the pipeline. */
  readonly needs: string;
  readonly ms: number;
}

/** Those that compute; others are no part of it: all-reduce and optimizer. */
function playedOf({ name, start, end }: TracedAction): Played[] {
  const [, stage, kind, microBatch] = /^(\d+)([FBIW])(\d+)$/.exec(name) ?? [];
  if (stage === undefined) return [];
  const before = Number(stage) + (kind === "F" ? -1 : 1);
  // Split backwards pass the gradient on by I.
  return [{ name, needs: kind === "W" ? "" : `${before}${kind}${microBatch}`, ms: end - start }];
}

/** Milliseconds from the first forward to the last backward, played without any loss. */
function playedMs(lists: readonly (readonly Played[])[]): number {
  const all = new Set(lists.flat().map(({ name }) => name));
  const ends = new Map<string, number>(), queues = lists.map((list) => [...list]);
  const freeAt = lists.map(() => 0);
  for (let isMoving = true; isMoving;) {
    isMoving = false;
    for (const [worker, queue] of queues.entries()) {
      const [next] = queue;
      if (!next || all.has(next.needs) && !ends.has(next.needs)) continue;
      freeAt[worker] = Math.max(freeAt[worker]!, ends.get(next.needs) ?? 0) + next.ms;
      ends.set(next.name, freeAt[worker]!);
      queue.shift();
      isMoving = true;
    }
  }
  return Math.max(...freeAt);
}

/** Milliseconds that a traced step lost between its actions. */
export function lostMs(traces: readonly (readonly TracedAction[])[]): number {
  const computing = traces.map((trace) => trace.filter((one) => playedOf(one).length > 0));
  const all = computing.flat();
  const took = Math.max(...all.map(({ end }) => end)) - Math.min(...all.map(({ start }) => start));
  return took - playedMs(computing.map((trace) => trace.flatMap(playedOf)));
}

/** Micro-batches of a step, N. */
const MICRO_BATCHES = 8;
const WORKERS = 2;
const SCHEDULE = "1f1b";

/** The steps that are compared. `twins` is one worker with a second, independent one beside it. */
type StepRound = Round<"serial" | "one" | "two" | "twins">;

/** Rounds, and for each step of two workers the share that was lost between its actions. */
async function timeSteps(device: DeviceName): Promise<{ rounds: StepRound[]; lost: number[] }> {
  const run = { device, microBatches: MICRO_BATCHES, schedule: SCHEDULE } as const;
  const open = (workers: number) => openBenchEngine({ ...run, workers, isTraced: workers > 1 });
  await using serial = await open(0);
  await using one = await open(1);
  await using twin = await open(1);
  await using two = await open(WORKERS);
  const timed = ({ step }: BenchEngine) => async () => void await step();
  const twins = async () => void await Promise.all([one.step(), twin.step()]);
  const lost: number[] = [];
  const traced = async () => {
    const start = performance.now(), { traces } = await two.outcome();
    const ms = performance.now() - start;
    lost.push(lostMs(traces) / ms);
    return ms;
  };
  const rounds = await interleave(
    { serial: timed(serial), one: timed(one), two: traced, twins },
    device === "native" ? { rounds: 11 } : { rounds: 5, warmup: 1 },
  );
  return { rounds, lost };
}

async function measure(device: DeviceName): Promise<Row[]> {
  const limits = await measureLimits({
    device,
    workload: SMALL,
    schedule: SCHEDULE,
    workers: WORKERS,
    microBatches: MICRO_BATCHES,
    rounds: 9,
  });
  const { rounds, lost } = await timeSteps(device);
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
    ...limitRows(rounds.map(({ ms }) => ms), limits, WORKERS),
    valueRow("  of that, between actions", "%", lost.map((share) => 100 * share), {
      note: "messages, their copies and what else no action's own duration explains",
    }),
    otherCores.length > 0 ? valueRow(others, cores, otherCores) : { name: others, unit: cores },
  ].map((row) => ({ ...row, name: `${device}: ${row.name}` }));
}

/** Measures each device. */
export async function pipelineBench(): Promise<Row[]> {
  const { names, missing } = await benchDevices();
  const rows = [...missing];
  for (const name of names) rows.push(...await measure(name));
  return rows;
}
