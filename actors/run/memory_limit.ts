/**
 * Memory limits: a run that would exceed a limit is refused before it starts. The error names the
 * cheapest change that would fit.
 *
 * @module
 */

import type { RuntimeName, WorkerMemory } from "../options/train_events.ts";
import {
  assertMachineHolds,
  bestRecomputeInterval,
  countBlocks,
  DEVICES,
  DTYPE_BYTES,
  elementCount,
  mebibytes,
  refusal,
  totalBytes,
} from "../../kernels/internal.ts";
import { type DeviceChoice, deviceLimits, type DeviceName } from "../../kernels/mod.ts";
import { type Schedule, scheduleDefinitions } from "../../schedules/mod.ts";
import { ISOLATE_BYTES } from "../options/limits.ts";
import { type CompileOptions, compileRun, planRun } from "./compile.ts";
import type { RunDevices } from "./devices.ts";
import { type CompiledRun, limitedBytes } from "./memory.ts";

/** A change of a run, and how a user asks for it. */
interface Change {
  readonly flags: string;
  readonly options: Partial<CompileOptions>;
  /** The schedule, if it differs; for planning only. */
  readonly schedule?: Schedule;
}

/** A run, where its actors are. */
interface LargeRun {
  readonly options: CompileOptions;
  readonly schedule: Schedule;
  readonly compiled: CompiledRun;
  readonly devices: RunDevices;
  readonly runtime: RuntimeName;
  /** Data-parallel replicas. */
  readonly replicas: number;
}

const RECOMPUTE_CHEAP: Change = { flags: "--recompute cheap", options: { recompute: "cheap" } };
const FP16: Change = { flags: "--precision fp16", options: { precision: "fp16" } };

const joined = (changes: readonly Change[]): Change => ({
  flags: changes.map(({ flags }) => flags).join(" "),
  options: Object.assign({}, ...changes.map(({ options }) => options)),
});

const precisions = (devices: RunDevices): Change[] =>
  devices.every((one) => deviceLimits(one).hasF16) ? [FP16] : [];

/** Changes that keep the micro-batch, from the cheapest in time to the most expensive. */
function changesOfMemory({ compiled, schedule, devices }: LargeRun): Change[] {
  const blocks = countBlocks(compiled.model.layers);
  const recomputeInterval = bestRecomputeInterval(blocks, schedule.workers);
  const offload: Change[] = DEVICES[devices[0].name].hasOwnMemory
    ? [{ flags: "--offload", options: { offload: true } }]
    : [];
  // A schedule with R decides its own recomputation.
  const segments: Change[] = compiled.recomputed.size > 0 ? [] : [{
    flags: `--recompute-interval ${recomputeInterval}`,
    options: { recomputeInterval },
  }];
  const [full, idle] = fewerInFlight(schedule);
  const single = [RECOMPUTE_CHEAP, ...offload, ...precisions(devices), ...segments];
  const pairs = single.flatMap((first, i) =>
    single.slice(i + 1).map((one) => joined([first, one]))
  );
  return [...full, ...single, ...pairs, joined(single), ...idle];
}

/**
 * Returns changes to fewer micro-batches in flight, for message-driven schedules: first the limits that
 * keep all workers busy, then the others.
 */
function fewerInFlight(schedule: Schedule): readonly [Change[], Change[]] {
  const { name, peaks, injectionLimit, workers } = schedule;
  const { reads = [] } = scheduleDefinitions.find((one) => one.name === name) ?? {};
  if (!peaks || !reads.includes("pipelineLimit")) return [[], []];
  const limits = Array.from({ length: injectionLimit - 1 }, (_, i) => injectionLimit - 1 - i);
  const changeTo = (limit: number): Change => ({
    flags: `--pipeline-limit ${limit}`,
    options: {},
    schedule: {
      ...schedule,
      injectionLimit: limit,
      peaks: peaks.map(({ least, most, ...one }) => ({
        ...one,
        least: Math.min(least, limit),
        most: Math.min(most, limit),
      })),
    },
  });
  return [
    limits.filter((limit) => limit >= workers).map(changeTo),
    limits.filter((limit) => limit < workers).map(changeTo),
  ];
}

/** Changes that make the largest tensor smaller: a half of the micro-batch, a quarter, ... */
function changesOfTensors({ options: { model }, compiled, devices }: LargeRun): Change[] {
  const { samples = 1, withSamples } = model, smaller: Change[] = [];
  for (let left = samples >> 1; withSamples && left >= compiled.halves; left >>= 1) {
    smaller.push({ flags: `--micro-batch-size ${left}`, options: { model: withSamples(left) } });
  }
  const single = [...smaller, ...precisions(devices)];
  return single.length > 1
    ? [...single, joined([smaller.at(-1)!, ...precisions(devices)])]
    : single;
}

/** A limit of the bytes of a run. */
interface Limit {
  readonly limit: number;
  readonly cannot: string;
  readonly must: string;
  /** Returns the bytes that count towards the limit. */
  readonly measure: (compiled: CompiledRun) => number;
  /** Says where the bytes are. */
  readonly received: (bytes: string) => string;
  /** The advice if no change is sufficient. */
  readonly otherwise: string;
}

/**
 * Refuses a run beyond a limit, with the first change that brings it within; if there is none, the
 * change that comes closest.
 */
