/**
 * A probe: an actor that computes a stage over and over and tells how long each part of it took, so
 * that several of them load a machine as the workers of a run do.
 *
 * @module
 */

import {
  type Batch,
  type Device,
  type DeviceChoice,
  elementCount,
  HOST_ARRAYS,
  openDevice,
  openStage,
  type Passed,
  stageBorder,
  type StageOptions,
  type StageProgram,
  type StageState,
  type TensorSpec,
} from "../../kernels/mod.ts";
import type { ActorFactory, ActorSpec } from "../runtime/mod.ts";
import { timedDevice } from "./timed_device.ts";

/** What a probe computes, and on what. */
interface ProbeInit {
  readonly device: DeviceChoice;
  readonly stages: readonly ProbedStage[];
}

/** A stage that a probe computes. */
export interface ProbedStage {
  readonly program: StageProgram;
  readonly options: StageOptions;
  readonly weights: StageState["weights"];
  /** A micro-batch. */
  readonly fields: Batch;
}

/** What a probe is asked. Times are of the clock of its isolate. */
export type ProbeMessage =
  /** Computes until then; the reply ({@linkcode ProbeTimes}) is of what began in between. */
  | {
    readonly type: "Compute";
    /** Which of its stages. */
    readonly stage: number;
    readonly fromMs: number;
    readonly untilMs: number;
  }
  /** Ends so many steps of a stage; the reply is a {@linkcode ProbeClosing}. */
  | { readonly type: "Close"; readonly stage: number; readonly steps: number };

/** An action of a probe. */
export type ProbedKind = "F" | "B" | "I" | "W";

/** Returns a record of all kinds of actions. */
export const forKinds = <T>(make: (kind: ProbedKind) => T): Record<ProbedKind, T> => ({
  F: make("F"),
  B: make("B"),
  I: make("I"),
  W: make("W"),
});

/** How often something ran, and how long all of it took. */
export interface TimedSum {
  runs: number;
  ms: number;
}

/** What a probe has measured. */
export interface ProbeTimes {
  /** For each program of the stage, of each part. */
  readonly programs: readonly Readonly<Record<ProbedKind, TimedSum>>[];
  /** Milliseconds of each action. */
  readonly actions: Readonly<Record<ProbedKind, readonly number[]>>;
}

/** Milliseconds of what ends a step, all steps together. */
export interface ProbeClosing {
  readonly voteMs: number;
  readonly normMs: number;
  readonly optimizerMs: number;
  readonly endMs: number;
}

/** How a probe is made in any isolate. */
export const PROBE: ActorSpec<ProbeInit, ProbeMessage> = {
  module: import.meta.url,
  export: "probe",
};

/** Micro-batches in flight, so that a backward does not find all in a cache that its forward left. */
const IN_FLIGHT = 2;

/** A rate at which nothing diverges, and a factor of the loss. */
const RATE = 1e-5, LOSS_SCALE = 1e-3;

/** An open stage of a probe. */
type OpenStage = Awaited<ReturnType<typeof openProbed>>;

/** A run of a model. */
interface ModelRun {
  readonly program: number;
  /** Whether it is the model of the action, not one that readies something for it. */
  readonly isMain: boolean;
  readonly ms: number;
}

/** Makes a probe. */
export const probe: ActorFactory<ProbeInit, ProbeMessage> = async (
  ctx,
  { device: choice, stages },
) => {
  const isBlocking = ctx.self.isolate !== 0;
  const device = await openDevice(choice.name, { ...choice, isBlocking });
  ctx.defer(() => device.close());
  const now = () => ctx.now(), open: OpenStage[] = [];
  for (const probed of stages) open.push(await openProbed(device, probed, now));
  return {
    async Compute({ stage, fromMs, untilMs }) {
      const one = open[stage]!;
      one.times = emptyTimes(one.probed.program);
      while (now() < untilMs) await cycle(one, fromMs, untilMs);
      ctx.reply(one.times);
    },
    async Close({ stage, steps }) {
      ctx.reply(await close(open[stage]!, steps));
    },
  };
};

