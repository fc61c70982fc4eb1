/**
 * Measures the latency (α) and bandwidth (1/β) of transports, and steps of small runs.
 *
 * @module
 */

import { type Batch, compileModel, mlp, type Model, type ModelProgram } from "../../kernels/mod.ts";
import {
  assertInput,
  elementCount,
  fieldBounds,
  initialValues,
  type StageState,
  substream,
  withAliases,
} from "../../kernels/internal.ts";
import { createSchedule, simulateStep } from "../../schedules/mod.ts";
import type { RunOptions } from "../options/train_options.ts";
import type { StepOutcome } from "../pipeline/step.ts";
import { openPipeline } from "../run/pipeline.ts";
import { prepareRun } from "../run/prepare.ts";
import { readStep } from "../run/timeline.ts";
import type { ActorRef, PlaceName, System } from "../runtime/mod.ts";
import { PINGER, type PingerMessage } from "./pinger.ts";
import { type LinearCost, type LinkCost, median } from "./profile.ts";

/** Bytes of small messages, and of large ones such as activations. */
const SMALL_BYTES = 4, LARGE_BYTES = 2 ** 22;

/** Round trips in each round. */
const TRIPS = 25;

const TIMEOUT_MS = 60_000;

/** Additional milliseconds of a large message below which its buffer is transferred, not copied. */
const COPIED_MS_MIN = 0.05;

/** Milliseconds of round trips with small and large messages. */
export interface Trips {
  readonly small: readonly number[];
  readonly large: readonly number[];
}

/** Opens a link between two actors in a place; the result measures round trips. */
export function openLink(system: System, isolate: PlaceName): () => Promise<Trips> {
  const [one, to] = [0, 1].map((n) =>
    system.spawn(PINGER, undefined, { id: `pinger ${n} ${isolate}`, isolate })
  ) as [ActorRef<PingerMessage>, ActorRef<PingerMessage>];
  const play = (bytes: number) =>
    system.ask<PingerMessage, number[]>(one, { type: "Play", to, bytes, trips: TRIPS }, {
      timeoutMs: TIMEOUT_MS,
    });
  return async () => ({ small: await play(SMALL_BYTES), large: await play(LARGE_BYTES) });
}

/** Returns the cost of a link from its round trips. */
export function linkOf(rounds: readonly Trips[]): LinkCost {
  const middle = (name: keyof Trips) => median(rounds.flatMap((trips) => trips[name])) / 2;
  const latencyMs = middle("small"), moreMs = middle("large") - latencyMs;
  if (moreMs < COPIED_MS_MIN) return { latencyMs };
  return { latencyMs, bytesPerMs: (LARGE_BYTES - SMALL_BYTES) / moreMs };
}

const SEED = 1;

/** Draws weights of a model, by full name, including aliases. */
export function drawWeights({ parameters, ties }: ModelProgram): StageState["weights"] {
  const weights = new Map(
    parameters.map(({ name, spec }) => [name, initialValues(spec, name, SEED)] as const),
  );
  return withAliases({ weights, moments: new Map() }, ties).weights;
}

/** Draws a micro-batch for a model; integers are valid rows or classes. */
export function drawBatch({ programs }: ModelProgram): Batch {
  const fields: Record<string, Batch[string]> = {};
  for (const program of programs) {
    const bounds = fieldBounds(program);
    for (const { name, dtype, shape } of program.fields) {
      const generator = substream(SEED, name), length = elementCount(shape);
      const [, most] = bounds.get(name) ?? [0, 0];
      const draw = () => generator.next() >>> 0, isFloat = dtype === "f32";
      const must = `its field "${name}" must have the type f32 or i32`;
      assertInput(isFloat || dtype === "i32", "measure the model", must, dtype, TypeError);
      fields[name] = isFloat
        ? Float32Array.from({ length }, () => draw() / 2 ** 32)
        : Int32Array.from({ length }, () => draw() % (most + 1));
    }
  }
  return fields;
}

/** A run that takes steps on request. */
export type MeasuredRun = Awaited<ReturnType<typeof openMeasuredRun>>;

/** Options of a run on drawn data. */
export type MeasuredOptions = Omit<RunOptions, "data" | "steps"> & { readonly model: Model };

/** Learning rate, low enough not to diverge. */
const RATE = 1e-5;

