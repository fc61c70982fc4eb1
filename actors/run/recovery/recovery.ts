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
 * [Note: no copy] The last checkpoint that is whole is a snapshot, too, or before it what the first
 * weights come from: the base. Where workers write checkpoints themselves there is no other, and
 * nobody gathers the weights.
 *
 * @module
 */

import { delay } from "@std/async/delay";
import type { StageState, StateOf } from "../../../kernels/mod.ts";
import { gatherState, type HeldState, heldValues } from "../../checkpoints/tensors/held_state.ts";
import type { TensorSource } from "../../checkpoints/tensors/tensor_source.ts";
import type { WorkerLost } from "../../pipeline/protocol.ts";
import type { StepOutcome, StepRequest } from "../../pipeline/step.ts";
import type { Engine } from "../engines/engine.ts";
import {
  dropSteps,
  keepDrained,
  keepStep,
  keepSteps,
  KEPT_BYTES,
  type KeptSteps,
  SNAPSHOT_STEPS,
  stepsSoFar,
} from "./kept_steps.ts";
import { openRetries, type Retries, type RetryOptions, WorkerLostError } from "./retries.ts";
import { bytesOfState, type Snapshots } from "./snapshots.ts";

const TOO_MANY =
  "Cannot take again the steps since the last checkpoint or evaluation: they are too many to be kept";

/** What a recovering engine needs. */
export interface RecoveryOptions extends RetryOptions {
  /** Weights and moments before the first step, or where they come from. */
  readonly state: StateOf<TensorSource>;
  /** The sizes of all of them. */
  readonly shapes: HeldState["shapes"];
  /** What takes snapshots. */
  readonly snapshots: Snapshots;
  /** Told when the run goes on after a failure. */
  readonly announce: (line: string) => void;
  /** Told of each worker that is lost where the run goes on. */
  readonly onLost?: ((lost: WorkerLost) => void) | undefined;
}

/** Says where the tensors of a state lie that has been read: all can be started again from there. */
export type Kept = (state: StateOf<TensorSource>) => void;

/** An engine that outlives its workers. */
export interface RecoveringEngine extends Omit<Engine, "held" | "write"> {
  /**
   * Has the weights and moments of now read, from the beginning once more when a worker dies
   * meanwhile.
   *
   * @param use reads them; it may tell later, too, that they are kept.
   */
  read<T>(use: (state: HeldState, kept: Kept) => Promise<T>): Promise<T>;
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
  /** The oldest state that all can be started again from; none once its steps are too many. */
  base: StateOf<TensorSource> | undefined;
  /** A newer one, and how many steps came before it. */
  snapshot: { readonly state: StateOf<TensorSource>; readonly at: number } | undefined;
  /** The state of now, where it had to be gathered and no step has been taken since. */
  newest: StageState | undefined;
  /** The steps since the base, or since the snapshot where there is none. */
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
  const recovery = begin(open, options), { retries, shapes } = options;
  const { ahead, write } = await outlive(recovery, (engine) => engine);
  // As many steps as a snapshot is apart are kept in any case.
  const isBounded = ahead !== undefined || write !== undefined;
  if (ahead !== undefined && !write) {
    recovery.kept.limitBytes = Math.max(KEPT_BYTES, bytesOfState(shapes));
  }
  const engine: RecoveringEngine = {
    async step(request) {
      const outcome = await takeStep(recovery, request, isBounded);
      if (!isBounded && isSnapshotDue(recovery)) await takeSnapshot(recovery);
      return outcome;
    },
    evaluate: (microBatches) => getOn(recovery, (engine) => engine.evaluate(microBatches)),
    read: (use) => read(recovery, use),
    save: () => read(recovery, (state) => gatherState(state)),
    ...write && { checkpoint: (write) => takeCheckpoint(recovery, write) },
    close: () => end(recovery),
  };
  if (ahead === undefined) return engine;
  const drain = async () => {
    await outlive(recovery, (engine) => engine.drain!());
    keepDrained(recovery.kept);
    if (!write && retries > 0) await takeSnapshot(recovery);
  };
  return { ...engine, ahead, drain };
}

function begin(open: Recovery["open"], options: RecoveryOptions): Recovery {
  const recovery: Omit<Recovery, "current"> = {
    options,
    open,
    retries: openRetries(options),
    ending: new AbortController(),
    base: options.state,
    snapshot: undefined,
    newest: undefined,
    kept: keepSteps(KEPT_BYTES),
    opened: undefined,
  };
  return Object.assign(recovery, { current: start(recovery) });
}

