/**
 * Writes checkpoints, one at a time: weights and moments are read before the next step begins, and
 * made durable while it runs.
 *
 * @module
 */

import { elementCount, type StateOf } from "../../kernels/internal.ts";
import { type Disk, removeOld, removeUnfinished } from "../checkpoints/format.ts";
import {
  type Finished,
  hashConfig,
  readBest,
  removeFinished,
  writeBest,
  writeFinished,
} from "../checkpoints/markers.ts";
import { writeShards, type WrittenShard } from "../checkpoints/read.ts";
import type { HeldState, PlacedTensor } from "../checkpoints/tensors.ts";
import { writeHeld, type WrittenCheckpoint } from "../checkpoints/write.ts";
import { assertFinite } from "../gradients/commit.ts";
import type { TrainOptions } from "../options/train_options.ts";
import { launchName } from "../transports/mpi/launch_watch.ts";
import type { Best, TrainEvent } from "./events.ts";

/** What a checkpoint holds, as a step left it. */
interface Snapshot {
  readonly step: number;
  /** Weights and moments, which stay as they are until all of them have been read. */
  readonly state: HeldState;
  readonly config: Readonly<Record<string, unknown>>;
  /** The best evaluation so far, where its checkpoint is to be kept. */
  readonly best?: Pick<Best, "step" | "loss"> | undefined;
}

/** Writes snapshots. */
export interface CheckpointWriter {
  /**
   * Begins to write, and waits until all has been read. The write before must have been waited for.
   *
   * @param whole told where the tensors lie when the checkpoint is whole.
   * @throws what keeps it from being read; {@linkcode NonFiniteError} when it has numbers that are not
   * finite; {@linkcode Error} when the disk fails before the end of it.
   */
  begin(snapshot: Snapshot, whole?: (state: StateOf<PlacedTensor>) => void): Promise<void>;
  /**
   * Waits for the write under way; returns its event, if there was a write whose folder was not
   * removed meanwhile.
   *
   * @throws {Error} saying what kept the checkpoint from being written.
   */
  ended(): Promise<TrainEvent[]>;
  /** The same for a write that has ended by itself; nothing while it goes on. */
  soFar(): Promise<TrainEvent[]>;
  /**
   * Writes a checkpoint of shards to its end: the event is that of a write that has ended.
   *
   * @param write has the workers write their shards into a folder.
   * @throws what `write` throws; {@linkcode Error} saying what else is in the way.
   */
  shards(
    snapshot: Omit<Snapshot, "state">,
    write: (folder: string) => Promise<readonly WrittenShard[]>,
  ): Promise<StateOf<PlacedTensor>>;
  /** The newest checkpoint that is whole. */
  readonly newest?: WrittenCheckpoint;
  /** The folder of the best, when a checkpoint is whole and it is there. */
  readonly best?: string | undefined;
}

/**
 * Makes a writer.
 *
 * @param to where checkpoints go.
 * @param announce told in words which old checkpoints could not be removed.
 * @param disk where files are.
 */
export function openCheckpointWriter(
  to: Pick<NonNullable<TrainOptions["checkpoint"]>, "directory" | "keep">,
  announce: (line: string) => void,
  disk: Disk = Deno,
): CheckpointWriter {
  const { directory, keep } = to;
  let writing: Promise<TrainEvent[]> | undefined, isOver = false, isRemoved = false;
  const last: { newest?: WrittenCheckpoint; best?: string | undefined } = {};

  /** Writes the folder of a step, and removes what crashes have left before, and what is old after. */
  const replaceOld = async (
    { step, best }: Pick<Snapshot, "step" | "best">,
    write: () => Promise<WrittenCheckpoint>,
  ): Promise<TrainEvent[]> => {
    // What cannot be removed is no reason to end: should the disk be full, writing will tell.
    const tell = ({ message }: Error) =>
      announce(`Cannot remove old checkpoints from ${directory}: ${message}; training goes on`);
    await removeUnfinished(directory, disk).catch(tell);
    const { path } = last.newest = await write();
    isRemoved = false;
    // The best of before stays until another is said to be it.
    if (best) last.best = await writeBest(directory, best, disk);
    const kept = await readBest(directory, disk);
    await removeOld(directory, step, keep, disk, kept?.step).catch(tell);
    const isBest = best?.step === step && { isBest: true } as const;
    return [{ type: "checkpoint", step, path, ...isBest }];
  };
  const ended = async () => {
    const events = await writing ?? [];
    writing = undefined;
    return events;
  };
  return Object.assign<object, CheckpointWriter>(last, {
    async begin({ step, state, config, best }, whole = () => {}) {
      isOver = false;
      const { counted, isRead } = countReads(finiteOnly(state, step));
      writing = replaceOld({ step, best }, async () => {
        const written = await writeHeld(directory, { step, state: counted, config }, disk);
        whole(written.state);
        return written;
      }).catch((error) => {
        // Of two in succession something else is in the way.
        if (isRemoved || !(error.cause instanceof Deno.errors.NotFound)) throw error;
        isRemoved = true;
        announce(`${error.message}; it was removed meanwhile, and training goes on without it`);
        return [];
      }).finally(() => isOver = true);
      try {
        // A write that is over has read all, or has failed.
        await Promise.race([isRead, writing]);
      } catch (error) {
        writing = undefined;
        throw error;
      }
      // A failure is met when the event is asked for.
      writing.catch(() => {});
    },
    async shards({ step, config, best }, write) {
      const events = await replaceOld(
        { step, best },
        () => writeShards(directory, { step, config }, write),
      );
      writing = Promise.resolve(events);
      isOver = true;
      return last.newest!.state;
    },
    ended,
    soFar: async () => isOver ? await ended() : [],
  });
}

/** A state which may be kept: numbers that are not finite are refused when they are read. */
export function finiteOnly(state: HeldState, step: number): HeldState {
  return {
    ...state,
    async read(parts) {
      const values = await state.read(parts);
      assertFinite(parts, values, step);
      return values;
    },
  };
}

/** A state, and when all of it has been read once. */
function countReads(state: HeldState): { counted: HeldState; isRead: Promise<void> } {
  const shapes = [...state.shapes.model.values(), ...state.shapes.optimizer.values()];
  let left = shapes.reduce((sum, shape) => sum + elementCount(shape), 0);
  const { promise, resolve } = Promise.withResolvers<void>();
  const counted: HeldState = {
    ...state,
    async read(parts) {
      const values = await state.read(parts);
      left -= values.length;
      if (left === 0) resolve();
      return values;
    },
  };
  return { counted, isRead: promise };
}

/** The mark of one run. */
export interface FinishMark {
  /** The run begins. */
  begin(): Promise<void>;
  /** Notes an event of it. */
  see(event: TrainEvent): void;
  /** Sets the mark if the run has come to its end. */
  end(): Promise<void>;
}

/** The mark of a run; undefined where nothing can be left in a folder of its own. */
export function finishMark(
  { checkpoint }: Pick<TrainOptions, "checkpoint">,
): FinishMark | undefined {
  if (!checkpoint) return undefined;
  const { directory, config = {} } = checkpoint;
  let loss: number | undefined, finished: Finished | undefined;
  return {
    begin: () => removeFinished(directory),
    see(event) {
      if (event.type === "step") loss = event.loss;
      if (event.type !== "end" || event.isInterrupted) return;
      const { steps: step, weightsHash } = event;
      finished = { step, loss, weightsHash, configHash: hashConfig(config), launch: launchName() };
    },
    async end() {
      if (finished) await writeFinished(directory, finished);
    },
  };
}
