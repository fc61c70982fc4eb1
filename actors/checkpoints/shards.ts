/**
 * Checkpoints in shards: each worker writes the tensors that it holds, all into one folder.
 *
 * @module
 */

import { join, resolve } from "node:path";
import type { StageState, StateOf } from "../../kernels/mod.ts";
import {
  type FileKind,
  indexName,
  KINDS,
  type Manifest,
  type ManifestEntry,
  SHARDED_FORMAT,
  shardName,
} from "./checkpoint_format.ts";
import type { PlacedTensor } from "./tensors/tensor_source.ts";
import { writeFolder } from "./write_checkpoint.ts";
import { type PlacedFile, placeTensors, writeJson } from "./write_files.ts";

/** What a worker is to write. */
export interface ShardOrder {
  /** The absolute path of the folder. */
  readonly folder: string;
  /** Its place among those that write, from 1. */
  readonly nth: number;
  /** How many write. */
  readonly count: number;
  /** The parameters that it writes, moments and all, with their sizes. */
  readonly shapes: ReadonlyMap<string, readonly number[]>;
}

/** What a worker has written. */
export type WrittenShard = Readonly<Record<FileKind, PlacedFile>>;

/**
 * Writes what one worker holds.
 *
 * @throws {Error} saying which file cannot be written, and why.
 */
export async function writeShard(
  { folder, nth, count, shapes }: ShardOrder,
  { weights, moments }: StageState,
): Promise<WrittenShard> {
  const parameterOf = (moment: string) => moment.slice(0, moment.lastIndexOf("."));
  const write = async (
    kind: FileKind,
    tensors: StageState["weights"],
    nameOf: (key: string) => string,
  ) => {
    const own = new Map([...tensors].filter(([key]) => shapes.has(nameOf(key))));
    const name = shardName(kind, nth, count);
    try {
      return await placeTensors(Deno, folder, name, own, (key) => shapes.get(nameOf(key))!);
    } catch (cause) {
      throw new Error(
        `Cannot write ${
          join(folder, name)
        }: its disk must have room and let itself be written to, received ${
          (cause as Error).message
        }; the checkpoints before it stay`,
        { cause },
      );
    }
  };
  return {
    model: await write("model", weights, (name) => name),
    optimizer: await write("optimizer", moments, parameterOf),
  };
}

/** A checkpoint in shards, and where its tensors lie. */
export interface ShardedCheckpoint {
  readonly path: string;
  readonly state: StateOf<PlacedTensor>;
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
): Promise<ShardedCheckpoint> {
  let failure: unknown, shards: readonly WrittenShard[] = [];
  const fill = async (folder: string): Promise<Manifest> => {
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
      files[indexName(kind)] = await writeJson(Deno, folder, indexName(kind), indexOf(written));
    }
    files["config.json"] = await writeJson(Deno, folder, "config.json", config);
    return { format: SHARDED_FORMAT, step, files };
  };
  const path = await writeFolder(directory, step, Deno, fill).catch((error) => {
    throw failure ?? error;
  });
  const state = (kind: FileKind) =>
    new Map(
      shards.flatMap(({ [kind]: { name, tensors } }) =>
        Array.from(tensors, ([tensor, place]): [string, PlacedTensor] => [
          tensor,
          { kind: "placed", path: resolve(path, name), ...place },
        ])
      ),
    );
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
