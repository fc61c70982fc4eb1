/**
 * A run on the ranks of an MPI job: rank 0 leads it, the others lend it their threads.
 *
 * @module
 */

import { assertInput, refusal } from "../../kernels/internal.ts";
import { delay } from "@std/async/delay";
import { join as pathJoin, resolve } from "node:path";
import { type Transport } from "../runtime/mod.ts";
import { createSystem } from "../transports/system.ts";
import { type LaunchWatch, watchLaunch } from "../transports/mpi/launch_watch.ts";
import { isFirstOfHost, JobRefusal, launchedRanks } from "../transports/mpi/library.ts";
import { type Job, mpiTransport, openJob } from "../transports/mpi/transport.ts";
import { FILE_LOOKER } from "./file_looker.ts";

import { type Facts, programFacts } from "./program_facts.ts";
import type { MpiRunOptions } from "../options/train_options.ts";
import type { PreparedRun } from "./events.ts";

/** Returns whether this process is known to be a rank that does not lead. */
export const isFollower = (): boolean => (launchedRanks()?.rank ?? 0) > 0;

/** The operation in refusals. */
const TRAIN = "train with runtime mpi";

/**
 * The rank of each worker.
 *
 * @param workers those of all data-parallel replicas.
 * @throws {RangeError} when they do not fit the ranks of the job.
 */
export function rankMap({ map }: MpiRunOptions, workers: number): readonly number[] {
  const launched = launchedRanks(), size = launched?.size ?? 1;
  const ensure = (is: boolean, must: string, received: unknown) =>
    assertInput(is, TRAIN, must, received);
  const launcher = `a launcher of MPI, such as mpirun -n ${workers}`;
  ensure(launched !== undefined, `it must be started by ${launcher}`, "none");
  const each = `each of the ${workers} workers`, isFull = map !== undefined || size === workers;
  ensure(isFull, `there must be a rank for ${each}, or a map of them`, `${size} ranks`);
  const ranks = map ?? Array.from({ length: workers }, (_, worker) => worker);
  const fit = ranks.length === workers && ranks.every((rank) => rank < size);
  ensure(fit, `the map must give a rank below ${size} to ${each}`, ranks);
  return ranks;
}

/**
 * The job of this process. MPI opens and closes once in a process, so there is one job.
 *
 * [Note: join first] Ranks wait for each other when they join, so rank 0 joins before it checks its
 * options: if it refused earlier, the others would wait forever.
 */
let joined: Promise<WatchedJob> | undefined;

/** A job, and the connection of this rank to `troupe launch`. */
interface WatchedJob {
  readonly job: Job;
  readonly watch: LaunchWatch | undefined;
}

/** Time in milliseconds for which a silent rank stays: when one rank ends with an error, Open MPI's
 * launcher kills the others, and rank 0 may not have printed the reason yet. */
const SPEECH_MS = 3000;

/** Waits until rank 0 has printed the error. */
export const letLeaderSpeak = (): Promise<void> => delay(SPEECH_MS);

/** Joins the job, once. */
const join = (options: MpiRunOptions, asked: Facts = {}): Promise<WatchedJob> =>
  joined ??= (async () => {
    const watch = watchLaunch(launchedRanks()?.rank ?? 0), facts = { ...programFacts(), ...asked };
    const job = await openJob({ ...options, facts });
    watch?.tell("joined");
    return { job, watch };
  })();

/** True if one of its ranks does not answer: MPI cannot be closed without it. */
let isLost = false;

/** Stops waiting for the ranks: when this process ends, their launcher ends them. */
export function abandonJob(): void {
  isLost = true;
}

/**
 * Joins the job as rank 0.
 *
 * @param facts the options of the run, which must be equal on all ranks.
 */
export async function lead(options: MpiRunOptions, facts?: Facts) {
  const isOutermost = joined === undefined, { job, watch } = await join(options, facts);
  return {
    /** Rejects when the job is lost. */
    lost: job.lost,
    async [Symbol.asyncDispose]() {
      if (!isOutermost || isLost) return;
      watch?.tell("leaving");
      await job.close();
      watch?.close();
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
 * @returns false if this rank could not join; another rank then reports the reason.
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

/** Time limit of a rank's checks, in milliseconds. */
const LOOK_MS = 60_000;

/**
 * Checks that every rank can read the files of the initial weights and write to the folder of
 * checkpoints, unless rank 0 gathers all weights.
 *
 * @throws {RangeError} with a rank that cannot, and the remedy.
 */
export async function checkShared({ state, checkpoint, mpi }: PreparedRun): Promise<void> {
  if (!mpi || mpi.gather) return;
  const ranks = [...new Set(mpi.ranks)].filter((rank) => rank > 0),
    { directory } = checkpoint ?? {};
  const sources = [...state.weights.values(), ...state.moments.values()];
  const files = [...new Set(sources.flatMap((source) => "path" in source ? [source.path] : []))];
  if (ranks.length === 0 || files.length === 0 && directory === undefined) return;
  const folder = directory === undefined ? undefined : resolve(directory);
  const token = folder && pathJoin(folder, `.shared-${crypto.randomUUID()}`);
  try {
    if (token) await Deno.writeFile(token, new Uint8Array(), { createNew: true });
    const look = {
      type: "Look",
      files: token ? [...files, token] : files,
      directory: folder,
    } as const;
    const transport = await rankTransport(mpi, ranks);
    await using system = createSystem({ transport });
    const problems = await Promise.all(ranks.map((rank) => {
      const place = { id: `looker-${rank}`, isolate: transport.name };
      return system.ask(system.spawn(FILE_LOOKER, undefined, place), look, { timeoutMs: LOOK_MS });
    }));
    const nth = problems.findIndex((problem) => problem !== undefined);
    if (nth < 0) return;
    const must = "every rank must see the files of rank 0, as in a folder that all hosts share";
    const found = `on rank ${ranks[nth]}: ${problems[nth]}`;
    throw refusal(TRAIN, must, `${found}; with --gather rank 0 reads and writes for all`);
  } finally {
    if (token) await Deno.remove(token).catch(() => {});
  }
}
