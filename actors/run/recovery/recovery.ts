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
 * [Note: no copy] Where workers write checkpoints themselves, nobody gathers the weights: the last
 * checkpoint is the snapshot, or before it what the first weights come from.
 *
 * @module
 */

import { delay } from "@std/async/delay";
import type { StageState, StateOf } from "../../../kernels/mod.ts";
import type { TensorSource } from "../../checkpoints/tensors/tensor_source.ts";
import type { StepOutcome, StepRequest } from "../../pipeline/step.ts";
import type { Engine } from "../engines/engine.ts";
import {
  keepDrained,
  keepStep,
  keepSteps,
  KEPT_BYTES,
  type KeptSteps,
  roomAfter,
} from "./kept_steps.ts";
import { openRetries, type Retries, type RetryOptions, WorkerLostError } from "./retries.ts";

/** Steps from one snapshot to the next: a tenth of a second of copying in a minute of training. */
const SNAPSHOT_STEPS = 10;

const TOO_MANY =
  "Cannot take again the steps since the last checkpoint or evaluation: they are too many to be kept";

/** What a recovering engine needs. */
export interface RecoveryOptions extends RetryOptions {
  /** Weights and moments before the first step, or where they come from. */
  readonly state: StateOf<TensorSource>;
  /** Told when the run goes on after a failure. */
  readonly announce: (line: string) => void;
}

/** An engine that outlives its workers. */
export interface RecoveringEngine extends Engine {
  /**
   * Has the workers write what they hold, where {@linkcode Engine.write} can: once more when one of
   * them dies meanwhile. What is said to be written is what all is started from again.
   *
   * @param write makes a checkpoint of it.
   */
  checkpoint?<T extends StateOf<TensorSource>>(write: (engine: Engine) => Promise<T>): Promise<T>;
}

/** A run whose workers may die. */
interface Recovery {
  readonly options: RecoveryOptions;
  /** Starts all workers from a state. */
  readonly open: (state: StateOf<TensorSource>) => Promise<Engine>;
  readonly retries: Retries;
  /** Aborted at the end: nobody waits for another try. */
  readonly ending: AbortController;
  /** What all is started from again. */
  snapshot: StateOf<TensorSource>;
  /** The state of now, if no step has been taken since it was saved. */
  newest: StageState | undefined;
  /** The steps since the snapshot. */
  kept: KeptSteps;
  /** The engine as it starts: all workers anew, and the kept steps taken again. */
  current: Promise<Engine>;
  /** What of it has to be closed. */
  opened: Engine | undefined;
}

/**
 * An engine that outlives its workers, from the start of the first of them.
 *
 * @param open starts all workers from a state.
 * @throws {WorkerLostError} (from its methods, too) when a worker has failed more often than it may,
 * or fails at the same thing twice, which no further try would change.
 */
export async function openRecovering(
  open: (state: StateOf<TensorSource>) => Promise<Engine>,
  options: RecoveryOptions,
): Promise<RecoveringEngine> {
  const recovery = begin(open, options);
  const { ahead, write } = await outlive(recovery, (engine) => engine);
  const keepsAll = ahead === undefined && !write;
  const roomOf = (state: StateOf<TensorSource>) =>
    keepsAll ? Infinity : write ? KEPT_BYTES : roomAfter(state);
  const save = () => takeSnapshot(recovery, write ? undefined : roomOf);
  recovery.kept = keepSteps(roomOf(options.state));
  const engine: RecoveringEngine = {
    async step(request) {
      const outcome = await takeStep(recovery, request);
      if (keepsAll && recovery.kept.steps.length >= SNAPSHOT_STEPS) await save();
      return outcome;
    },
    evaluate: (microBatches) => getOn(recovery, (engine) => engine.evaluate(microBatches)),
    save,
    ...write && { checkpoint: (write) => takeCheckpoint(recovery, roomOf, write) },
    close: () => end(recovery),
  };
  if (ahead === undefined) return engine;
  const drain = async () => {
    await outlive(recovery, (engine) => engine.drain!());
    if (write) keepDrained(recovery.kept);
    else if (options.retries > 0) await save();
  };
  return { ...engine, ahead, drain };
}

