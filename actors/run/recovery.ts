/**
 * Training that survives failed workers: all workers restart from the last snapshot, and the run
 * repeats the steps since then.
 *
 * [Note: why all workers restart] A worker that dies in the middle of a step takes the activations of
 * every micro-batch in flight with it, so no other worker can finish the step. All workers are closed,
 * opened again from weights that every worker had committed, and given the same micro-batches. Steps
 * are deterministic, so the run ends with the bits of a run without failures.
 *
 * [Note: snapshots] A copy of the weights after every step would cost as much as a checkpoint. A copy
 * every few steps costs little and bounds how many steps are repeated. Without flushes, weights belong
 * together only when the pipe is empty, and emptying it changes the bits of later steps. So there a
 * snapshot is taken only when the run empties the pipe anyway: before checkpoints and evaluations.
 *
 * [Note: no copy] The last whole checkpoint is also a snapshot; before the first one, the source of
 * the first weights is: the base. Where workers write checkpoints themselves, there are no other
 * snapshots, and no process gathers the weights.
 *
 * [Note: one snapshot] Memory has room for one snapshot: the next replaces it, tensor by tensor. If a
 * worker dies during that, the run restarts from the base. On disk, the next snapshot is written next to
 * the last one, which is then removed.
 *
 * @module
 */

import { delay } from "@std/async/delay";
import { join } from "node:path";
import type { StateOf } from "../../kernels/mod.ts";
import { elementCount, resultOr, type StageState } from "../../kernels/internal.ts";
import { fileName, ifMissing, KINDS } from "../checkpoints/format.ts";
import {
  type FileKind,
  gatherState,
  type HeldState,
  heldValues,
  type TensorSource,
} from "../checkpoints/tensors.ts";
import { newFiles, placedIn, writeTensors } from "../checkpoints/write.ts";
import { commandLine } from "../options/limits.ts";
import type { SnapshotPlace } from "../options/option.ts";
import type { Remains, WorkerLost } from "../pipeline/protocol.ts";
import type { StepOutcome, StepRequest } from "../pipeline/step.ts";
import { countRestarts, type Restarts } from "../runtime/failure.ts";
import { closeRendezvousFolder, lockTemporaryFolder } from "../transports/rendezvous.ts";
import type { Engine } from "./engine.ts";
import { type Hosts, type ResizeCause, TooFewWorkersError } from "./hosts.ts";
import { KEPT_BYTES, StepLog } from "./step_log.ts";

/** Minimum number of steps between two snapshots, for any size of their micro-batches. */
export const SNAPSHOT_STEPS = 10;

/** A worker failed, and its step with it. */
export class WorkerLostError extends Error {
  /** Identifies the error across copies of the class. */
  override readonly name = "WorkerLostError";

  /** @param lost the worker that failed first, and its failure. */
  constructor(readonly lost: WorkerLost) {
    super(lost.message);
  }
}

/** A worker does not answer and cannot be killed, because it is a thread of this program. */
export class WedgedError extends Error {
  /** Identifies the error across copies of the class. */
  override readonly name = "WedgedError";
  /** Exit code for the program: another attempt may succeed (EX_TEMPFAIL of sysexits.h). */
  readonly exitCode = 75;

  /**
   * Makes an error that says how to continue.
   *
   * @param message the waiting workers and the inputs they wait for.
   * @param checkpoint path of the last checkpoint.
   */
  constructor(message: string, checkpoint: string | null) {
    const how = checkpoint
      ? `continue with: ${commandLine("train", "--resume", checkpoint)}`
      : "no checkpoint has been written";
    super(`${message}; the program must end, because a thread cannot be killed: ${how}`);
  }
}

/** Failures older than the period are forgotten once the run has made progress. */
const LIMITS = { periodMs: 600_000, firstMs: 50, maxMs: 5000 } as const;

/** Limits of {@linkcode Retries}. */
export interface RetryOptions {
  /** Failures of a worker within ten minutes that the run survives. */
  readonly retries: number;
  /** True if a worker that does not answer can be killed: it has its own process. */
  readonly canKill: boolean;
  /** A clock in milliseconds. Default: the platform's. */
  readonly now?: (() => number) | undefined;
}