/** Opens a run on drawn micro-batches. */
export async function openMeasuredRun(options: MeasuredOptions) {
  const prepared = await prepareRun({ ...options, data: [], steps: 1 });
  const engine = await openPipeline(prepared, prepared.isolation);
  // In a run with halves or slices, the prepared model takes a part of a micro-batch.
  const { halves, model } = prepared, isWhole = halves === 1 && !model.slicing;
  const fields = drawBatch(isWhole ? model : compileModel(options.model, "none"));
  let taken = 0;
  return {
    /**
     * Takes the next step.
     *
     * @param microBatches of the step. Default: those of the run.
     * @returns milliseconds from the request to the answer, and the traces of the workers.
     */
    async step(microBatches = prepared.microBatches) {
      const all = Array.from({ length: microBatches }, () => fields), step = ++taken;
      const predictions = all.reduce((sum, one) => sum + prepared.predictionsOf(one), 0);
      const request = { step, update: step, microBatches: all, predictions, lossScale: 1 };
      const start = performance.now();
      const { isCommitted, traces } = await engine.step({ ...request, learningRate: RATE });
      const ms = performance.now() - start;
      if (!isCommitted) throw new Error(`Cannot measure step ${step}: its losses must be finite`);
      return { ms, traces };
    },
    [Symbol.asyncDispose]: () => engine.close(),
  };
}

/** Micro-batches of a short and of a long step; their difference is due to actions. */
const FEW = 4, MANY = 68;

/** Place and device of a run. */
export type PlaceOptions = Pick<MeasuredOptions, "device" | "runtime" | "isolation">;

/** Options of a traced run with one worker. */
const TRACED = { workers: 1, schedule: "1f1b", trace: true } as const;

/** Opens a run with negligible kernels. */
export const openTinyRun = (options: PlaceOptions): Promise<MeasuredRun> => {
  const model = mlp({ inputs: 4, hidden: 4, layers: 1, classes: 2 }, 1);
  return openMeasuredRun({ ...options, ...TRACED, model, microBatches: MANY });
};

/** Milliseconds of a short and of a long step of a tiny run, without their actions. */
export type TinySteps = Awaited<ReturnType<typeof takeTinySteps>>;

/** Takes a short and a long step. */
export async function takeTinySteps(run: MeasuredRun) {
  const few = await run.step(FEW), many = await run.step(MANY);
  return { fewMs: besideActions(few), manyMs: besideActions(many) };
}

/** Returns the milliseconds of a step in which its only worker ran no action. */
export function besideActions(
  { ms, traces }: Awaited<ReturnType<MeasuredRun["step"]>>,
): number {
  return ms - readStep(traces).workers[0]!.busyMs;
}

/**
 * Returns the milliseconds that each action and each step takes apart from kernels and messages of
 * the given latency.
 */
export function overheadsOf(steps: readonly TinySteps[], latencyMs: number) {
  const fewMs = median(steps.map((one) => one.fewMs));
  const manyMs = median(steps.map((one) => one.manyMs));
  const dispatchMs = Math.max(0, manyMs - fewMs) / (2 * (MANY - FEW));
  const schedule = createSchedule("1f1b", { workers: 1, microBatches: FEW });
  const { makespanMs } = simulateStep({
    schedule,
    stages: [{ forwardMs: 0, backwardMs: 0 }],
    dispatchMs,
    controlMs: latencyMs,
    closing: {},
  });
  return { dispatchMs, stepMs: Math.max(0, fewMs - makespanMs) };
}

/** Opens a run with two copies of a model, whose gradients are summed. */
export const openCopiesRun = (options: PlaceOptions, model: Model): Promise<MeasuredRun> =>
  openMeasuredRun({ ...options, ...TRACED, model, replicas: 2, microBatches: 1 });

/** Returns the cost of a sum from the milliseconds of all-reduces of two copies of a model. */
export function sumCost({ parameters }: ModelProgram, times: readonly number[]): LinearCost {
  const count = parameters.filter(({ isFrozen }) => !isFrozen)
    .reduce((sum, { shape }) => sum + elementCount(shape), 0);
  // Each of the two copies adds one half.
  return { ms: 0, msPerMillion: 2 * median(times) / (count / 1e6) };
}

/** Returns the milliseconds of the all-reduce on the last worker; the first also takes the norms. */
export function reduceMs(traces: StepOutcome["traces"]): number {
  return readStep(traces, traces.length).workers.at(-1)!.reduceMs;
}
