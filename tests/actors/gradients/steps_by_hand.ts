/**
 * Optimizer steps without actors: every worker's copies of stages on a device for each, one
 * micro-batch after the other, and commit messages delivered one by one. For tests that
 * choose the devices and count their copies.
 *
 * @module
 */

import { copiesOf } from "../../../actors/pipeline/layout.ts";
import { GradientSync } from "../../../actors/gradients/sync.ts";
import { type CompileOptions, compileRun } from "../../../actors/run/compile.ts";
import { stateOf, tieEnds, trainedTies } from "../../../actors/run/engine.ts";
import { openCopies, type OpenCopy } from "../../../actors/pipeline/stage_copies.ts";
import type { Batch, CopiedBytes, Device } from "../../../kernels/mod.ts";
import type { StageValues } from "../../../kernels/devices/device.ts";
import { withAliases } from "../../../kernels/stage/state.ts";
import type { Schedule } from "../../../schedules/mod.ts";
import { drawWeights } from "../../kernels/stage/stage_runs.ts";

/** Options of `stepByHand()`. */
export interface Steps {
  readonly options: CompileOptions;
  readonly schedule: Schedule;
  readonly coarsening?: number;
  readonly algorithm?: "direct" | "fast";
  /** The micro-batches of a step, all data-parallel replicas together. */
  readonly microBatches: readonly Batch[];
  readonly steps: number;
  /** Opens the device of a worker. */
  openDevice(): Promise<Device>;
}

/** Result of `stepByHand()`. */
export interface Stepped {
  /** Weights of the first copy of each stage, and losses of the last step. */
  readonly results: ReadonlyMap<string, Float32Array>;
  /** Sums of squares of the last step, in order of their names. */
  readonly squares: readonly (readonly [string, number])[];
  /** The copies of each worker, and the bytes that its device copied in the last step. */
  readonly workers: readonly { readonly all: readonly OpenCopy[]; readonly copied: CopiedBytes }[];
}

type Workers = Awaited<ReturnType<typeof openWorkers>>;

/** Trains for some steps. */
export async function stepByHand(wanted: Steps): Promise<Stepped> {
  const workers = await openWorkers(wanted), results = new Map<string, Float32Array>();
  let squares: [string, number][] = [], before: CopiedBytes[] = [];
  for (let step = 1; step <= wanted.steps; step++) {
    before = workers.all.map(({ device }) => device.copied);
    for (const { copies } of workers.all) {
      for (const { kernels } of copies.all) kernels.zeroGradients();
    }
    const losses = await computeGradients(workers, wanted);
    losses.forEach((values, m) => results.set(`loss ${m}`, values));
    squares = (await commit(workers, wanted, step)).sort(([a], [b]) => a < b ? -1 : 1);
  }
  const copied = workers.all.map(({ device: { copied } }, i) => ({
    toDevice: copied.toDevice - before[i]!.toDevice,
    toHost: copied.toHost - before[i]!.toHost,
  }));
  for (const { copies } of workers.all) {
    for (const { rank, kernels } of copies.all) {
      const { weights } = await kernels.save();
      for (const [name, values] of weights) results.set(`${name} of copy ${rank}`, values);
    }
  }
  for (const { device } of workers.all) device.close();
  return {
    results,
    squares,
    workers: workers.all.map(({ copies }, i) => ({ all: copies.all, copied: copied[i]! })),
  };
}

async function openWorkers({ options, schedule, openDevice }: Steps) {
  const { replicas = 1 } = options;
  const { model, programs, stage, halves } = compileRun(options, schedule);
  const state = withAliases({ weights: drawWeights(model), moments: new Map() }, model.ties);
  const copies = copiesOf(schedule, replicas).flat();
  const all = await Promise.all(
    Array.from({ length: replicas * schedule.workers }, async (_, worker) => {
      const device = await openDevice();
      const inits = copies.filter((copy) => copy.worker === worker).map((copy) => {
        const program = programs[copy.stage]!;
        return { copy, program, laterFields: [], state: stateOf(program, state) };
      });
      return { device, copies: await openCopies(device, inits, stage, halves) };
    }),
  );
  const ends = tieEnds(programs, trainedTies(model));
  return { all, layout: copiesOf(schedule, replicas), ties: ends, stage };
}

