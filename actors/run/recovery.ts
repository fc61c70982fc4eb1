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
 * [Note: one snapshot] In memory there is room for one: the next takes its place, tensor by tensor.
 * Should a worker die just then, the run is started again from what was before: a checkpoint, or what
 * the first weights come from. On disk the next is written beside the last, which is removed then.
 *
 * @module
 */

import { delay } from "@std/async/delay";
import { join } from "node:path";
import { elementCount, type StageState, type StateOf } from "../../kernels/internal.ts";
import { fileName, KINDS } from "../checkpoints/format.ts";
import {
  type FileKind,
  gatherState,
  type HeldState,
  heldValues,
  type TensorSource,
} from "../checkpoints/tensors.ts";
import { newFiles, placedIn, writeTensors } from "../checkpoints/write.ts";
import { commandLine } from "../options/limits.ts";
import type { WorkerLost } from "../pipeline/protocol.ts";
import type { StepOutcome, StepRequest } from "../pipeline/step.ts";
import { countRestarts, type Restarts } from "../runtime/restarts.ts";
import { closeRendezvousFolder, lockFolder } from "../transports/rendezvous.ts";
import type { Engine } from "./engine.ts";
import type { SnapshotPlace } from "../options/option.ts";

/** The most bytes that steps may take which a newer snapshot has made needless. */
export const KEPT_BYTES = 2 ** 24;

/** Bytes of a record, and of an array beside its numbers: what the system sees of many small ones, of
 * which V8's heap has 70 and 200. */
const RECORD_BYTES = 128, ARRAY_BYTES = 448;

/** The fewest steps from one snapshot to the next, however many bytes their micro-batches take. */
export const SNAPSHOT_STEPS = 10;

/** The steps since the oldest state from which all can be started again. */
interface KeptSteps {
  /** The most bytes that they may take. */
  limitBytes: number;
  /** The bytes that they take. */
  bytes: number;
  /** The steps in order, and where the pipe ran empty between them; none once they were too many. */
  steps: (StepRequest | "drained")[];
  /** How many came before them that are not kept any more. */
  dropped: number;
  /** Whether they were too many. */
  areLost: boolean;
}

/** No steps yet, and room for so many. */
function keepSteps(limitBytes: number): KeptSteps {
  return { limitBytes, bytes: 0, steps: [], dropped: 0, areLost: false };
}

/** How many there have been, all in all: where the next one will be. */
const stepsSoFar = ({ dropped, steps }: KeptSteps): number => dropped + steps.length;

/** Keeps one more, and tells whether they have become too many. */
function keepStep(kept: KeptSteps, request: StepRequest): boolean {
  kept.steps.push(request);
  kept.bytes += bytesOf(request);
  return kept.bytes > kept.limitBytes;
}

/** Keeps that the pipe has run empty: steps that are taken again with a full one have other bits. */
function keepDrained({ steps, areLost }: KeptSteps): void {
  if (!areLost && steps.length > 0) steps.push("drained");
}

/** Drops those before a place. */
function dropSteps(kept: KeptSteps, before: number): void {
  for (const step of kept.steps.splice(0, before - kept.dropped)) {
    if (step !== "drained") kept.bytes -= bytesOf(step);
    kept.dropped++;
  }
}

/** Bytes of a step beside the numbers in its fields. @param fields those of a micro-batch. */
export const overheadBytes = (microBatches: number, fields: number): number =>
  RECORD_BYTES + microBatches * (RECORD_BYTES + fields * ARRAY_BYTES);

function bytesOf({ microBatches }: StepRequest): number {
  // A field may be a text or a number, too.
  const sizes = microBatches.flatMap((fields) => Object.values<unknown>(fields))
    .map((value) => ArrayBuffer.isView(value) ? value.byteLength : 2 * String(value).length);
  const bytes = sizes.reduce((sum, one) => sum + one, ARRAY_BYTES * sizes.length);
  return bytes + overheadBytes(microBatches.length, 0);
}

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
      ? `go on with: ${commandLine("train", "--resume", checkpoint)}`
      : "no checkpoint has been written";
    super(`${message}; the program must end, as only a process can be ended: ${how}`);
  }
}

/** Failures older than the period are forgotten when the run has got on since. */
const LIMITS = { periodMs: 600_000, firstMs: 50, maxMs: 5000 } as const;

/** What decides. */
export interface RetryOptions {
  /** How often each worker may fail within ten minutes. */
  readonly retries: number;
  /** Whether a worker that does not answer can be ended: it has a process of its own. */
  readonly canKill: boolean;
  /** Milliseconds since any moment. Default: the platform's. */
  readonly now?: (() => number) | undefined;
}

/** Counts failures. */
interface Retries {
  /**
   * Counts one.
   *
   * @returns how long to wait before the next try, in milliseconds.
   * @throws {WorkerLostError} when there have been enough.
   */
  failed(error: WorkerLostError): number;
  /** The run has got on: something was done that had not been done before. */
  gotOn(): void;
}

