/**
 * A run on the ranks of an MPI job: rank 0 leads it, the others lend it their threads.
 *
 * @module
 */

import { delay } from "@std/async/delay";
import { type Job, openJob } from "../runtime/transports/mpi/job.ts";
import { JobRefusal } from "../runtime/transports/mpi/job_refusal.ts";
import { type LaunchWatch, watchLaunch } from "../runtime/transports/mpi/launcher/launch_watch.ts";
import { isFirstOfHost, launchedRanks } from "../runtime/transports/mpi/mpi_abi.ts";
import { mpiTransport } from "../runtime/transports/mpi/mpi_transport.ts";
import type { Transport } from "../runtime/mod.ts";
import { type Facts, programFacts } from "./ranks/program_facts.ts";

/** How a run uses MPI. */
export interface MpiRunOptions {
  /** MPI's library; by default that of the launcher, by the name that Linux systems give it. */
  readonly library?: string | undefined;
  /** The rank of each worker. Default: a rank for each, in order. */
  readonly map?: readonly number[] | undefined;
  /**
   * The interface on which ranks announce messages to each other: its name, its address or its
   * network, such as 10.1.0.0/16. By default 127.0.0.1 on one host; on several the one network that
   * they share.
   */
  readonly interface?: string | undefined;
  /**
   * Whether rank 0 reads and writes all files of weights, as it does where a journal is written.
   * Default: each rank those of its stages, in a folder that all hosts share.
   */
  readonly gather?: boolean | undefined;
}

export { launchedRanks };

/** Whether this process is known to be a rank that does not lead. */
export const isFollower = (): boolean => (launchedRanks()?.rank ?? 0) > 0;

/**
 * The rank of each worker.
 *
 * @param workers those of all data-parallel replicas.
 * @throws {RangeError} when they do not fit the ranks of the job.
 */
export function rankMap({ map }: MpiRunOptions, workers: number): readonly number[] {
  const launched = launchedRanks(), size = launched?.size ?? 1;
  if (!launched) {
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

/**
 * The job of this process. MPI opens and closes once in a process, so there is one job for all of it.
 *
 * [Note: first the job] Ranks wait for each other when they join, so rank 0 joins before it looks at
 * what it is to do: had it refused and ended before, the others would wait for ever.
 */
let joined: Promise<WatchedJob> | undefined;

/** A job, and what binds this rank to `troupe launch`. */
interface WatchedJob {
  readonly job: Job;
  readonly watch: LaunchWatch | undefined;
}

/** How long a rank stays that has nothing to say, in milliseconds: when one has ended with an error,
 * Open MPI's launcher kills the others, who may not have said why yet. */
const SPEECH_MS = 3000;

/** Lets rank 0 say what is wrong. */
export const letLeaderSpeak = (): Promise<void> => delay(SPEECH_MS);

/** Joins the job, once. */
const join = (options: MpiRunOptions, facts?: Facts): Promise<WatchedJob> =>
  joined ??= joinWatched(options, facts);

async function joinWatched(options: MpiRunOptions, asked: Facts = {}): Promise<WatchedJob> {
  const watch = watchLaunch(launchedRanks()?.rank ?? 0), facts = { ...programFacts(), ...asked };
  const job = await openJob({ ...options, facts });
  watch?.tell("joined");
  return { job, watch };
}

/** Leaves the job, as `leaving` does it. */
async function leave({ watch }: WatchedJob, leaving: () => Promise<void>): Promise<void> {
  watch?.tell("leaving");
  await leaving();
  watch?.close();
}

/** Whether one of its ranks does not answer: MPI cannot be closed without it. */
let isLost = false;

/** From now on nobody waits for the ranks: when this process ends, their launcher ends them. */
export function abandonJob(): void {
  isLost = true;
}

/** The job as rank 0 has it; disposing of it ends the job, unless that is done further out. */
export interface Led extends AsyncDisposable {
  /** Rejects when the job is lost. */
  readonly lost: Promise<never>;
}

/**
 * Joins the job as rank 0.
 *
 * @param facts what the run was asked to do, which must be the same on all ranks.
 */
export async function lead(options: MpiRunOptions, facts?: Facts): Promise<Led> {
  const isOutermost = joined === undefined, joint = await join(options, facts);
  return {
    lost: joint.job.lost,
    async [Symbol.asyncDispose]() {
      if (isOutermost && !isLost) await leave(joint, joint.job.close);
    },
  };
}

/**
 * The transport to the ranks of the job.
 *
 * @param columns groups whose members add arrays by MPI, as the rank of each.
 */
export async function rankTransport(
  options: MpiRunOptions,
  ranks: readonly number[],
  columns: readonly (readonly number[])[] = [],
): Promise<Transport> {
  const rankOf = (nth: number) => ranks[nth % ranks.length]!;
  const { job } = await join(options);
  return mpiTransport(job, rankOf, columns);
}

/**
 * Lends this rank to the run that rank 0 leads, until that is over.
 *
 * @param facts as of {@linkcode lead}.
 * @returns whether it could; where it could not, another rank says why.
 */
export async function follow(options: MpiRunOptions, facts?: Facts): Promise<boolean> {
  const joint = await join(options, facts).catch(async (error) => {
    if (isFirstOfHost() && !(error instanceof JobRefusal)) throw error;
    await letLeaderSpeak();
  });
  await joint?.job.serve();
  joint?.watch?.close();
  return joint !== undefined;
}
