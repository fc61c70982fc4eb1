/**
 * Reads the shards of a checkpoint, where manifest, index and shards say the same.
 *
 * @module
 */

import { repeatedKey } from "../../kernels/mod.ts";
import {
  BYTES_MAX,
  type FileKind,
  indexName,
  KINDS,
  shardNames,
  TENSOR_BYTES_MAX,
} from "./checkpoint_format.ts";
import type { ReadTensors, TensorsOf } from "./tensors/tensor_files.ts";
import { parseRecord, readBytes, readWhole, type StepSource } from "./whole_files.ts";

/**
 * Reads all shards.
 *
 * @throws {SyntaxError} when a file is missing, too much or another than the manifest tells, or when
 * the index does not name each tensor once, in the shard that holds it.
 */
export async function readShards<T>(
  source: StepSource,
  read: ReadTensors<T>,
): Promise<{ readonly weights: TensorsOf<T>; readonly moments: TensorsOf<T> }> {
  const count = countShards(source);
  return {
    weights: await readKind(source, "model", count, read),
    moments: await readKind(source, "optimizer", count, read),
  };
}

/** The files that the manifest names must be those of so many shards: none is opened by its word. */
function countShards({ path, manifest }: StepSource): number {
  const files = manifest.files ?? {}, names = Object.keys(files);
  // Two of each shard, the two indexes and the config.
  const count = (names.length - 3) / 2;
  const known = Number.isInteger(count) && count > 0
    ? ["config.json", ...KINDS.flatMap((kind) => [indexName(kind), ...shardNames(kind, count)])]
    : [];
  const stranger = names.find((name) => !known.includes(name));
  if (stranger !== undefined) {
    throw new SyntaxError(
      `Cannot read the checkpoint ${path}: its manifest must name the files of one or more shards, received ${
        JSON.stringify(stranger.slice(0, 80))
      } among ${names.length}`,
    );
  }
  for (const kind of KINDS) {
    const bytes = shardNames(kind, count).reduce(
      (sum, name) => sum + Number(files[name]?.bytes),
      0,
    );
    if (bytes <= TENSOR_BYTES_MAX[kind]) continue;
    throw new SyntaxError(
      `Cannot read the checkpoint ${path}: the shards of its ${kind} must be at most ${
        TENSOR_BYTES_MAX[kind]
      } bytes, received ${bytes}`,
    );
  }
  return count;
}

async function readKind<T>(
  source: StepSource,
  kind: FileKind,
  count: number,
  read: ReadTensors<T>,
): Promise<TensorsOf<T>> {
  const index = await readWhole(
    source,
    indexName(kind),
    BYTES_MAX.index,
    async (file, path) => parseIndex(path, await readBytes(file)),
  );
  const values = new Map<string, T>(), shapes = new Map<string, readonly number[]>();
  for (const name of shardNames(kind, count)) {
    const shard = await readWhole(source, name, TENSOR_BYTES_MAX[kind], read);
    for (const [tensor, value] of shard.values) {
      const where = index.get(tensor);
      if (where !== name) throw disagrees(source, kind, tensor, where, name);
      values.set(tensor, value);
      shapes.set(tensor, shard.shapes.get(tensor)!);
    }
  }
  const missing = [...index].find(([tensor]) => !values.has(tensor));
  if (missing) throw disagrees(source, kind, missing[0], missing[1], "no shard");
  return { values, shapes };
}

function disagrees(
  { path }: StepSource,
  kind: FileKind,
  tensor: string,
  said: unknown,
  found: string,
): SyntaxError {
  const [name, where] = [tensor, String(said ?? "no shard")].map((text) =>
    JSON.stringify(text.slice(0, 80))
  );
  return new SyntaxError(
    `Cannot read the checkpoint ${path}: tensor ${name} must be where ${
      indexName(kind)
    } says, ${where}, received it in ${found}`,
  );
}

/**
 * The file of each tensor, as an index says.
 *
 * @throws {SyntaxError} when the bytes are no index, or name a tensor twice.
 */
export function parseIndex(path: string, bytes: Uint8Array): ReadonlyMap<string, unknown> {
  const { weight_map: map } = parseRecord(path, bytes);
  const twice = repeatedKey(new TextDecoder().decode(bytes));
  if (twice !== undefined) {
    throw new SyntaxError(
      `Cannot read ${path}: its names must be unique, received ${
        JSON.stringify(twice.slice(0, 80))
      } twice`,
    );
  }
  if (typeof map === "object" && map !== null && !Array.isArray(map)) {
    return new Map(Object.entries(map));
  }
  throw new SyntaxError(
    `Cannot read ${path}: it must have a weight_map from tensors to files, received ${typeof map}`,
  );
}
