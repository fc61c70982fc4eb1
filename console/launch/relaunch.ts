/**
 * Runs a job until it has come to its end, however often a rank of it dies.
 *
 * [Note: the whole job] MPI cannot go on without a rank, and its launchers end all when one dies. So
 * the whole job is started again, and goes on from its newest checkpoint with the same bits.
 *
 * @module
 */

import { delay } from "@std/async/delay";
import { lockFolder } from "../../actors/checkpoints/checkpoint_lock.ts";
import { readFinished } from "../../actors/checkpoints/marks/finished.ts";
import { countRestarts } from "../../actors/runtime/supervision/restarts.ts";
import type { SignOfLife } from "../../actors/runtime/transports/mpi/launcher/sign_of_life.ts";
import { printError } from "../print.ts";
import type { Death } from "./death.ts";
import type { JobEnd } from "./job.ts";
import { newestStep } from "./launch_request.ts";

/** What is run. */
export interface Relaunch {
  /** The folder of the checkpoints; undefined where nothing is started again. */
  readonly out: string | undefined;
  /** The name of the launch. */
  readonly launch: string;
  readonly maxRestarts: number;
  /** Time after which what is left of a try is not waited for. */
  readonly stallMs: number;
  /** Whether ranks are heard of as soon as they begin, as those of `train` are. */
  readonly isTrain: boolean;
  /** Aborted when the job is to end. */
  readonly signal: AbortSignal;
  /** Makes one try, which goes on from a checkpoint if there is one. */
  run(hasCheckpoint: boolean): Promise<JobEnd>;
}

/** Delays of restarts. A failure counts until there is a new checkpoint. */
const LIMITS = { periodMs: Infinity, firstMs: 1000, maxMs: 60_000 } as const;

/** Of train, and so of rank 0: bad input, an interrupted run. */
const REFUSED = 2, INTERRUPTED = 130;

/**
 * Runs a job; returns the exit code.
 *
 * @throws {Error} when its words cannot be passed on, it has failed too often, or the launcher has started nothing.
 */
export async function relaunch(job: Relaunch): Promise<number> {
  const { out, launch, maxRestarts, signal } = job;
  const count = () => countRestarts({ intensity: maxRestarts, ...LIMITS });
  let restarts = count(), step = out === undefined ? undefined : await newestStep(out);
  let hasBegun = false;
  for (let failures = 1;; failures++) {
    const end = await job.run(step !== undefined);
    if (out === undefined) return signal.aborted ? INTERRUPTED : end.code;
    if ((await readFinished(out))?.launch === launch) return 0;
    if (end.unheard !== undefined) throw end.unheard;
    if (signal.aborted) return INTERRUPTED;
    if (end.code === REFUSED && end.death?.signal === undefined) return REFUSED;
    hasBegun ||= end.ranks.size > 0 || end.death !== undefined || !job.isTrain;
    if (!hasBegun) throw neverBegan(end);
    const before = step;
    step = await newestStep(out);
    if ((step ?? 0) > (before ?? 0)) {
      failures = 1;
      restarts = count();
    }
    const waitMs = restarts.failed(performance.now()), how = describeEnd(end);
    const from = step === undefined ? "the beginning" : `step ${step}`;
    if (waitMs === undefined) {
      throw new Error(
        `Cannot go on: the job may fail ${maxRestarts} times without a new checkpoint, and failed again: ${how}; it stands at ${from}`,
      );
    }
    printError(`${how}; going on from ${from} (restart ${failures} of ${maxRestarts})`);
    await delay(waitMs, { signal }).catch(() => {});
    if (signal.aborted) return INTERRUPTED;
    await untilFree(out, job.stallMs);
  }
}

/** Of a launcher that can start nothing, as on a host that is not there: another try would be in vain. */
const neverBegan = ({ code, stalled }: JobEnd) =>
  new Error(
    `Cannot launch: the launcher must start the ranks, received ${
      stalled ?? `its exit code ${code}`
    } before any of them had begun; what it says stands above`,
  );

/** How a try has ended, in words. */
function describeEnd({ code, death, stalled, ranks }: JobEnd): string {
  if (stalled !== undefined) return `The job was ended, as ${stalled}`;
  const { signal, pid, host } = death ?? {};
  const rank = death?.rank ?? rankOf([...ranks.values()], death);
  const who = rank !== undefined
    ? `Rank ${rank}`
    : pid !== undefined
    ? `Process ${pid}`
    : "The job";
  const where = host === undefined ? "" : ` on ${host}`;
  if (signal !== undefined) return `${who}${where} died of ${signal}`;
  return `${who}${where} ended before its time with exit code ${death?.code ?? code}`;
}

/** The rank of a process: hosts may call themselves otherwise than whoever lists them. */
function rankOf(ranks: readonly SignOfLife[], { pid, host }: Death = {}): number | undefined {
  const found = ranks.filter((rank) => rank.pid === pid);
  return (found.length > 1 ? found.find((rank) => rank.host === host) : found[0])?.rank;
}

/** Milliseconds from one look at a folder to the next. */
const LOOK_MS = 100;

/** Waits until nobody has the folder any more: what is left of a try ends by itself. */
async function untilFree(out: string, limitMs: number): Promise<void> {
  for (let waitedMs = 0; waitedMs < limitMs; waitedMs += LOOK_MS) {
    try {
      using _lock = lockFolder(out);
      return;
    } catch {
      await delay(LOOK_MS);
    }
  }
}
