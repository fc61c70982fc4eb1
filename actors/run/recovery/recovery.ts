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
 * after every few steps costs little, and at most so many steps are taken again. Without flushes
 * only an empty pipe has weights that belong together, and what follows has other bits than if it
 * had stayed full. So there a snapshot is taken whenever the run lets the pipe run empty anyway:
 * before its checkpoints and evaluations.
 *
 * @module
 */

import { delay } from "@std/async/delay";
import type { Batch, StageState } from "../../../kernels/mod.ts";
import type { Engine } from "../engines/engine.ts";
import type { StepRequest } from "../../pipeline/protocol.ts";
import { openRetries, type RetryOptions, WorkerLostError } from "./retries.ts";

/** Steps from one snapshot to the next: a tenth of a second of copying in a minute of training. */
const SNAPSHOT_STEPS = 10;

/**
 * Without flushes nobody knows when the next snapshot comes. The micro-batches since the last one may
 * take as many bytes as it does, and so many always.
 */
const KEPT_BYTES = 2 ** 24;

const TOO_MANY =
  "Cannot take again the steps since the last checkpoint or evaluation: they are too many to be kept";

/** What a recovering engine needs. */
export interface RecoveryOptions extends RetryOptions {
  /** Weights and moments before the first step. */
  readonly state: StageState;
  /** Told when the run goes on after a failure. */
  readonly announce: (line: string) => void;
}

/**
 * An engine that outlives its workers, from the start of the first of them.
 *
 * @param open starts all workers from a state.
 * @throws {WorkerLostError} (from its methods, too) when a worker has failed more often than it may,
 * or fails at the same thing twice, which no further try would change.
 */
export async function openRecovering(
  open: (state: StageState) => Promise<Engine>,
  options: RecoveryOptions,
): Promise<Engine> {
  const { retries, state, announce } = options;
  const tries = openRetries(options), closing = new AbortController();
  let snapshot = state, isNewest = false;
  let taken = openTaken(Infinity);
  let opened: Engine | undefined;

  /** Opens everything anew and takes the steps since the snapshot again. */
  const start = async (): Promise<Engine> => {
    const engine = opened = await open(snapshot);
    for (const request of taken.steps) {
      const step = engine.step(request);
      if (engine.ahead === undefined) await step;
      // It ends behind those that follow; should it fail, so do they.
      else step.catch(() => {});
    }
    return engine;
  };
  let current = start();

  const restart = async (waitMs: number): Promise<Engine> => {
    await opened?.close();
    opened = undefined;
    await delay(waitMs, { signal: closing.signal });
    return await start();
  };

  /** What kept something from its end is told, and everything is started again. */
  const recover = (error: unknown): void => {
    if (!(error instanceof WorkerLostError)) throw error;
    const waitMs = tries.failed(error);
    if (taken.isLost) {
      throw new WorkerLostError({ ...error.lost, message: `${TOO_MANY}; ${error.message}` });
    }
    announce(`${error.message}; going on from the last committed step`);
    current = restart(waitMs);
    // Whoever waits for it meets a failure.
    current.catch(() => {});
  };

  /** Runs something to its end, however many workers die meanwhile. */
  const outlive = async <T>(run: (engine: Engine) => T | Promise<T>): Promise<T> => {
    for (;;) {
      const tried = current;
      try {
        return await run(await tried);
      } catch (error) {
        // Of several that fail together the first starts all again, and each tries again in turn.
        if (tried === current) recover(error);
      }
    }
  };
  /** The same for something that gets the run on. */
  const getOn = async <T>(run: (engine: Engine) => Promise<T>): Promise<T> => {
    const result = await outlive(run);
    tries.gotOn();
    return result;
  };

  const save = async () => {
    if (isNewest) return snapshot;
    // The pipe is empty, but not if the steps since the snapshot had to be taken again.
    const saved = await getOn(async (engine) => (await engine.drain?.(), await engine.save()));
    if (retries === 0) return saved;
    taken = openTaken(limitOf(saved));
    isNewest = true;
    return snapshot = saved;
  };
  const { ahead } = await outlive((engine) => engine);
  const limitOf = (state: StageState) => ahead === undefined ? Infinity : limitFor(state);
  taken = openTaken(limitOf(state));
  const engine: Engine = {
    async step(request) {
      const outcome = await getOn((engine) => engine.step(request));
      isNewest = false;
      if (retries > 0 && taken.add(request)) {
        announce(`${TOO_MANY}: up to the next one, a worker that dies ends the run`);
      }
      if (ahead === undefined && taken.steps.length >= SNAPSHOT_STEPS) await save();
      return outcome;
    },
    evaluate: (microBatches: readonly Batch[]) => getOn((engine) => engine.evaluate(microBatches)),
    save,
    async close() {
      closing.abort();
      await current.catch(() => {});
      await opened?.close();
    },
  };
  if (ahead === undefined) return engine;
  const drain = async () => {
    await outlive((engine) => engine.drain!());
    if (retries > 0) await save();
  };
  return { ...engine, ahead, drain };
}

/** The steps since a snapshot, as far as they can be kept. */
interface Taken {
  readonly steps: readonly StepRequest[];
  /** Whether they were too many. */
  readonly isLost: boolean;
  /** Adds one, and tells if it is the first that is too many. */
  add(request: StepRequest): boolean;
}

const bytesOf = (values: Iterable<{ readonly byteLength: number }>) =>
  [...values].reduce((sum, { byteLength }) => sum + byteLength, 0);

const limitFor = ({ weights, moments }: StageState) =>
  Math.max(KEPT_BYTES, bytesOf(weights.values()) + bytesOf(moments.values()));

/** @param limit the most bytes that their micro-batches may take. */
function openTaken(limit: number): Taken {
  let steps: StepRequest[] = [], bytes = 0, isLost = false;
  return {
    get steps() {
      return steps;
    },
    get isLost() {
      return isLost;
    },
    add(request) {
      if (isLost) return false;
      steps.push(request);
      bytes += bytesOf(request.microBatches.flatMap((fields) => Object.values(fields)));
      if (bytes <= limit) return false;
      isLost = true;
      steps = [];
      return true;
    },
  };
}
