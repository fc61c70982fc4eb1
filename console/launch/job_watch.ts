/**
 * Looks whether the ranks of a job live. What a run sees of its workers, train tells by itself; this
 * is for what nobody in the job can tell: that rank 0 is stopped, that ranks wait for one that does
 * not come, or that a launcher has lost them.
 *
 * [Note: looks of a launch] As in a run, a stall is a row of looks and no span of time: a machine that
 * was suspended has missed some.
 *
 * @module
 */

import type { SignOfLife } from "../../actors/runtime/transports/mpi/launcher/sign_of_life.ts";

/** Milliseconds from one look to the next. */
const LOOK_MS = 250;

/** Ranks may take so many times longer to start: programs are loaded, and hosts differ. */
const START_FACTOR = 5;

/** Who looks. */
export interface JobWatch {
  /** Takes a sign of life. */
  hear(sign: SignOfLife): void;
  /** Why the job has been given up, in words, if it has. */
  readonly stalled: string | undefined;
  /** The last sign of each rank. */
  readonly ranks: ReadonlyMap<number, SignOfLife>;
  /** Nobody looks any more. */
  close(): void;
}

/**
 * Opens a watch.
 *
 * @param isTrain whether ranks begin by joining; else they may do anything before.
 * @param stallMs how long nothing may be heard of rank 0, or ranks may take to leave.
 * @param onStall called once, when that is over.
 */
export function openJobWatch(
  { isTrain, stallMs }: { readonly isTrain: boolean; readonly stallMs: number },
  onStall: () => void,
): JobWatch {
  const ranks = new Map<number, SignOfLife>();
  let quietMs = 0, phaseMs = 0, stalled: string | undefined;
  const seconds = (ms: number) => `${ms / 1000} s`;
  const problem = (): string | undefined => {
    const phase = ranks.get(0)?.phase, startMs = START_FACTOR * stallMs;
    if (phase === "left" || (phase === undefined && !isTrain)) return undefined;
    if (phase === undefined || phase === "joining") {
      if (phaseMs <= startMs) return undefined;
      return `the ranks have not found each other within ${seconds(startMs)}`;
    }
    if (quietMs > stallMs) return `rank 0 has not moved for ${seconds(stallMs)}`;
    if (phase !== "leaving" || phaseMs <= stallMs) return undefined;
    return `the ranks have not ended within ${seconds(stallMs)}`;
  };
  const timer = setInterval(() => {
    quietMs += LOOK_MS;
    phaseMs += LOOK_MS;
    stalled = problem();
    if (stalled === undefined) return;
    clearInterval(timer);
    onStall();
  }, LOOK_MS);
  return {
    hear(sign) {
      // A last sign of a thread that is being ended may come late.
      if (ranks.get(sign.rank)?.phase === "left") return;
      if (sign.rank === 0) {
        quietMs = 0;
        if (sign.phase !== ranks.get(0)?.phase) phaseMs = 0;
      }
      ranks.set(sign.rank, sign);
    },
    get stalled() {
      return stalled;
    },
    ranks,
    close: () => clearInterval(timer),
  };
}