/** Counts the failures of the workers of a run. */
export class Retries {
  readonly #workers = new Map<string, Restarts>();
  #lastMessage: string | undefined;

  /** Starts to count. */
  constructor(private readonly options: RetryOptions) {}

  /**
   * Counts a failure.
   *
   * @returns the delay before the next attempt, in milliseconds.
   * @throws {WorkerLostError} after too many failures.
   */
  failed({ lost }: WorkerLostError): number {
    const { retries, canKill, now = () => performance.now() } = this.options;
    const { worker, message, kind, isWedged } = lost;
    const count = () => countRestarts({ intensity: retries, ...LIMITS });
    const waitMs = this.#workers.getOrInsertComputed(worker, count).failed(now());
    // A handler that throws twice at the same action would throw again.
    const isSame = kind !== "exit" && message === this.#lastMessage;
    this.#lastMessage = message;
    if (isWedged && !canKill) throw new WorkerLostError(lost);
    // The worker will be killed, so another run can start in this program.
    const ended = { ...lost, isWedged: false };
    if (retries === 0 || isSame) throw new WorkerLostError(ended);
    if (waitMs !== undefined) return waitMs;
    const must = `${worker} may fail at most ${retries} times in ten minutes, and failed again`;
    throw new WorkerLostError({ ...ended, message: `Cannot continue: ${must}; ${message}` });
  }

  /** Notes progress: work that is not a repetition. */
  gotOn(): void {
    for (const count of this.#workers.values()) count.gotOn();
    this.#lastMessage = undefined;
  }
}

/** By default, snapshots of larger states are on disk. */
const MEMORY_BYTES = 2 ** 28;

/**
 * Opens the snapshots of a run on disk; undefined if they are in memory.
 *
 * @param asked their place. Default: memory, but disk for a large state if the program may write there.
 * @param directory the folder of checkpoints; without it, a temporary folder is used.
 */
export function openSnapshots(
  asked: SnapshotPlace | undefined,
  directory: string | undefined,
  shapes: HeldState["shapes"],
): DiskSnapshots | undefined {
  const place = snapshotPlace(asked, directory, bytesOfState(shapes));
  return place === "disk" ? new DiskSnapshots(directory) : undefined;
}

/**
 * Returns the place of the snapshots of a run.
 *
 * @param bytes size of a snapshot.
 */
export function snapshotPlace(
  asked: SnapshotPlace | undefined,
  directory: string | undefined,
  bytes: number,
): SnapshotPlace {
  return asked ?? (bytes > MEMORY_BYTES && mayWrite(directory) ? "disk" : "memory");
}

/** Steps between two snapshots: in memory, a tenth of a second of copying in a minute of training. */
export const SNAPSHOT_EVERY: Readonly<Record<SnapshotPlace, number>> = { memory: 10, disk: 100 };

/** Returns the bytes of all weights and moments. */
export function bytesOfState(shapes: HeldState["shapes"]): number {
  const all = KINDS.flatMap((kind) => [...shapes[kind].values()]);
  return all.reduce((sum, shape) => sum + 4 * elementCount(shape), 0);
}

/** Without a directory, the path of the temporary folder is unknown, so all paths must be permitted. */
function mayWrite(directory: string | undefined): boolean {
  const where = directory === undefined ? {} : { path: directory };
  return (["read", "write"] as const).every((name) =>
    Deno.permissions.querySync({ name, ...where }).state === "granted"
  );
}

/** Keeps one snapshot in a folder. It survives the workers, not the machine, so it is not synced. */
class DiskSnapshots {
  #root: string | undefined;
  #last: string | undefined;
  #count = 0;

  /** Prepares snapshots in a directory; its folder is made with the first one. */
  constructor(private readonly directory: string | undefined) {}

