/**
 * How evenly a model is cut: the time of each stage, measured by itself, and what of a schedule that
 * leaves.
 *
 * @module
 */

import {
  ADAMW_DEFAULTS,
  type Batch,
  compileModel,
  cutIntoStages,
  type Device,
  type DeviceName,
  type MessageArray,
  openDevice,
  openStage,
  type Passed,
  type Stage,
} from "../../kernels/mod.ts";
import { analyze, createSchedule, type Schedule } from "../../schedules/mod.ts";
import { interleave, spread } from "../support/timing.ts";
import {
  benchBatches,
  benchModel,
  firstWeights,
  tokensOf,
  type Workload,
} from "../support/workload.ts";

/** What is cut, for which schedule. */
export interface Cut {
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
export interface ScheduleLimits {
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