function begin(open: Recovery["open"], options: RecoveryOptions): Recovery {
  const recovery: Omit<Recovery, "current"> = {
    options,
    open,
    retries: openRetries(options),
    ending: new AbortController(),
    snapshot: options.state,
    newest: undefined,
    kept: keepSteps(Infinity),
    opened: undefined,
  };
  return Object.assign(recovery, { current: start(recovery) });
}

/** Opens everything and takes the kept steps again. */
async function start(recovery: Omit<Recovery, "current">): Promise<Engine> {
  const engine = recovery.opened = await recovery.open(recovery.snapshot);
  for (const request of recovery.kept.steps) {
    if (request === "drained") {
      await engine.drain!();
      continue;
    }
    const step = engine.step(request);
    if (engine.ahead === undefined) await step;
    // It ends behind those that follow; should it fail, so do they.
    else step.catch(() => {});
  }
  return engine;
}

/** Closes what is left, waits, and starts anew. */
async function restart(recovery: Recovery, waitMs: number): Promise<Engine> {
  await recovery.opened?.close();
  recovery.opened = undefined;
  await delay(waitMs, { signal: recovery.ending.signal });
  return await start(recovery);
}

/** What kept something from its end is told, and everything is started again. */
function recover(recovery: Recovery, error: unknown): void {
  if (!(error instanceof WorkerLostError)) throw error;
  const waitMs = recovery.retries.failed(error);
  if (recovery.kept.areLost) {
    throw new WorkerLostError({ ...error.lost, message: `${TOO_MANY}; ${error.message}` });
  }
  recovery.options.announce(`${error.message}; going on from the last committed step`);
  recovery.current = restart(recovery, waitMs);
  // Whoever waits for it meets a failure.
  recovery.current.catch(() => {});
}

/** Runs something to its end, however many workers die meanwhile. */
async function outlive<T>(
  recovery: Recovery,
  run: (engine: Engine) => T | Promise<T>,
): Promise<T> {
  for (;;) {
    const tried = recovery.current;
    try {
      return await run(await tried);
    } catch (error) {
      // Of several that fail together the first starts all again, and each tries again in turn.
      if (tried === recovery.current) recover(recovery, error);
    }
  }
}

/** The same for something that gets the run on. */
async function getOn<T>(recovery: Recovery, run: (engine: Engine) => Promise<T>): Promise<T> {
  const result = await outlive(recovery, run);
  recovery.retries.gotOn();
  return result;
}

/** Takes a step, and keeps it until the next snapshot. */
async function takeStep(recovery: Recovery, request: StepRequest): Promise<StepOutcome> {
  const { retries, announce } = recovery.options;
  const outcome = await getOn(recovery, (engine) => engine.step(request));
  recovery.newest = undefined;
  if (retries > 0 && keepStep(recovery.kept, request)) {
    announce(`${TOO_MANY}: up to the next one, a worker that dies ends the run`);
  }
  return outcome;
}

/** The room for the steps after a snapshot, in bytes. */
type RoomOf = (snapshot: StateOf<TensorSource>) => number;

/**
 * Saves the state of now, and starts from it should a worker die: the steps before are done.
 *
 * @param roomOf undefined where it is no snapshot.
 */
async function takeSnapshot(recovery: Recovery, roomOf: RoomOf | undefined): Promise<StageState> {
  if (recovery.newest) return recovery.newest;
  const saved = await whenEmpty(recovery, (engine) => engine.save());
  if (!roomOf || recovery.options.retries === 0) return saved;
  recovery.kept = keepSteps(roomOf(saved));
  return recovery.newest = recovery.snapshot = saved;
}

/** Has the workers write what they hold, and starts from that should one of them die. */
async function takeCheckpoint<T extends StateOf<TensorSource>>(
  recovery: Recovery,
  roomOf: RoomOf,
  write: (engine: Engine) => Promise<T>,
): Promise<T> {
  const written = await whenEmpty(recovery, write);
  recovery.kept = keepSteps(roomOf(written));
  recovery.snapshot = written;
  return written;
}

/** The pipe is empty, but not if the steps since the snapshot had to be taken again. */
const whenEmpty = <T>(recovery: Recovery, save: (engine: Engine) => Promise<T>): Promise<T> =>
  getOn(recovery, async (engine) => (await engine.drain?.(), await save(engine)));

/** Ends everything, also what is about to be tried again. */
async function end(recovery: Recovery): Promise<void> {
  recovery.ending.abort();
  await recovery.current.catch(() => {});
  await recovery.opened?.close();
}
