/**
 * Writes checkpoints while the next steps run, one at a time.
 *
 * @module
 */

import type { ModelParameter, StageState, StateOf } from "../../kernels/mod.ts";
import { writeShards, type WrittenShard } from "../checkpoints/shards.ts";
import type { PlacedTensor } from "../checkpoints/tensors/tensor_source.ts";
import { writeCheckpoint } from "../checkpoints/write_checkpoint.ts";
import { removeOld, removeUnfinished } from "../checkpoints/checkpoint_folders.ts";
import type { Disk } from "../checkpoints/disk.ts";
import { assertFinite } from "../commit/non_finite.ts";
import type { TrainEvent } from "./train_event.ts";
import type { TrainOptions } from "./options/train_options.ts";

/** What a checkpoint holds, as a step left it; nobody may change it any more. */
export interface Snapshot {
  readonly step: number;
  readonly state: StageState;
  readonly config: Readonly<Record<string, unknown>>;
}

/** Writes snapshots in the background. */
export interface CheckpointWriter {
  /** Begins to write. The write before must have been waited for. */
  begin(snapshot: Snapshot): void;
  /**
   * Waits for the write under way; returns its event, if there was a write.
   *
   * @throws {NonFiniteError} when the snapshot has numbers that are not finite.
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
  /** The folder of the newest checkpoint that is whole. */
  readonly newest: string | null;
}

/**
 * Makes a writer.
 *
 * @param to where checkpoints go; without it, snapshots are only checked.
 * @param announce told in words which old checkpoints could not be removed.
 * @param disk where files are.
 */
export function openCheckpointWriter(
  to: TrainOptions["checkpoint"],
  parameters: readonly Pick<ModelParameter, "name" | "shape">[],
  announce: (line: string) => void,
  disk: Disk = Deno,
): CheckpointWriter {
  let writing: Promise<TrainEvent[]> | undefined, isOver = false, newest: string | null = null;

  /** Writes the folder of a step, and removes what crashes have left before, and what is old after. */
  const replaceOld = async (
    { directory, keep }: NonNullable<typeof to>,
    step: number,
    write: () => Promise<string>,
  ): Promise<TrainEvent[]> => {
    // What cannot be removed is no reason to end: should the disk be full, writing will tell.
    const tell = ({ message }: Error) =>
      announce(`Cannot remove old checkpoints from ${directory}: ${message}; training goes on`);
    await removeUnfinished(directory, disk).catch(tell);
    newest = await write();
    await removeOld(directory, step, keep, disk).catch(tell);
    return [{ type: "checkpoint", step, path: newest }];
  };
  const write = async ({ step, state, config }: Snapshot): Promise<TrainEvent[]> => {
    await assertFinite(state, step);
    if (!to) return [];
    const checkpoint = { step, state, parameters, config };
    return await replaceOld(to, step, () => writeCheckpoint(to.directory, checkpoint, disk));
  };
  const ended = async () => {
    const events = await writing ?? [];
    writing = undefined;
    return events;
  };
  return {
    begin(snapshot) {
      isOver = false;
      writing = write(snapshot).finally(() => isOver = true);
      // A failure is met when the event is asked for.
      writing.catch(() => {});
    },
    async shards({ step, config }, write) {
      let state: StateOf<PlacedTensor> | undefined;
      const events = await replaceOld(to!, step, async () => {
        const written = await writeShards(to!.directory, { step, config }, write);
        state = written.state;
        return written.path;
      });
      writing = Promise.resolve(events);
      isOver = true;
      return state!;
    },
    ended,
    soFar: async () => isOver ? await ended() : [],
    get newest() {
      return newest;
    },
  };
}
