/**
 * A run on the ranks of an MPI job: rank 0 leads it, the others lend it their threads.
 *
 * @module
 */

import { isLaunched, type Job, launchedRanks, openJob } from "../runtime/transports/mpi/job.ts";
import { mpiTransport } from "../runtime/transports/mpi/mpi_transport.ts";
import type { Transport } from "../runtime/mod.ts";

/** How a run uses MPI. */
export interface MpiRunOptions {
  /** MPI's library; by default that of the launcher, by the name that Linux systems give it. */
  readonly library?: string | undefined;
  /** The rank of each worker. Default: a rank for each, in order. */
  readonly map?: readonly number[] | undefined;
  /** Address of the interface on which ranks announce messages to each other. Default 127.0.0.1. */
  readonly hostname?: string | undefined;
}

/** Whether this process is a rank that does not lead. */
export const isFollower = (): boolean => (launchedRanks()?.rank ?? 0) > 0;

/**
 * The rank of each worker.
 *
 * @param workers those of all data-parallel replicas.
 * @throws {RangeError} when they do not fit the ranks of the job.
 */
export function rankMap({ map }: MpiRunOptions, workers: number): readonly number[] {
  const size = launchedRanks()?.size ?? 1;
  if (!isLaunched()) {
    throw new RangeError(
      `Cannot train with runtime mpi: it must be started by a launcher of MPI, such as mpirun -n ${workers}, received none`,
    );
  }
  if (map === undefined && size !== workers) {
    throw new RangeError(
      `Cannot train with runtime mpi: there must be a rank for each of the ${workers} workers, or a map of them, received ${size} ranks`,
    );
  }
  const ranks = map ?? Array.from({ length: workers }, (_, worker) => worker);
  if (ranks.length !== workers || ranks.some((rank) => rank >= size)) {
    throw new RangeError(
      `Cannot train with runtime mpi: the map must give a rank below ${size} to each of the ${workers} workers, received ${ranks}`,
    );
  }
  return ranks;
}

/** What rank 0 trains with. */
export interface MpiRun {
  readonly transport: Transport;
  /** Ends the job on all ranks. */
  close(): Promise<void>;
}

/** Opens the job and makes the transport to its ranks. */
export async function openMpiRun(
  options: MpiRunOptions,
  ranks: readonly number[],
): Promise<MpiRun> {
  const job = await openJob(options);
  return {
    transport: mpiTransport(job, (nth) => ranks[nth % ranks.length]!),
    close: () => job.root.close(),
  };
}

/** Lends this rank to the run that rank 0 leads, until that is over. */
export async function follow(options: MpiRunOptions): Promise<void> {
  const job: Job = await openJob(options);
  await job.serve();
}
