/**
 * Checkpoints in shards: each worker writes the tensors that it holds, all into one folder.
 *
 * @module
 */

import { join, resolve } from "node:path";
import {
  type FileKind,
  indexName,
  KINDS,
  type Manifest,
  type ManifestEntry,
  SHARDED_FORMAT,
  shardName,
} from "./checkpoint_format.ts";
import type { HeldState } from "./tensors/held_state.ts";
import { placedIn, writeFolder, type WrittenCheckpoint } from "./write_checkpoint.ts";
import {
  type NewFiles,
  newFiles,
  type PlacedFile,
  writeJson,
  writeTensors,
} from "./write_files.ts";

/** What a worker is to write. */
export interface ShardOrder {
  /** The absolute path of the folder. */
  readonly folder: string;
  /** Its place among those that write, from 1. */
  readonly nth: number;
  /** How many write. */
  readonly count: number;
  /** The weights and moments that it writes, with their sizes. */
  readonly shapes: HeldState["shapes"];
  /** The stage of each parameter. */
  readonly stages: ReadonlyMap<string, number>;
}

/** What a worker has written. */
export type WrittenShard = Readonly<Record<FileKind, PlacedFile>>;

/**
 * Writes what one worker holds.
 *
 * @param state of the tensors that are to be written.
 * @throws {Error} what reading throws, or saying which file cannot be written, and why.
 */
export async function writeShard(
  { folder, nth, count }: Pick<ShardOrder, "folder" | "nth" | "count">,
  state: HeldState,
): Promise<WrittenShard> {
  let failure: unknown;
  const read: HeldState["read"] = (parts) =>
    state.read(parts).catch((error) => {
      throw failure = error;
    });
  using files = newFiles(Deno, folder);
  const write = async (kind: FileKind) => {
    const name = shardName(kind, nth, count);
    try {
      const file = await writeTensors(files, name, { ...state, read }, kind, true);
      await files.sync();
      return file;
    } catch (cause) {
      throw failure ?? new Error(
        `Cannot write ${
          join(folder, name)
        }: its disk must have room and let itself be written to, received ${
          (cause as Error).message
        }; the checkpoints before it stay`,
        { cause },
      );
    }
  };
  return { model: await write("model"), optimizer: await write("optimizer") };
}

/**
 * Writes a checkpoint of shards; one of the same step is replaced.
 *
 * @param write has the workers write their shards into a folder.
 * @throws {Error} what `write` throws, or saying what is in the way; what was there before stays.
 */
export async function writeShards(
  directory: string,
  { step, config }: {
    readonly step: number;
    readonly config: Readonly<Record<string, unknown>>;
  },
  write: (folder: string) => Promise<readonly WrittenShard[]>,
): Promise<WrittenCheckpoint> {
  let failure: unknown, shards: readonly WrittenShard[] = [];
  const fill = async (json: NewFiles, folder: string): Promise<Manifest> => {
    const files: Record<string, ManifestEntry> = {};
    shards = await write(resolve(folder)).catch((error) => {
      throw failure = error;
    });
    for (const kind of KINDS) {
      const written = shards.map((shard) => shard[kind]);
      for (const file of written) {
        await checkSeen(folder, file);
        files[file.name] = { bytes: file.bytes, sha256: file.sha256 };
      }
      files[indexName(kind)] = await writeJson(json, indexName(kind), indexOf(written));
    }
    files["config.json"] = await writeJson(json, "config.json", config);
    return { format: SHARDED_FORMAT, step, files };
  };
  const path = await writeFolder(directory, step, Deno, fill).catch((error) => {
    throw failure ?? error;
  });
  const state = (kind: FileKind) => placedIn(path, shards.map((shard) => shard[kind]));
  return { path, state: { weights: state("model"), moments: state("optimizer") } };
}

/** What another host has written is not a part of this folder unless it is seen here. */
async function checkSeen(folder: string, { name, bytes }: PlacedFile): Promise<void> {
  const size = await Deno.stat(join(folder, name)).then(({ size }) => size, () => undefined);
  if (size === bytes) return;
  throw new Error(
    `${
      size ?? "no"
    } bytes of ${name} in place of ${bytes}: the folder must be one that all hosts share`,
  );
}

/** What Hugging Face's index says: the bytes of all tensors, and the file of each by its name. */
function indexOf(files: readonly PlacedFile[]) {
  const tensors = files.flatMap(({ name, tensors }) =>
    Array.from(tensors, ([tensor, { bytes }]) => ({ tensor, name, bytes }))
  ).sort((a, b) => a.tensor < b.tensor ? -1 : 1);
  return {
    metadata: { total_size: tensors.reduce((sum, { bytes }) => sum + bytes, 0) },
    weight_map: Object.fromEntries(tensors.map(({ tensor, name }) => [tensor, name])),
  };
}
