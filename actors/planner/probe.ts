/**
 * Probes: actors that compute a stage repeatedly and measure each part of it. Several probes load a
 * machine like the workers of a run.
 *
 * @module
 */

import {
  ADAMW_DEFAULTS,
  type Batch,
  type Device,
  type DeviceChoice,
  type Kernel,
  openDevice,
  type StageOptions,
  type StageProgram,
  type StageValues,
  type TensorSpec,
} from "../../kernels/mod.ts";
import {
  elementCount,
  HOST_ARRAYS,
  openStage,
  stageBorder,
  type StageState,
} from "../../kernels/internal.ts";
import type { ActorFactory, ActorSpec } from "../runtime/mod.ts";
import type { LoadCost } from "./profile.ts";

/** Device and stages of a probe. */
interface ProbeInit {
  readonly device: DeviceChoice;
  readonly stages: readonly ProbedStage[];
}

/** A stage of a probe. */
export interface ProbedStage {
  readonly program: StageProgram;
  readonly weights: StageState["weights"];
  /** A micro-batch. */
  readonly fields: Batch;
}

/** Messages of a probe. Times are those of the clock of its isolate. */
export type ProbeMessage =
  /** Computes until `untilMs`; the reply is {@linkcode ProbeTimes} of actions that start in between. */
  | {
    readonly type: "Compute";
    /** Index of the stage. */
    readonly stage: number;
    readonly fromMs: number;
    readonly untilMs: number;
  }
  /** Ends a step of a stage; the reply is {@linkcode ProbeClosing}. */
  | { readonly type: "Close"; readonly stage: number };

/** An action of a probe. */
export type ProbedKind = "F" | "B" | "I" | "W";

/** Returns an object with a value for each kind of action. */
export const forKinds = <T>(make: (kind: ProbedKind) => T): Record<ProbedKind, T> => ({
  F: make("F"),
  B: make("B"),
  I: make("I"),
  W: make("W"),
});

/** Number of runs and their total duration. */
export interface TimedSum {
  runs: number;
  ms: number;
}

/** Measurements of a probe. */
export type ProbeTimes = ReturnType<typeof emptyTimes>;

/** Milliseconds of the end of a step. */
export type ProbeClosing = Readonly<Record<Exclude<keyof LoadCost, "atOnce">, number>>;

/** Spec of a probe. */
export const PROBE: ActorSpec<ProbeInit, ProbeMessage> = {
  module: import.meta.url,
  export: "probe",
};

/** Options of all stages. */
const OPTIONS: StageOptions = { optimizer: ADAMW_DEFAULTS, backward: "split" };

/** Actions in turn: micro-batches run forward and backward, then with split backwards. */
const CYCLE: readonly ProbedKind[] = ["F", "B", "F", "I", "W"];

/** Micro-batches in flight, so that a backward does not find the data of its forward in a cache. */
const IN_FLIGHT = 2;

/** Learning rate, low enough not to diverge, and factor of the loss. */
const RATE = 1e-5, LOSS_SCALE = 1e-3;

/** An open stage of a probe. */
type OpenStage = Awaited<ReturnType<typeof openProbed>>;

/** A run of a model. */
interface ModelRun {
  readonly program: number;
  /** True if it is the model of the action, rather than a preparation. */
  readonly isMain: boolean;
  readonly ms: number;
}

/** Creates a probe. */
export const probe: ActorFactory<ProbeInit, ProbeMessage> = async (
  ctx,
  { device: choice, stages },
) => {
  const device = await openDevice(choice.name, { ...choice, isBlocking: true });
  ctx.defer(() => device.close());
  const now = () => ctx.now(), open: OpenStage[] = [];
  for (const probed of stages) open.push(await openProbed(device, probed, now));
  return {
    async Compute({ stage, fromMs, untilMs }) {
      const one = open[stage]!;
      one.times = emptyTimes(one.probed.program);
      while (now() < untilMs) {
        for (const kind of CYCLE) {
          for (let m = 0; m < IN_FLIGHT; m++) await timed(one, kind, m, fromMs, untilMs);
        }
      }
      ctx.reply(one.times);
    },
    async Close({ stage }) {
      ctx.reply(await close(open[stage]!));
    },
  };
};

async function openProbed(device: Device, probed: ProbedStage, now: () => number) {
  const { program, weights, fields } = probed;
  /** Runs of the models of the current action. */
  const runs: ModelRun[] = [];
  const models = new Map<Uint8Array, Pick<ModelRun, "program" | "isMain">>();
  for (const [index, { models: own, overwrites = [] }] of program.programs.entries()) {
    for (const model of Object.values(own)) models.set(model, { program: index, isMain: true });
    for (const { model } of overwrites) models.set(model, { program: index, isMain: false });
  }
  const onRun = (model: Uint8Array, ms: number) => {
    const known = models.get(model); // models of the optimizer do not count
    if (known) runs.push({ ...known, ms });
  };
  const stage = await openStage(timedDevice(device, now, onRun), program, OPTIONS);
  stage.load({ weights, moments: new Map() });
  const { inputs, arriving } = stageBorder(program);
  const input = inputs.length > 0 ? numbersOf(inputs, (i) => (i % 17 - 8) / 16) : undefined;
  await stage.forward(0, input, fields);
  stage.drop(0);
  const gradient = numbersOf(arriving, () => 1e-3); // in the shape of the output of the stage
  return { now, probed, stage, input, gradient, runs, times: emptyTimes(program) };
}

/** Returns small numbers in place of values from other stages; ids and masks are zero. */
function numbersOf(specs: readonly TensorSpec[], numberAt: (index: number) => number): StageValues {
  return Object.fromEntries(specs.map(({ name, dtype, shape }) => {
    const array = new HOST_ARRAYS[dtype](elementCount(shape));
    if (array instanceof Float32Array || array instanceof Float16Array) {
      for (const i of array.keys()) array[i] = numberAt(i);
    }
    return [name, array];
  }));
}

const emptyTimes = ({ programs }: StageProgram) => ({
  /** Durations for each program of the stage. */
  programs: programs.map(() => forKinds((): TimedSum => ({ runs: 0, ms: 0 }))),
  /** Milliseconds of each action. */
  actions: forKinds((): number[] => []),
});

/**
 * Runs an action, which counts if it starts within the window. Counting only actions that also end
 * within it would prefer short ones.
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

/** Runs the end of a step as a worker does. */
async function close({ now, stage }: OpenStage): Promise<ProbeClosing> {
  const msOf = async (work: () => unknown) => {
    const start = now();
    await work();
    return now() - start;
  };
  return {
    vote: await msOf(() => stage.checkGradients(1)),
    norm: await msOf(() => stage.gradientSquares()),
    optimizer: await msOf(() => stage.optimize(1, RATE)),
    end: await msOf(() => stage.zeroGradients()),
  };
}

/**
 * Wraps a device to measure runs.
 *
 * @param now the clock in milliseconds.
 * @param onRun receives the model given to `compile`, and the milliseconds of a run.
 */
function timedDevice(
  device: Device,
  now: () => number,
  onRun: (model: Uint8Array, ms: number) => void,
): Device {
  const compile = async (model: Uint8Array): Promise<Kernel> => {
    const kernel = await device.compile(model);
    return {
      ...kernel,
      bind(inputs, outputs) {
        const run = kernel.bind(inputs, outputs);
        return async () => {
          const start = now();
          await run();
          onRun(model, now() - start);
        };
      },
    };
  };
  return new Proxy(device, {
    get(target, key) {
      if (key === "compile") return compile;
      const value = target[key as keyof Device] as unknown;
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}
