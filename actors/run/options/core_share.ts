/**
 * How workers share the cores of this machine: threads within an operation, for each of them.
 *
 * @module
 */

import { assertThreads, type DeviceName, hasThreads } from "../../../kernels/mod.ts";
import { launchedRanks } from "../mpi_run.ts";
import type { RuntimeName, TrainOptions } from "./train_options.ts";

/** Cores, and who computes on them. */
export interface CoreShare {
  /** Threads of each worker within an operation. */
  readonly threads: number;
  /** Workers that compute on these cores at a time. */
  readonly workersHere: number;
  /** Cores of this machine that this process may use. */
  readonly cores: number;
}

/**
 * Shares the cores: `auto` gives each worker as many threads as there are cores for it, at least one.
 *
 * @param workers how many compute, of all data-parallel replicas.
 * @throws {RangeError} when the device cannot have as many threads as were asked for.
 */
export function shareCores(
  { threads = 1, mpi }: Pick<TrainOptions, "threads" | "mpi">,
  runtime: RuntimeName,
  workers: number,
  device: DeviceName,
): CoreShare {
  const cores = navigator.hardwareConcurrency, here = workersHere(runtime, workers, mpi);
  if (threads !== "auto") assertThreads("Cannot train on", device, threads);
  const share = hasThreads(device) ? Math.max(1, Math.floor(cores / here)) : 1;
  return { threads: threads === "auto" ? share : threads, workersHere: here, cores };
}

/**
 * Of ranks those count that share the cores of rank 0, as its launcher says: all ranks of a run have as many
 * threads, since bits depend on it. With a map each may hold as many workers as the fullest does.
 */
function workersHere(runtime: RuntimeName, workers: number, mpi: TrainOptions["mpi"]): number {
  if (runtime === "serial") return 1;
  if (runtime !== "mpi") return workers;
  const { sharing = workers } = launchedRanks() ?? {}, map = mpi?.map;
  const held = new Map<number, number>();
  for (const rank of map ?? []) held.set(rank, (held.get(rank) ?? 0) + 1);
  return Math.min(workers, sharing * Math.max(1, ...held.values()));
}
