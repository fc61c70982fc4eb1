/**
 * Writes checkpoints, one at a time: weights and moments are read before the next step begins, and
 * made durable while it runs.
 *
 * @module
 */

import { createHash } from "node:crypto";
import type { Best, TrainEvent } from "../options/train_events.ts";
import type { StateOf } from "../../kernels/mod.ts";
import { elementCount } from "../../kernels/internal.ts";
import { bytesOf, type Disk, removeOld, removeUnfinished } from "../checkpoints/format.ts";
import {
  type Finished,
  hashConfig,
  readBest,
  removeFinished,
  writeBest,
  writeFinished,
} from "../checkpoints/markers.ts";
import { writeShards, type WrittenShard } from "../checkpoints/read.ts";
import {
  type HeldState,
  type PlacedTensor,
  readPieces,
  watchReads,
} from "../checkpoints/tensors.ts";
import { type Snapshot, writeHeld, type WrittenCheckpoint } from "../checkpoints/write.ts";
import type { RunOptions } from "../options/train_options.ts";
import { finiteOnly } from "../pipeline/worker.ts";
import { launchName } from "../transports/mpi/launch_watch.ts";

/** Contents of a checkpoint, and the best evaluation if its checkpoint is kept. */
type SnapshotAndBest = Snapshot & { readonly best?: Pick<Best, "step" | "loss"> | undefined };

/** Writes the checkpoints of a run. */
export class CheckpointWriter {
  #writing: Promise<TrainEvent[]> | undefined;
  #isOver = false;
  #isRemoved = false;
  /** The newest whole checkpoint. */
  newest: WrittenCheckpoint | undefined;
  /** Folder of the best checkpoint, if this writer has written one and it exists. */
  best: string | undefined;

  /**
   * Prepares to write.
   *
   * @param announce reports old checkpoints that cannot be removed.
   */
  constructor(
    private readonly folder: Pick<NonNullable<RunOptions["checkpoint"]>, "directory" | "keep">,
    private readonly announce: (line: string) => void,
    private readonly disk: Disk = Deno,
  ) {}

  /**
   * Begins a write, and returns when all tensors have been read. The last write must have ended.
   *
   * @param whole gets the places of the tensors when the checkpoint is whole.
   * @throws {NonFiniteError} when a number is not finite.
   * @throws {Error} when a tensor cannot be read, or the disk fails before all have been read.
   */
  async begin(
    { step, state, config, best }: SnapshotAndBest,
    whole: (state: StateOf<PlacedTensor>) => void = () => {},
  ): Promise<void> {
    this.#isOver = false;
    const { counted, isRead } = countReads(finiteOnly(state, step));
    const writing = this.#replaceOld({ step, best }, async () => {
      const snapshot = { step, state: counted, config };
      const written = await writeHeld(this.folder.directory, snapshot, this.disk);
      whole(written.state);
      return written;
    }).catch((error) => {
      // A second removal in succession is an error.
      if (this.#isRemoved || !(error.cause instanceof Deno.errors.NotFound)) throw error;
      this.#isRemoved = true;
      this.announce(
        `${error.message}; it was removed meanwhile, and training continues without it`,
      );
      return [];
    }).finally(() => this.#isOver = true);
    this.#writing = writing;
    try {
      // A write that has settled has read all tensors, or has failed.
      await Promise.race([isRead, writing]);
    } catch (error) {
      this.#writing = undefined;
      throw error;
    }
    // A failure is thrown by `ended`.
    writing.catch(() => {});
  }

  /**
   * Writes a checkpoint of shards to its end; `ended` then returns its event.
   *
   * @param write lets the workers write their shards into a folder.
   * @throws {Error} when a shard or the checkpoint cannot be written.
   */
  async shards(
    { step, config, best }: Omit<SnapshotAndBest, "state">,
    write: (folder: string) => Promise<readonly WrittenShard[]>,
  ): Promise<StateOf<PlacedTensor>> {
    const writeAll = () => writeShards(this.folder.directory, { step, config }, write);
    const events = await this.#replaceOld({ step, best }, writeAll);
    this.#writing = Promise.resolve(events);
    this.#isOver = true;
    return this.newest!.state;
  }

  /**
   * Waits for the current write; returns its event, unless there was no write or its folder was
   * removed meanwhile.
   *
   * @throws {Error} when the checkpoint cannot be written.
   */
  async ended(): Promise<TrainEvent[]> {
    const events = await this.#writing ?? [];
    this.#writing = undefined;
    return events;
  }

  /** Returns the event of a write that is over, as `ended`; nothing during a write. */
  async soFar(): Promise<TrainEvent[]> {
    return this.#isOver ? await this.ended() : [];
  }

  /** Writes the folder of a step. Removes unfinished folders before, and old ones after. */
  async #replaceOld(
    { step, best }: Pick<SnapshotAndBest, "step" | "best">,
    write: () => Promise<WrittenCheckpoint>,
  ): Promise<TrainEvent[]> {
    const { folder: { directory, keep }, disk } = this;
    // This does not end the run: if the disk is full, the write fails.
    const report = ({ message }: Error) =>
      this.announce(
        `Cannot remove old checkpoints from ${directory}: ${message}; training continues`,
      );
    await removeUnfinished(directory, disk).catch(report);
    const { path } = this.newest = await write();
    this.#isRemoved = false;
    // The last best checkpoint is kept until `best.json` names another.
    if (best) this.best = await writeBest(directory, best, disk);
    const kept = await readBest(directory, disk);
    await removeOld(directory, step, keep, disk, kept?.step).catch(report);
    const isBest = best?.step === step && { isBest: true } as const;
    return [{ type: "checkpoint", step, path, ...isBest }];
  }
}

