/**
 * The devices of a run: all workers use the same kind of device; if it has adapters, in turn.
 *
 * @module
 */

import type { CoreShare, RuntimeName } from "../options/train_events.ts";
import {
  assertInput,
  assertThreads,
  DEVICES,
  refusal,
  resolveDevices,
} from "../../kernels/internal.ts";
import type { DeviceChoice, DeviceName, Precision } from "../../kernels/mod.ts";
import type { RunOptions } from "../options/train_options.ts";
import type { PlaceName } from "../runtime/mod.ts";
import { launchedRanks } from "../transports/mpi/library.ts";

/**
 * Divides the cores: with `auto` each worker gets an equal number of threads, at least one.
 *
 * @param workers Number of workers of all data-parallel replicas.
 * @throws {RangeError} when the device does not support that number of threads.
 */
export function shareCores(
  { threads = 1, mpi }: Pick<RunOptions, "threads" | "mpi">,
  runtime: RuntimeName,
  workers: number,
  device: DeviceName,
): CoreShare {
  const cores = navigator.hardwareConcurrency, here = workersHere(runtime, workers, mpi);
  if (threads !== "auto") assertThreads("Cannot train on", device, threads);
  const share = DEVICES[device].hasThreads ? Math.max(1, Math.floor(cores / here)) : 1;
  return { threads: threads === "auto" ? share : threads, workersHere: here, cores };
}

/**
 * Counts the workers on the cores of rank 0, by its launcher. All ranks of a run have the same number
 * of threads, because bits depend on it. With a map, each rank counts as the fullest.
 */
function workersHere(runtime: RuntimeName, workers: number, mpi: RunOptions["mpi"]): number {
  if (runtime === "serial") return 1;
  if (runtime !== "mpi") return workers;
  const { sharing = workers } = launchedRanks() ?? {};
  const held = Map.groupBy(mpi?.map ?? [], (rank) => rank).values().map(({ length }) => length);
  return Math.min(workers, sharing * Math.max(1, ...held));
}

/** The devices of a run, which workers use in turn. */
export type RunDevices = readonly [DeviceChoice, ...DeviceChoice[]];

/** The devices of a run, as a checkpoint and a plan record them. */
export interface ComputedOn {
  readonly device: string;
  readonly adapter?: string;
  /** Threads of each worker within an operation. Older checkpoints do not have it. Default 1. */
  readonly threads?: number;
  /** The library of products in BF16, with its version. */
  readonly matrix?: string;
  /** Only in checkpoints. Default fp32. */
  readonly precision?: Precision;
}

/**
 * Finds the devices of a run.
 *
 * @param workers number of workers of all data-parallel replicas.
 * @throws {RangeError} when one process would need several adapters, or the device does not support
 * that number of threads; otherwise as `resolveDevices`.
 */
export async function runDevices(
  options: RunOptions,
  runtime: RuntimeName,
  workers: number,
): Promise<RunDevices> {
  const { device = "auto", adapters, precision, onednn, isolation, mpi, system, announce } =
    options;
  // In a simulated system, such as a replay, all workers share a process.
  const isSimulated = system?.transports.length === 0;
  const isShared = runtime === "mpi"
    ? mpi?.map !== undefined && isDoubled(mpi.map)
    : runtime === "workers" && isolation === "worker";
  const found = await resolveDevices(device, { announce, adapters, precision, onednn, isShared });
  const isFree = runtime !== "workers" && adapters === undefined;
  const { threads } = shareCores(options, runtime, workers, found[0].name);
  const devices = found.slice(0, isFree ? 1 : workers).map((one) =>
    threads === 1 ? one : { ...one, threads }
  ) as readonly DeviceChoice[] as RunDevices;
  const numbers = new Set(devices.map(({ adapter }) => adapter?.index));
  if (numbers.size > 1 && (runtime !== "workers" || isSimulated)) {
    const where = isSimulated ? "in a simulated system" : `with runtime ${runtime}`;
    const instead = isSimulated
      ? ", or --actor must replay one worker of the journal"
      : ", or the runtime must be workers";
    const must = `a process can use one, so adapters must name one${instead}`;
    throw refusal(`train ${where} on several adapters`, must, [...numbers]);
  }
  tellOfOtherBits(options, devices);
  return devices;
}

/** Returns the isolation of each worker that the device needs. */
export function isolationFor(
  runtime: RuntimeName,
  isolation: PlaceName | undefined,
  device: DeviceName,
): PlaceName {
  if (runtime !== "workers" || !DEVICES[device].isAlone) return isolation ?? "worker";
  if (isolation !== "worker") return isolation ?? "process";
  const must = "one isolate of a process can use the GPU, so isolation must be process";
  throw refusal(`train on ${device} in Deno workers`, must, isolation);
}

/**
 * Checks that the workers of each rank can use their device at the same time.
 *
 * @throws {RangeError} when they cannot.
 */
export function assertRanksHold(ranks: readonly number[], device: DeviceName): void {
  const must =
    "one isolate of a process can use the GPU, so the map must give each worker a separate rank";
  const holds = !DEVICES[device].isAlone || !isDoubled(ranks);
  assertInput(holds, `train on ${device} with runtime mpi`, must, ranks);
}

const isDoubled = (ranks: readonly number[]) => new Set(ranks).size < ranks.length;

/** Returns the record of devices; for a checkpoint, with the precision. */
export function computedOn(devices: RunDevices, precision: Precision = "fp32"): ComputedOn {
  const [{ name: device, threads = 1, matrix }] = devices;
  const adapters = new Set(devices.flatMap(({ adapter }) => adapter?.name ?? []));
  return {
    device,
    ...adapters.size > 0 && { adapter: [...adapters].join(", ") },
    ...DEVICES[device].hasThreads && { threads },
    ...matrix && { matrix: `${matrix.name} ${matrix.version}` },
    ...precision !== "fp32" && { precision },
  };
}

/** Announces that a run continues on a device or in a precision with other bits than the checkpoint's. */
function tellOfOtherBits({ resume, announce, precision }: RunOptions, devices: RunDevices): void {
  const before = inWords(resume?.config?.["computedOn"]);
  const now = inWords(computedOn(devices, precision));
  if (before === undefined || before === now) return;
  announce?.(
    `The checkpoint was computed on ${before}: the bits of a run that continues on ${now} differ.`,
  );
}

/** Formats a record of devices, which may come from an untrusted checkpoint. */
function inWords(kept: unknown): string | undefined {
  const known: Partial<Record<keyof ComputedOn, unknown>> = Object(kept);
  const { device, adapter, threads, matrix, precision } = known;
  if (typeof device !== "string") return undefined;
  const shown = (text: string) => JSON.stringify(text.slice(0, 100)).slice(1, -1);
  const on = typeof adapter === "string" ? `${shown(device)} (${shown(adapter)})` : shown(device);
  const shares = [
    ...typeof precision === "string" ? [shown(precision)] : [],
    ...typeof threads === "number" && threads !== 1 ? [`${threads} threads`] : [],
    ...typeof matrix === "string" ? [shown(matrix)] : [],
  ];
  return shares.length > 0 ? `${on} with ${shares.join(" and ")}` : on;
}