/** Opens the count of a run. */
export function openRetries(
  { retries, canKill, now = () => performance.now() }: RetryOptions,
): Retries {
  const workers = new Map<string, Restarts>();
  let lastMessage: string | undefined;
  const countOf = (worker: string) => {
    const known = workers.get(worker);
    if (known) return known;
    const count = countRestarts({ intensity: retries, ...LIMITS });
    workers.set(worker, count);
    return count;
  };
  return {
    failed({ lost }) {
      const { worker, message, kind, isWedged } = lost, waitMs = countOf(worker).failed(now());
      // What a handler throws twice at the same action, it would throw a third time.
      const isSame = kind !== "exit" && message === lastMessage;
      lastMessage = message;
      if (isWedged && !canKill) throw new WorkerLostError(lost);
      // The others are ended like any that fails: another run can begin where this one was.
      const ended = { ...lost, isWedged: false };
      if (retries === 0 || isSame) throw new WorkerLostError(ended);
      if (waitMs !== undefined) return waitMs;
      throw new WorkerLostError({
        ...ended,
        message:
          `Cannot go on: ${worker} may fail ${retries} times in ten minutes, and failed again; ${message}`,
      });
    },
    gotOn() {
      for (const count of workers.values()) count.gotOn();
      lastMessage = undefined;
    },
  };
}

/** Unless asked otherwise, snapshots of larger states lie on disk. */
const MEMORY_BYTES = 2 ** 28;

/** What takes snapshots. */
export interface Snapshots {
  /** Steps from one to the next. */
  readonly everySteps: number;
  /** Whether the next may take the place of the last before it is whole. */
  readonly overwrites: boolean;
  /** Takes one. @param mayOverwrite whether the last is not needed any more. */
  take(state: HeldState, mayOverwrite: boolean): Promise<StateOf<TensorSource>>;
  /** Removes what is left of them. */
  close(): Promise<void>;
}

/**
 * Opens the snapshots of a run.
 *
 * @param asked where they are to lie. Default: in memory, but those that are large on disk, where the
 * program may write there.
 * @param directory where the user lets the run write; without it, a temporary folder is used.
 */
export function openSnapshots(
  asked: SnapshotPlace | undefined,
  directory: string | undefined,
  shapes: HeldState["shapes"],
): Snapshots {
  const place = snapshotPlace(asked, directory, bytesOfState(shapes));
  return place === "disk" ? onDisk(directory) : inMemory();
}

/** Where the snapshots of a run lie. @param bytes of one. */
export function snapshotPlace(
  asked: SnapshotPlace | undefined,
  directory: string | undefined,
  bytes: number,
): SnapshotPlace {
  return asked ?? (bytes > MEMORY_BYTES && mayWrite(directory) ? "disk" : "memory");
}

/** Steps from one snapshot to the next: in memory a tenth of a second of copying in a minute of training. */
export const SNAPSHOT_EVERY: Readonly<Record<SnapshotPlace, number>> = { memory: 10, disk: 100 };

/** Bytes of all weights and moments. */
export function bytesOfState(shapes: HeldState["shapes"]): number {
  const all = KINDS.flatMap((kind) => [...shapes[kind].values()]);
  return all.reduce((sum, shape) => sum + 4 * elementCount(shape), 0);
}

/** Without a directory of the user's, who can tell where temporary folders are must have all. */
function mayWrite(directory: string | undefined): boolean {
  const where = directory === undefined ? {} : { path: directory };
  return (["read", "write"] as const).every((name) =>
    Deno.permissions.querySync({ name, ...where }).state === "granted"
  );
}

function inMemory(): Snapshots {
  let last: StageState | undefined;
  return {
    everySteps: SNAPSHOT_EVERY.memory,
    overwrites: true,
    async take(state, mayOverwrite) {
      return last = await gatherState(state, mayOverwrite ? last : undefined);
    },
    close: () => Promise.resolve(),
  };
}

/** Nobody waits for the disk: what survives the workers, not the machine, need not be durable. */
function onDisk(directory: string | undefined): Snapshots {
  let root: string | undefined, last: string | undefined, count = 0;
  const makeRoot = async () => {
    if (directory === undefined) {
      const path = await Deno.makeTempDir({ prefix: "troupe-snapshots-" });
      lockFolder(path);
      return path;
    }
    const own = join(directory, ".snapshots");
    // What a run has left that was ended from outside.
    await removeFolder(own);
    await Deno.mkdir(own, { recursive: true });
    return own;
  };
  return {
    everySteps: SNAPSHOT_EVERY.disk,
    overwrites: false,
    async take(state) {
      root ??= await makeRoot();
      const folder = join(root, String(count++));
      const taken = await writeSnapshot(folder, state).catch(async (error) => {
        await removeFolder(folder);
        throw error;
      });
      if (last) await removeFolder(last);
      last = folder;
      return taken;
    },
    close: () => Promise.resolve(root === undefined ? undefined : closeRendezvousFolder(root)),
  };
}

async function writeSnapshot(folder: string, state: HeldState): Promise<StateOf<TensorSource>> {
  await Deno.mkdir(folder, { recursive: true }); // its parents may have been removed
  using files = newFiles(Deno, folder);
  const write = async (kind: FileKind) =>
    placedIn(folder, [await writeTensors(files, fileName(kind), state, kind)]);
  return { weights: await write("model"), moments: await write("optimizer") };
}

async function removeFolder(path: string): Promise<void> {
  await Deno.remove(path, { recursive: true }).catch((error) => {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  });
}

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