/** Runs forward and backward of all micro-batches; returns the losses. */
async function computeGradients(
  { all, layout, stage: { backward } }: Workers,
  { schedule, microBatches }: Steps,
): Promise<Float32Array[]> {
  const losses: Float32Array[] = [], { pipelineOf } = schedule;
  for (const [g, fields] of microBatches.entries()) {
    const m = g % pipelineOf.length, replica = (g - m) / pipelineOf.length;
    const path = layout.map((copies) => {
      const { worker, stage, pipe } = copies.find((copy) =>
        copy.replica === replica && copy.pipe === pipelineOf[m]
      )!;
      const { copies: held } = all[worker]!;
      return { held, copy: held.of(stage, pipe), stage };
    });
    let x: StageValues | undefined, dy: StageValues | undefined;
    for (const { held, copy } of path) {
      ({ output: x } = await held.forward(copy, { microBatch: m }, { input: x, fields }));
    }
    losses.push(x as Float32Array);
    for (const { held, copy, stage } of path.toReversed()) {
      const action = { kind: backward === "split" ? "I" : "B", stage, microBatch: m } as const;
      dy = await held.backward(copy, action, { gradient: dy, lossScale: 1 / 64 });
    }
    for (const { held, copy, stage } of backward === "split" ? path : []) {
      const action = { kind: "W", stage, microBatch: m } as const;
      await held.backward(copy, action, { lossScale: 1 / 64 });
    }
  }
  return losses;
}

/** Runs the votes, sums, norms and optimizer step, with gradients scaled as in clipping. */
async function commit(
  { all, layout, ties, stage }: Workers,
  { coarsening = 1, algorithm = "direct" }: Steps,
  step: number,
): Promise<[string, number][]> {
  const events: (() => Promise<void>)[] = [], squares: [string, number][] = [];
  const syncs: GradientSync[] = all.map(({ copies }, worker) =>
    new GradientSync(copies.all, {
      ...{ algorithm, coarsening, shared: [], size: layout[0]!.length, ties },
      dtype: stage.precision === "fp16" ? "f16" : "f32",
    }, {
      sendPart(stage, rank, part) {
        const transfer = part.values ? [part.values.buffer] : [];
        const moved = structuredClone(part, { transfer }), to = layout[stage]![rank]!.worker;
        events.push(() => syncs[to]!.receive(stage, rank, moved));
      },
      sendTie(stage, rank, name, values, from) {
        const moved = structuredClone(values, { transfer: [values.buffer] });
        const to = layout[stage]![rank]!.worker;
        events.push(() => syncs[to]!.receiveTie(stage, rank, { name, values: moved, from }));
      },
      sendMirror() {},
      wake: () => void events.push(async () => void await syncs[worker]!.stepBucket()),
      reduced: (found) => void squares.push(...found),
    })
  );
  const deliver = async () => {
    for (let event = events.shift(); event; event = events.shift()) await event();
  };
  for (const { copies } of all) {
    for (const { kernels } of copies.all) await kernels.checkGradients(layout[0]!.length);
  }
  for (const sync of syncs) await sync.reduce([...layout.keys()]);
  await deliver();
  for (const sync of syncs) sync.commit(step, 0.01, 0.5);
  await deliver();
  if (syncs.every((sync) => sync.isStepped)) return squares;
  throw new Error(`Cannot end step ${step}: every bucket must have been stepped`);
}

/** Returns the bytes that all copies of each stage copied in the last step, to the device and to the host. */
export function copiedByStages(workers: Stepped["workers"]): [toDevice: number, toHost: number][] {
  const sums: [number, number][] = [];
  for (const { all: [copy], copied: { toDevice, toHost } } of workers) {
    const sum = sums[copy!.stage] ??= [0, 0];
    sum[0] += toDevice;
    sum[1] += toHost;
  }
  return sums;
}