function assertFits(run: LargeRun, limits: Limit, changes: (run: LargeRun) => Change[]): void {
  const { options, schedule, compiled, devices: [{ name }] } = run;
  const { limit, cannot, must, measure, received, otherwise } = limits, bytes = measure(compiled);
  if (bytes <= limit) return;
  let least = bytes, advice = otherwise;
  for (const { flags, options: changed, schedule: other } of changes(run)) {
    const planned = other
      ? planRun(compiled, other, name)
      : compileRun({ ...options, ...changed }, schedule, name);
    const needed = measure(planned);
    const isEnough = needed <= limit, what = `${flags} would need ${mebibytes(needed)}`;
    if (needed < least) advice = isEnough ? what : `even ${what}: ${otherwise}`;
    if (isEnough) break;
    least = Math.min(least, needed);
  }
  throw refusal(cannot, must, `${received(mebibytes(bytes))}; ${advice}`);
}

/**
 * Refuses a run that its devices cannot hold.
 *
 * @throws {RangeError} with the excess, its place, and options that would fit.
 */
export function assertDevicesHold(run: LargeRun): void {
  assertTensors(run);
  // A serial run holds each stage once, independent of the workers of its schedule.
  if (run.runtime !== "serial") {
    const { devices, replicas, schedule } = run;
    const all = Array.from({ length: replicas * schedule.workers }, (_, worker) => worker);
    const byDevice = Map.groupBy(all, (worker) => devices[worker % devices.length]!);
    for (const [device, workers] of byDevice) assertAdapter(run, device, workers);
  }
  assertMachine(run);
}

/** Returns the largest tensor of a model: of a kernel, or of a trained parameter in F32. */
function largestTensor({ model }: CompiledRun, name: DeviceName) {
  const { programs, layers } = model;
  const values = programs.map(({ models, overwrites = [] }) =>
    [...Object.values(models), ...overwrites.map(({ model }) => model)].flatMap((one) =>
      DEVICES[name].largestValue?.(one) ?? []
    )
  );
  const tensors = layers.flatMap(
    ({ name: layer, prefix, program, slices = [program] }) => {
      const trained = programs[program]!.parameters.filter(({ frozen }) => !frozen);
      const weights = trained.map(({ name, shape }) => {
        const byteLength = elementCount(shape) * DTYPE_BYTES.f32;
        return { name: `the parameter ${prefix}${name} [${shape}]`, byteLength };
      });
      return [
        ...weights,
        ...slices.flatMap((one) => values[one]!).map(({ name, shape, byteLength }) => ({
          name: `the value ${name} [${shape}] of layer ${layer}`,
          byteLength,
        })),
      ];
    },
  );
  return tensors.reduce((most, one) => one.byteLength > most.byteLength ? one : most);
}

function assertTensors(run: LargeRun): void {
  const { devices, compiled } = run, { name } = devices[0];
  const { where, tensorBytes } = devices.map(deviceLimits)
    .reduce((least, one) => one.tensorBytes < least.tensorBytes ? one : least);
  if (tensorBytes === Infinity) return;
  const room = mebibytes(tensorBytes, Math.floor);
  assertFits(run, {
    limit: tensorBytes,
    cannot: `train on ${where}`,
    must: `each tensor must fit into its largest buffer, ${room}`,
    measure: (compiled) => largestTensor(compiled, name).byteLength,
    received: (bytes) => `${bytes} for ${largestTensor(compiled, name).name}`,
    otherwise: "take a smaller model",
  }, changesOfTensors);
}

function assertAdapter(run: LargeRun, device: DeviceChoice, workers: readonly number[]): void {
  const { where, memoryBytes: limit } = deviceLimits(device), { schedule } = run;
  const who = workers.length === 1 ? `worker ${workers[0]}` : `workers ${workers.join(", ")}`;
  assertFits(run, {
    limit,
    cannot: `train on ${where}`,
    must: `what its workers hold must fit into its memory, ${mebibytes(limit, Math.floor)}`,
    measure: ({ memory }) =>
      workers.reduce((sum, one) => sum + totalBytes(memory[one % schedule.workers]!.device), 0),
    received: (bytes) => `${bytes} for ${who}`,
    otherwise: "take more adapters, a smaller micro-batch or a smaller model",
  }, changesOfMemory);
}

/** Refuses a run larger than this machine's memory, except GPU memory. */
function assertMachine({ devices, replicas, runtime, schedule, compiled }: LargeRun): void {
  let bytes = 0;
  for (let worker = 0; worker < replicas * schedule.workers; worker++) {
    const { device, host } = compiled.memory[worker % schedule.workers]!;
    const { isHostMemory } = deviceLimits(devices[worker % devices.length]!);
    bytes += totalBytes(host) + (isHostMemory ? totalBytes(device) : 0);
    if (runtime === "workers") bytes += ISOLATE_BYTES;
  }
  assertMachineHolds("Cannot train", bytes);
}

/** The worker that needs most. */
function largest(memory: readonly WorkerMemory[], name: DeviceName): [WorkerMemory, number] {
  const sized = memory.map((one): [WorkerMemory, number] => [one, limitedBytes(one, name)]);
  return sized.reduce((most, one) => one[1] > most[1] ? one : most);
}

/**
 * Refuses a run that needs more than `memoryLimitBytes` on a worker.
 *
 * @throws {RangeError} saying which worker needs how much, and what would fit.
 */
export function assertMemory(limit: number | undefined, run: LargeRun): void {
  if (limit === undefined) return;
  const { name } = run.devices[0], [{ worker, isBound }] = largest(run.compiled.memory, name);
  assertFits(run, {
    limit,
    cannot: "train within the memory limit",
    must: `each worker must need at most ${mebibytes(limit)}`,
    measure: ({ memory }) => largest(memory, name)[1],
    received: (bytes) => `${isBound ? "up to " : ""}${bytes} on worker ${worker}`,
    otherwise: "take more workers or a smaller micro-batch",
  }, changesOfMemory);
}