  /** Writes a snapshot, then removes the last one. */
  async take(state: HeldState): Promise<StateOf<TensorSource>> {
    this.#root ??= await this.#makeRoot();
    const folder = join(this.#root, String(this.#count++));
    const taken = await writeSnapshot(folder, state).catch(async (error) => {
      await removeFolder(folder);
      throw error;
    });
    if (this.#last) await removeFolder(this.#last);
    this.#last = folder;
    return taken;
  }

  /** Removes the folder. */
  close(): void {
    if (this.#root !== undefined) closeRendezvousFolder(this.#root);
  }

  async #makeRoot(): Promise<string> {
    if (this.directory === undefined) {
      const path = await Deno.makeTempDir({ prefix: "troupe-snapshots-" });
      lockTemporaryFolder(path);
      return path;
    }
    const own = join(this.directory, ".snapshots");
    // A killed run may have left its folder.
    await removeFolder(own);
    await Deno.mkdir(own, { recursive: true });
    return own;
  }
}

async function writeSnapshot(folder: string, state: HeldState): Promise<StateOf<TensorSource>> {
  await Deno.mkdir(folder, { recursive: true }); // its parents may have been removed
  using files = newFiles(Deno, folder);
  const write = async (kind: FileKind) =>
    placedIn(folder, [await writeTensors(files, fileName(kind), state, kind)]);
  return { weights: await write("model"), moments: await write("optimizer") };
}

const removeFolder = (path: string): Promise<void> =>
  Deno.remove(path, { recursive: true }).catch(ifMissing(undefined));

/** Returns whether all files of a state can be found: a user may have removed a checkpoint. */
function areFilesThere({ weights, moments }: StateOf<TensorSource>): boolean {
  const paths = new Set<string>();
  for (const source of [...weights.values(), ...moments.values()]) {
    if (!(source instanceof Float32Array) && source.kind === "placed") paths.add(source.path);
  }
  return resultOr(() => [...paths].every((path) => Deno.lstatSync(path)), false);
}

const TOO_MANY =
  "Cannot repeat the steps since the last checkpoint or evaluation: their micro-batches must take less memory";

/** Options of {@linkcode Recovery}. */
export interface RecoveryOptions extends RetryOptions {
  /** Weights and moments before the first step, or their sources. */
  readonly state: StateOf<TensorSource>;
  /** Shapes of all weights and moments. */
  readonly shapes: HeldState["shapes"];
  /** Takes snapshots. */
  readonly snapshots: DiskSnapshots | undefined;
  /** True if workers write checkpoints, which are then the only snapshots. */
  readonly isSharded?: boolean | undefined;
  /** Receives a line when the run continues after a failure. */
  readonly announce: (line: string) => void;
  /** Gets each failure after which the run continues. */
  readonly onLost?: ((lost: WorkerLost) => void) | undefined;
  /** Moves the run if survivors hold all stages. Default: all workers restart. */
  readonly hosts?: Hosts | undefined;
}

/** Records where a state was saved; from then on the workers can restart from it. */
type Kept = (state: StateOf<TensorSource>) => void;

/** An engine that restarts its workers when one of them fails. */
export class Recovery implements Pick<Engine, "ahead" | "drain" | "step" | "evaluate" | "close"> {
  readonly #retries: Retries;
  /** Counts the failures of lost workers that are replaced while the others keep the state. */
  readonly #replacements: Retries;
  /** Aborted by `close`, which ends the delay before an attempt. */
  readonly #closing = new AbortController();
  /** The oldest state to restart from; undefined if steps since then were dropped. */
  #base: StateOf<TensorSource> | undefined;
  /** A newer state, and the position of the step after it. */
  #snapshot: { readonly state: StateOf<TensorSource>; readonly at: number } | undefined;
  /** The last snapshot in memory, which the next one overwrites. */
  #memory: StageState | undefined;
  /** The current state, if it was gathered and no step has been taken since. */
  #newest: StageState | undefined;
  readonly #log = new StepLog();
  /** Settles when the last step has ended and is logged. */
  #logged: Promise<unknown> = Promise.resolve();
  /** The engine, which may be starting. */
  #current: Promise<Engine>;
  /** The engine that must be closed. */
  #opened: Engine | undefined;
  /** Steps that should begin before the oldest one has ended. */
  ahead = 0;
  /** The most workers: an excluded one does not come back. */
  #mostWorkers = Infinity;

  private constructor(
    private readonly open: (state: StateOf<TensorSource>) => Promise<Engine>,
    private readonly options: RecoveryOptions,
  ) {
    this.#retries = new Retries(options);
    this.#replacements = new Retries(options);
    this.#base = options.state;
    this.#current = this.#start();
  }

  /**
   * Opens an engine, and restarts its workers if one of them fails meanwhile.
   *
   * @param open starts all workers from a state.
   * @throws {WorkerLostError} (as all methods) when a worker has failed too often, or twice at the
   * same action.
   */
  static async open(
    open: (state: StateOf<TensorSource>) => Promise<Engine>,
    options: RecoveryOptions,
  ): Promise<Recovery> {
    const recovery = new Recovery(open, options);
    ({ ahead: recovery.ahead } = await recovery.#outlive((engine) => engine));
    if (recovery.ahead > 0 && !options.isSharded) {
      recovery.#log.limitBytes = Math.max(KEPT_BYTES, bytesOfState(options.shapes));
    }
    return recovery;
  }

  /** Trains on the micro-batches of one step, and logs them until the next snapshot. */
  step(request: StepRequest): Promise<StepOutcome> {
    const taking = this.#take(request);
    this.#logged = taking.catch(() => {});
    return taking;
  }

  async #take(request: StepRequest): Promise<StepOutcome> {
    if (this.options.hosts?.available) await this.#grow(this.options.hosts);
    const outcome = await this.#getOn((engine) => engine.step(request), true), log = this.#log;
    this.#newest = undefined;
    if (this.options.retries === 0) return outcome;
    log.add(request);
    if (log.isFull && this.#snapshot) {
      this.#base = undefined;
      log.dropBefore(this.#snapshot.at);
    }
    // Steps between two snapshots are kept in any case.
    if (this.ahead === 0 && !this.options.isSharded) {
      if (this.#isSnapshotDue()) await this.#takeSnapshot();
    } else if (log.isFull) this.#dropSteps();
    return outcome;
  }

  /** Returns the losses of micro-batches, without training on them. */
  evaluate(microBatches: StepRequest["microBatches"]): Promise<readonly Float32Array[]> {
    return this.#getOn((engine) => engine.evaluate(microBatches));
  }

  /** Lets the steps that have begun end; without flushes, takes a snapshot. */
  async drain(): Promise<void> {
    await this.#outlive((engine) => engine.drain());
    // The answers to the last step and to the drain may come together.
    await this.#logged;
    if (this.ahead === 0) return;
    this.#log.addDrain();
    if (!this.options.isSharded && this.options.retries > 0) await this.#takeSnapshot();
  }

  /**
   * Reads the current weights and moments; if a worker fails meanwhile, starts again.
   *
   * @param use reads them, and may call `kept` then or later when they are saved.
   */
  read<T>(use: (state: HeldState, kept: Kept) => Promise<T>): Promise<T> {
    return this.#whenDrained(async (engine) => {
      const at = this.#log.end, state = engine.held ?? await this.#gather(engine);
      return await use(state, (kept) => this.#rebase(kept, at));
    });
  }

  /**
   * Makes the workers write their weights and moments, and repeats that if one of them fails. Later
   * restarts use these files.
   *
   * @param write Makes a checkpoint with {@linkcode Engine.write}.
   */
  async checkpoint<T extends StateOf<TensorSource>>(
    write: (engine: Engine) => Promise<T>,
  ): Promise<T> {
    const written = await this.#whenDrained(write);
    this.#rebase(written, this.#log.end);
    return written;
  }

  /** Closes the engine, even while it starts. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.#current.catch(() => {});
    await this.#closeOpened();
    this.options.snapshots?.close();
  }

  async #closeOpened(isMoving = false): Promise<void> {
    const opened = this.#opened;
    this.#opened = undefined;
    await opened?.close(isMoving);
  }

  /** Starts all workers and repeats the logged steps. */
  async #start(): Promise<Engine> {
    const { state, at } = this.#snapshot ?? { state: this.#base!, at: this.#log.start };
    const steps = this.#log.since(at), engine = this.#opened = await this.open(state);
    await this.#log.repeat(engine, at, steps).catch((error) => {
      // Survivors of a loss do not have the steps that are not repeated yet.
      throw error instanceof WorkerLostError
        ? new WorkerLostError({ ...error.lost, remains: undefined })
        : error;
    });
    return engine;
  }