/** Opens everything and takes the kept steps again. */
async function start(recovery: Omit<Recovery, "current">): Promise<Engine> {
  const { kept, snapshot = { state: recovery.base!, at: kept.dropped } } = recovery;
  const engine = recovery.opened = await recovery.open(snapshot.state);
  for (const request of kept.steps.slice(snapshot.at - kept.dropped)) {
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
  recovery.options.onLost?.(error.lost);
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
async function takeStep(
  recovery: Recovery,
  request: StepRequest,
  isBounded: boolean,
): Promise<StepOutcome> {
  const { retries, announce } = recovery.options, { kept } = recovery;
  const outcome = await getOn(recovery, (engine) => engine.step(request));
  recovery.newest = undefined;
  if (retries === 0) return outcome;
  if (kept.areLost) kept.dropped++;
  else if (keepStep(kept, request)) forgetBase(recovery);
  if (!isBounded || kept.areLost || kept.bytes <= kept.limitBytes) return outcome;
  dropSteps(kept, stepsSoFar(kept));
  kept.areLost = true;
  recovery.base = recovery.snapshot = undefined;
  announce(`${TOO_MANY}: up to the next one, a worker that dies ends the run`);
  return outcome;
}

/** Where there is a newer snapshot, the steps before it are not kept for ever. */
function forgetBase(recovery: Recovery): void {
  if (!recovery.snapshot) return;
  recovery.base = undefined;
  dropSteps(recovery.kept, recovery.snapshot.at);
}

function isSnapshotDue({ kept, snapshot, options: { retries, snapshots } }: Recovery): boolean {
  const steps = stepsSoFar(kept) - (snapshot?.at ?? kept.dropped);
  const isMuch = kept.bytes > KEPT_BYTES && snapshot === undefined;
  return retries > 0 && steps >= (isMuch ? SNAPSHOT_STEPS : snapshots.everySteps);
}

/** Keeps the state of now, to start from it should a worker die: the steps before are done. */
async function takeSnapshot(recovery: Recovery): Promise<void> {
  const { snapshots } = recovery.options;
  await whenEmpty(recovery, async (engine) => {
    const at = stepsSoFar(recovery.kept);
    if (!engine.held) return void await gathered(recovery, engine);
    const mayOverwrite = recovery.base !== undefined;
    // What is half overwritten is nothing to start from.
    if (snapshots.overwrites && mayOverwrite) recovery.snapshot = undefined;
    const state = await snapshots.take(engine.held, mayOverwrite);
    if (!snapshots.overwrites) return rebase(recovery, state, at);
    recovery.snapshot = { state, at };
    if (recovery.kept.areLost) recovery.kept.areLost = false;
    if (recovery.base === undefined) dropSteps(recovery.kept, at);
  });
}

/** Has the state of now read. */
const read = <T>(recovery: Recovery, use: (state: HeldState, kept: Kept) => Promise<T>) =>
  whenEmpty(recovery, async (engine) => {
    const at = stepsSoFar(recovery.kept);
    return await use(
      engine.held ?? await gathered(recovery, engine),
      (state) => rebase(recovery, state, at),
    );
  });

/** The state of now, all at once; that it is a snapshot, too, costs nothing more. */
async function gathered(recovery: Recovery, engine: Engine): Promise<HeldState> {
  const { shapes } = recovery.options;
  recovery.newest ??= await engine.save();
  rebase(recovery, recovery.newest, stepsSoFar(recovery.kept));
  return heldValues(recovery.newest, shapes.model);
}

/** Starts from a state from now on, should a worker die. @param at how many steps came before it. */
function rebase(recovery: Recovery, state: StateOf<TensorSource>, at: number): void {
  const { kept, snapshot, options: { retries } } = recovery;
  // Some of the steps since are not kept any more.
  if (retries === 0 || at < kept.dropped) return;
  recovery.base = state;
  dropSteps(kept, at);
  kept.areLost = false;
  if (snapshot && snapshot.at < at) recovery.snapshot = undefined;
}

/** Has the workers write what they hold, and starts from that should one of them die. */
async function takeCheckpoint<T extends StateOf<TensorSource>>(
  recovery: Recovery,
  write: (engine: Engine) => Promise<T>,
): Promise<T> {
  const written = await whenEmpty(recovery, write);
  rebase(recovery, written, stepsSoFar(recovery.kept));
  return written;
}

/** The pipe is empty, but not if the steps since the snapshot had to be taken again. */
const whenEmpty = <T>(recovery: Recovery, save: (engine: Engine) => Promise<T>): Promise<T> =>
  getOn(recovery, async (engine) => (await engine.drain?.(), await save(engine)));

/** Ends everything, also what is about to be tried again. */
async function end(recovery: Recovery): Promise<void> {
  recovery.ending.abort();
  await recovery.current.catch(() => {});
  const { opened } = recovery;
  recovery.opened = undefined;
  await opened?.close();
  await recovery.options.snapshots.close();
}