/**
 * Reads moments, and weights with their hash.
 *
 * @param names of the tensors to read, in order.
 * @param keptAs returns the name of a weight in the result; undefined to leave it out.
 */
export async function readHashed(
  state: HeldState,
  names: { readonly moments: readonly string[]; readonly weights: readonly string[] },
  keptAs: (name: string) => string | undefined,
): Promise<{ readonly hash: string; readonly weights: Map<string, Float32Array> }> {
  const weights = new Map<string, Float32Array>(), hash = createHash("sha256");
  for await (const _ of readPieces(state, "optimizer", names.moments));
  for await (const { name, values, from } of readPieces(state, "model", names.weights)) {
    const kept = keptAs(name), length = elementCount(state.shapes.model.get(name)!);
    hash.update(bytesOf(values));
    if (kept === undefined) continue;
    weights.getOrInsertComputed(kept, () => new Float32Array(length)).set(values, from);
  }
  return { hash: hash.digest("hex"), weights };
}

/** Returns a state, and a promise that resolves when all of it has been read once. */
function countReads(state: HeldState): { counted: HeldState; isRead: Promise<void> } {
  const shapes = [...state.shapes.model.values(), ...state.shapes.optimizer.values()];
  let left = shapes.reduce((sum, shape) => sum + elementCount(shape), 0);
  const { promise, resolve } = Promise.withResolvers<void>();
  const counted = watchReads(state, ({ length }) => {
    left -= length;
    if (left === 0) resolve();
  });
  return { counted, isRead: promise };
}

/** Marks the folder of checkpoints as finished when its run has ended. */
export class FinishedMarker {
  #loss: number | undefined;
  #finished: Finished | undefined;

  /** Prepares the mark of a run. */
  constructor(private readonly checkpoint: NonNullable<RunOptions["checkpoint"]>) {}

  /** Removes the mark of an earlier run. */
  begin(): Promise<void> {
    return removeFinished(this.checkpoint.directory);
  }

  /** Notes an event of the run. */
  see(event: TrainEvent): void {
    if (event.type === "step") this.#loss = event.loss;
    if (event.type !== "end" || event.isInterrupted) return;
    const { steps: step, weightsHash } = event,
      configHash = hashConfig(this.checkpoint.config ?? {});
    this.#finished = { step, loss: this.#loss, weightsHash, configHash, launch: launchName() };
  }

  /** Writes the mark if the run has reached its end. */
  async end(): Promise<void> {
    if (this.#finished) await writeFinished(this.checkpoint.directory, this.#finished);
  }
}