  async #restart(waitMs: number): Promise<Engine> {
    await this.#closeOpened();
    await delay(waitMs, { signal: this.#closing.signal });
    return await this.#start();
  }

  /** Restarts all workers, if they may fail once more. */
  #recover(error: unknown): void {
    if (!(error instanceof WorkerLostError)) throw error;
    const { hosts } = this.options, { lost } = error;
    if (hosts && lost.remains) return this.#shrink(hosts, error, lost.remains);
    const waitMs = this.#retries.failed(error);
    if (this.#log.areLost) {
      throw new WorkerLostError({ ...error.lost, message: `${TOO_MANY}; ${error.message}` });
    }
    this.options.announce(`${error.message}; the run continues from the last committed step`);
    this.options.onLost?.(error.lost);
    this.#current = this.#restart(waitMs);
    // The error is reported when the engine is awaited.
    this.#current.catch(() => {});
  }

  /** Moves the run to the remaining workers and to replacements of lost ones. */
  #shrink(hosts: Hosts, error: WorkerLostError, remains: Remains): void {
    const { lost } = error, workers = this.#workersAfter(hosts, error, remains.workers);
    const { minWorkers } = hosts.options;
    if (workers < minWorkers) {
      // The committed step is returned; the next call fails with the same loss.
      if (remains.committed) return;
      throw new TooFewWorkersError(lost, minWorkers);
    }
    const why = { cause: "lost", actor: lost.worker, message: lost.message } as const;
    this.#move(hosts, workers, why, lost.isInStep && !remains.committed ? 1 : 0);
  }