async function openProbed(device: Device, probed: ProbedStage, now: () => number) {
  const { program, options, weights, fields } = probed;
  /** Runs of the models of the current action. */
  const runs: ModelRun[] = [];
  const whose = new Map<Uint8Array, Pick<ModelRun, "program" | "isMain">>();
  for (const [index, { models, overwrites = [] }] of program.programs.entries()) {
    for (const model of Object.values(models)) whose.set(model, { program: index, isMain: true });
    for (const { model } of overwrites) whose.set(model, { program: index, isMain: false });
  }
  const tell = (model: Uint8Array, ms: number) => {
    const known = whose.get(model); // none of the optimizer's
    if (known) runs.push({ ...known, ms });
  };
  const stage = await openStage(timedDevice(device, now, tell), program, options);
  stage.load({ weights, moments: new Map() });
  const { inputs, arriving } = stageBorder(program);
  const input = inputs.length > 0 ? numbersOf(inputs, (i) => (i % 17 - 8) / 16) : undefined;
  await stage.forward(0, input, fields);
  stage.drop(0);
  const gradient = numbersOf(arriving, () => 1e-3); // as long as the output of the stage
  return { now, probed, stage, input, gradient, runs, times: emptyTimes(program) };
}

/** Small numbers for what other stages would send; ids and masks are zero. */
function numbersOf(specs: readonly TensorSpec[], numberAt: (index: number) => number): Passed {
  return Object.fromEntries(specs.map(({ name, dtype, shape }) => {
    const array = new HOST_ARRAYS[dtype](elementCount(shape));
    if (array instanceof Float32Array || array instanceof Float16Array) {
      for (const i of array.keys()) array[i] = numberAt(i);
    }
    return [name, array];
  }));
}

const emptyTimes = ({ programs }: StageProgram) => ({
  programs: programs.map(() => forKinds((): TimedSum => ({ runs: 0, ms: 0 }))),
  actions: forKinds((): number[] => []),
});

/** Some micro-batches, forward and backward, whole and, where the stage can, in two parts. */
async function cycle(one: OpenStage, fromMs: number, untilMs: number): Promise<void> {
  const isSplit = one.probed.options.backward === "split";
  for (const kind of isSplit ? ["F", "B", "F", "I", "W"] as const : ["F", "B"] as const) {
    for (let m = 0; m < IN_FLIGHT; m++) await timed(one, kind, m, fromMs, untilMs);
  }
}

/**
 * Runs an action; it counts if it began in time. Those that end in time as well would be too short on
 * average: a long one is more likely to be under way at the end.
 */
async function timed(
  { now, stage, times, input, gradient, runs, probed }: OpenStage,
  kind: ProbedKind,
  microBatch: number,
  fromMs: number,
  untilMs: number,
): Promise<void> {
  runs.splice(0);
  const start = now();
  if (kind === "F") await stage.forward(microBatch, input, probed.fields);
  else await stage.backward(microBatch, kind, stage.isLast ? undefined : gradient, LOSS_SCALE);
  const end = now();
  if (start < fromMs || start >= untilMs) return;
  times.actions[kind].push(end - start);
  for (const { program, isMain, ms } of runs) {
    const sum = times.programs[program]![kind];
    sum.ms += ms;
    if (isMain) sum.runs++;
  }
}

/** What a worker does at the end of a step. */
async function close({ now, stage }: OpenStage, steps: number): Promise<ProbeClosing> {
  const sums = { voteMs: 0, normMs: 0, optimizerMs: 0, endMs: 0 };
  const add = async (name: keyof ProbeClosing, work: () => unknown) => {
    const start = now();
    await work();
    sums[name] += now() - start;
  };
  for (let step = 1; step <= steps; step++) {
    await add("voteMs", () => stage.checkGradients(1));
    await add("normMs", () => stage.gradientSquares());
    await add("optimizerMs", () => stage.optimize(step, RATE));
    await add("endMs", () => stage.zeroGradients());
  }
  return sums;
}
