/**
 * Training that goes on when a worker dies: everything is started again from the last snapshot, and
 * the steps since then are taken again.
 *
 * [Note: why a row restart] A worker that dies in the middle of a step takes activations of every
 * micro-batch in flight with it, so no other worker can finish the step. All are ended, opened anew
 * from weights that every worker had committed, and given the same micro-batches. Steps are
 * deterministic, so the run ends with the bits of a run in which nobody died.
 *
 * [Note: snapshots] A copy of the weights after every step would cost what a checkpoint costs; one
 * after every few steps costs little, and at most so many steps are taken again.
 *
 * @module
 */

import type { Batch, StageState } from "../kernels/mod.ts";
import type { Engine } from "./engine.ts";
import type { StepRequest, WorkerLost } from "./protocol.ts";

/** A worker is gone, and with it the step under way. */
export class WorkerLostError extends Error {
  /** Tells it from other errors, also where the class is another. */
  override readonly name = "WorkerLostError";
  /** Who failed first, and how. */
  readonly lost: WorkerLost;

  /** Says which worker failed at what. */
  constructor(lost: WorkerLost) {
    super(lost.message);
    this.lost = lost;
  }
}

/**
 * A worker does not answer and cannot be ended, since it is a thread of this program: only the end of
 * the program ends it.
 */
export class WedgedError extends Error {
  /** Tells it from other errors, also where the class is another. */
  override readonly name = "WedgedError";
  /** What the program should end with: the next try may go well (EX_TEMPFAIL of sysexits.h). */
  readonly exitCode = 75;

  /**
   * Says who waits for whom, and how to go on.
   *
   * @param message who waits for whom.
   * @param checkpoint the last one.
   */
  constructor(message: string, checkpoint: string | null) {
    const how = checkpoint
      ? `go on with: deno task train --resume ${checkpoint}`
      : "nothing was saved, since no checkpoint was asked for";
    super(`${message}; the program must end, as only a process can be ended: ${how}`);
  }
}

/** Steps from one snapshot to the next: a tenth of a second of copying in a minute of training. */
const SNAPSHOT_STEPS = 10;

/** What a recovering engine needs. */
export interface RecoveryOptions {
  /** How often each worker may fail. */
  readonly retries: number;
  /** Whether a worker that does not answer can be ended: it has a process of its own. */
  readonly canKill: boolean;
  /** Weights and moments before the first step. */
  readonly state: StageState;
  /** Told when the run goes on after a failure. */
  readonly announce: (line: string) => void;
}

/**
 * An engine that outlives its workers.
 *
 * @param open starts all workers from a state.
 * @throws {WorkerLostError} (from its methods) when a worker has failed more often than it may, or
 * fails at the same thing twice, which no further try would change.
 */
export async function openRecovering(
  open: (state: StageState) => Promise<Engine>,
  { retries, canKill, state, announce }: RecoveryOptions,
): Promise<Engine> {
  let snapshot = state, engine = await open(snapshot);
  /** The steps taken since the snapshot. */
  let taken: StepRequest[] = [];
  const failures = new Map<string, number>();
  let lastMessage: string | undefined;

  /** Counts a failure; throws it when there have been enough. */
  const count = (error: unknown): void => {
    if (!(error instanceof WorkerLostError)) throw error;
    const { worker, message, kind, isWedged } = error.lost,
      failed = (failures.get(worker) ?? 0) + 1;
    failures.set(worker, failed);
    // What a handler throws twice at the same action, it would throw a third time.
    const isSame = kind !== "exit" && message === lastMessage;
    lastMessage = message;
    if (retries === 0 || isSame || (isWedged && !canKill)) throw error;
    if (failed <= retries) return announce(`${message}; going on from the last committed step`);
    throw new WorkerLostError({
      ...error.lost,
      message: `Cannot go on: ${worker} may fail ${retries} times, and failed again; ${message}`,
    });
  };

  /** Opens everything anew and takes the steps since the snapshot again. */
  const restart = async (): Promise<void> => {
    await engine.close();
    engine = await open(snapshot);
    for (const request of taken) await engine.step(request);
  };

  /** Runs something to its end, however many workers die meanwhile. */
  const outlive = async <T>(run: () => Promise<T>): Promise<T> => {
    let isDown = false;
    for (;;) {
      try {
        if (isDown) await restart();
        return await run();
      } catch (error) {
        count(error);
        isDown = true;
      }
    }
  };

  const save = async () => {
    snapshot = await outlive(() => engine.save());
    taken = [];
    return snapshot;
  };
  return {
    async step(request) {
      const outcome = await outlive(() => engine.step(request));
      taken.push(request);
      if (retries > 0 && taken.length >= SNAPSHOT_STEPS) await save();
      return outcome;
    },
    evaluate: (microBatches: readonly Batch[]) => outlive(() => engine.evaluate(microBatches)),
    save,
    close: () => engine.close(),
  };
}