  /**
   * Returns the number of workers after a loss, and begins to start replacements. A worker that can
   * restart may fail `retries` times.
   */
  #workersAfter(hosts: Hosts, error: WorkerLostError, remaining: number): number {
    if (error.lost.isExcluded) return this.#mostWorkers = remaining;
    if (hosts.available) return Math.max(remaining, Math.min(hosts.available(), this.#mostWorkers));
    return resultOr(() => {
      this.#replacements.failed(error);
      // It throws if no process can be started.
      hosts.options.prepare?.(hosts.workers);
      return hosts.workers;
    }, remaining);
  }

  /** Moves the run to more workers if others have joined. */
  async #grow(hosts: Hosts): Promise<void> {
    await this.#outlive(() => {});
    const workers = Math.min(hosts.available!(), this.#mostWorkers);
    if (!hosts.isFasterOn(workers)) return;
    this.#move(hosts, workers, { cause: "joined", message: "workers have joined" }, 0);
  }

  /** Moves the run. The state stays in memory until the new workers are ready, even if some are lost. */
  #move(
    hosts: Hosts,
    workers: number,
    { message, ...cause }: ResizeCause & { readonly message: string },
    retaken: number,
  ): void {
    const began = performance.now(), from = hosts.workers, { held } = this.#opened!;
    const move = async () => {
      await this.#opened!.compare?.();
      const state = await gatherState(held!);
      await this.#closeOpened(true);
      return await this.#openOn(hosts, workers, state);
    };
    this.options.announce(`${message}; the run continues on ${workers} workers`);
    this.#current = move();
    this.#current.then(() =>
      hosts.options.onResize(cause, {
        from,
        to: hosts.layout(),
        movedBytes: bytesOfState(this.options.shapes),
        retaken,
        seconds: (performance.now() - began) / 1000,
      }), () => {});
  }

  /** Opens an engine on workers, and on others if one of them is lost at the start. */
  async #openOn(hosts: Hosts, workers: number, state: StateOf<TensorSource>): Promise<Engine> {
    try {
      return this.#opened = await hosts.open(workers, state);
    } catch (error) {
      if (!(error instanceof WorkerLostError) || this.#closing.signal.aborted) throw error;
      const { lost: { kind, isWedged } } = error, fewer = workers - 1;
      const others = hosts.available ? fewer : this.#workersAfter(hosts, error, fewer);
      if (kind !== "exit" || isWedged || others < Math.max(1, hosts.options.minWorkers)) {
        throw error;
      }
      return await this.#openOn(hosts, others, state);
    }
  }

  /**
   * Runs a function of the engine until no worker fails during it.
   *
   * @param isStep Whether it is a step, which survivors may have committed.
   */
  async #outlive<T>(run: (engine: Engine) => T | Promise<T>, isStep = false): Promise<T> {
    for (;;) {
      const tried = this.#current;
      try {
        return await run(await tried);
      } catch (error) {
        // If several calls fail together, only the first one restarts the workers; all are repeated.
        if (tried === this.#current) this.#recover(error);
        const remains = error instanceof WorkerLostError ? error.lost.remains : undefined;
        if (isStep && this.options.hosts && remains?.committed) return remains.committed as T;
      }
    }
  }

  /** Runs a call as `#outlive`, and notes the progress. */
  async #getOn<T>(run: (engine: Engine) => Promise<T>, isStep = false): Promise<T> {
    const result = await this.#outlive(run, isStep);
    this.#retries.gotOn();
    this.#replacements.gotOn();
    return result;
  }

  /** Runs a call that needs an empty pipeline, which repeated steps may have filled. */
  #whenDrained<T>(run: (engine: Engine) => Promise<T>): Promise<T> {
    return this.#getOn(async (engine) => {
      await engine.drain();
      // Only a verified state is kept.
      await engine.compare?.();
      return await run(engine);
    });
  }

  /** Drops the logged steps, which take too many bytes. */
  #dropSteps(): void {
    this.#log.dropBefore(this.#log.end);
    this.#log.areLost = true;
    this.#base = this.#snapshot = undefined;
    this.options.announce(`${TOO_MANY}: until the next one, a failed worker ends the run`);
  }

  #isSnapshotDue(): boolean {
    if (!this.#snapshot && !this.#isBaseThere()) return true;
    const steps = this.#log.end - (this.#snapshot?.at ?? this.#log.start);
    const isMuch = this.#log.isFull && this.#snapshot === undefined;
    return steps >=
      (isMuch ? SNAPSHOT_STEPS : SNAPSHOT_EVERY[this.options.snapshots ? "disk" : "memory"]);
  }

  async #takeSnapshot(): Promise<void> {
    const { snapshots } = this.options;
    await this.#whenDrained(async (engine) => {
      const at = this.#log.end;
      if (!engine.held) return void await this.#gather(engine);
      if (snapshots) return this.#rebase(await snapshots.take(engine.held), at);
      const mayOverwrite = this.#isBaseThere();
      // A partly overwritten snapshot cannot be used for a restart.
      if (mayOverwrite) this.#snapshot = undefined;
      const state = await gatherState(engine.held, mayOverwrite ? this.#memory : undefined);
      this.#memory = state;
      this.#snapshot = { state, at };
      if (!mayOverwrite) this.#base = undefined;
      this.#log.areLost = false;
      if (this.#base === undefined) this.#log.dropBefore(at);
    });
  }

  /** Returns whether the workers can restart from the base. */
  #isBaseThere(): boolean {
    return this.#base !== undefined && areFilesThere(this.#base);
  }

  /** Gathers the current state in memory, which makes it a snapshot without further cost. */
  async #gather(engine: Engine): Promise<HeldState> {
    this.#newest ??= await engine.save();
    this.#rebase(this.#newest, this.#log.end);
    const { model, optimizer } = this.options.shapes;
    return heldValues(this.#newest, new Map([...model, ...optimizer]));
  }

  /** Makes a state the base of later restarts. @param at position of the step after it. */
  #rebase(state: StateOf<TensorSource>, at: number): void {
    const log = this.#log;
    // The state is useless without the steps between it and the log.
    if (this.options.retries === 0 || at < log.start) return;
    this.#base = state;
    log.dropBefore(at);
    log.areLost = false;
    if (this.#snapshot && this.#snapshot.at < at) this.#snapshot = undefined;
  }
}
