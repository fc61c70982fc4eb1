/**
 * Reads and locates checkpoints, in one file of each kind or in shards, and writes shards: each worker
 * writes the tensors that it holds, all into one folder.
 *
 * @module
 */

import { assertInput, AVERAGE, builtin, refusal } from "../../kernels/internal.ts";
import {
  BYTES_MAX,
  type Checkpoint,
  type Disk,
  type DiskFile,
  fileName,
  folderEntries,
  FORMAT,
  indexName,
  type Manifest,
  type ManifestEntry,
  SHARDED_FORMAT,
  shardName,
  shardNames,
  stepFolder,
  stepFolders,
  TENSOR_BYTES_MAX,
  TENSOR_FILES,
  type TensorFile,
} from "./format.ts";
import {
  openInput,
  parseRecord,
  parseUnique,
  readBytes,
  readWhole,
  type StepSource,
} from "./markers.ts";
import {
  averageOf,
  type HeldState,
  locateFloats,
  type PlacedTensor,
  readFloats,
  type ReadTensors,
  type TensorsOf,
  withAverages,
} from "./tensors.ts";
import {
  diskError,
  type NewFiles,
  newFiles,
  notOfDisk,
  type PlacedFile,
  placedState,
  type Snapshot,
  statesByFile,
  writeFolder,
  writeJson,
  writeTensors,
  type WrittenCheckpoint,
  type WrittenFiles,
} from "./write.ts";

const { basename, join, resolve } = builtin("node:path");

/** Returns the error of an invalid checkpoint. */
const refused = (path: string, must: string, received: unknown) =>
  refusal(`read the checkpoint ${path}`, must, received, SyntaxError);

/** Quotes a name, which may come from an untrusted file. */
const shownName = (name: string) => JSON.stringify(name.slice(0, 80));

/** Counts the shards and checks that the manifest names exactly their files before any is opened. */
function countShards({ path, manifest }: StepSource): number {
  const files = manifest.files ?? {}, names = Object.keys(files);
  const always = names.filter((name) => !name.startsWith(AVERAGE));
  // Two files of each shard, two indexes and the config; averages are a third file of some shards.
  const count = (always.length - 3) / 2;
  const known = Number.isInteger(count) && count > 0
    ? [
      "config.json",
      ...TENSOR_FILES.flatMap((file) => [indexName(file), ...shardNames(file, count)]),
    ]
    : [];
  const stranger = names.find((name) => !known.includes(name));
  if (stranger !== undefined) {
    const received = `${shownName(stranger)} among ${names.length}`;
    throw refused(path, "its manifest must name the files of one or more shards", received);
  }
  for (const file of TENSOR_FILES) {
    const shards = shardNames(file, count).filter((name) => file !== AVERAGE || files[name]);
    const bytes = shards.reduce((sum, name) => sum + Number(files[name]?.bytes), 0);
    const most = TENSOR_BYTES_MAX[file], must = `the shards of its ${file} must be at most ${most}`;
    if (!(bytes <= most)) throw refused(path, `${must} bytes`, bytes);
  }
  return count;
}

/**
 * Reads the shards of a file.
 *
 * @throws {SyntaxError} when a file is missing or different from its entry in the manifest, or when
 * the index does not name each tensor once, in the shard that holds it.
 */
async function readKind<T>(
  source: StepSource,
  kind: TensorFile,
  count: number,
  read: ReadTensors<T>,
): Promise<TensorsOf<T>> {
  const disagrees = (tensor: string, said: unknown, found: string) => {
    const where = `where ${indexName(kind)} says, ${shownName(String(said ?? "no shard"))}`;
    return refused(source.path, `tensor ${shownName(tensor)} must be ${where}`, `it in ${found}`);
  };
  const parse = async (file: DiskFile, path: string) => parseIndex(path, await readBytes(file));
  const index = await readWhole(source, indexName(kind), BYTES_MAX.index, parse);
  const values = new Map<string, T>(), shapes = new Map<string, readonly number[]>();
  for (const name of shardNames(kind, count)) {
    if (kind === AVERAGE && !source.manifest.files?.[name]) continue;
    const shard = await readWhole(source, name, TENSOR_BYTES_MAX[kind], read);
    for (const [tensor, value] of shard.values) {
      const where = index.get(tensor);
      if (where !== name) throw disagrees(tensor, where, name);
      values.set(tensor, value);
      shapes.set(tensor, shard.shapes.get(tensor)!);
    }
  }
  const missing = [...index].find(([tensor]) => !values.has(tensor));
  if (missing) throw disagrees(...missing, "no shard");
  return { values, shapes };
}

/**
 * The file of each tensor, as an index says.
 *
 * @throws {SyntaxError} when the bytes are no index, or name a tensor twice.
 */
export function parseIndex(path: string, bytes: Uint8Array): ReadonlyMap<string, unknown> {
  const { weight_map: map } = parseUnique(path, bytes);
  if (typeof map === "object" && map !== null && !Array.isArray(map)) {
    return new Map(Object.entries(map));
  }
  const must = "it must have a weight_map from tensors to files";
  throw refusal(`read ${path}`, must, typeof map, SyntaxError);
}

/**
 * Reads the newest whole checkpoint of a directory, or the checkpoint in the folder of a step. Other
 * files in the directory, such as an unfinished checkpoint after a crash, are skipped.
 *
 * @param announce Called with a notice for each newer checkpoint that is incomplete. If none is
 * complete, the error of the newest is thrown instead.
 * @param disk The file system.
 * @returns `undefined` when the path does not exist or holds no checkpoint.
 * @throws {RangeError} when the path is not a folder.
 * @throws {SyntaxError} when the folder of a step, or each such folder in the directory, is not whole.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { readCheckpoint, train } from "@troupe/troupe/actors";
 * import { mlp } from "@troupe/troupe/kernels";
 *
 * const directory = await Deno.makeTempDir(), checkpoint = { directory, every: 1 };
 * const batch = { features: Float32Array.of(1), labels: Int32Array.of(0) };
 * const model = mlp({ inputs: 1, hidden: 1, layers: 1, classes: 2 }, 1), data = [batch, batch];
 * const how = { microBatches: 1, runtime: "local", device: "reference" } as const;
 * for await (const _ of train({ model, data, steps: 2, checkpoint, ...how }));
 * await Deno.truncate(`${directory}/step-00000002/model.safetensors`, 9);
 *
 * const told: string[] = [];
 * const read = await readCheckpoint(directory, (line) => told.push(line));
 * assert.equal(read?.step, 1);
 * assert.match(told[0]!, /step-00000002: model.safetensors .* it is passed over$/);
 * await Deno.remove(directory, { recursive: true });
 * ```
 */
export async function readCheckpoint(
  path: string,
  announce: (line: string) => void = () => {},
  disk: Disk = Deno,
): Promise<Checkpoint | undefined> {
  return await newestOf(path, announce, disk, readFloats);
}

/**
 * Locates the tensors of the newest complete checkpoint without keeping them in memory; each worker
 * reads its own.
 *
 * @param announce As for {@linkcode readCheckpoint}.
 * @throws as {@linkcode readCheckpoint}; and {@linkcode RangeError} when a tensor has values that no
 * run writes.
 */
export async function locateCheckpoint(
  path: string,
  announce: (line: string) => void = () => {},
): Promise<Checkpoint<PlacedTensor> | undefined> {
  return await newestOf(path, announce, Deno, locateFloats);
}

/**
 * Returns a checkpoint with the averages of the weights in place of the weights; frozen ones stay.
 *
 * @throws {RangeError} when it has no averages.
 */
export function averaged<T>(checkpoint: Checkpoint<T>): Checkpoint<T> {
  const { state: { weights, moments }, path } = checkpoint;
  const hasAverages = weights.keys().some((name) => moments.has(averageOf(name)));
  const must = "its run must have made them (ema)";
  assertInput(hasAverages, `read averages from ${path}`, must, "none");
  const averages = Array.from(weights, ([name, own]): [string, T] => [
    name,
    moments.get(averageOf(name)) ?? own,
  ]);
  return { ...checkpoint, state: { moments, weights: new Map(averages) } };
}

/** Maximum attempts to read a folder that another program changes. */
const MAX_LOOKS = 10;

async function newestOf<T>(
  path: string,
  announce: (line: string) => void,
  disk: Disk,
  read: ReadTensors<T>,
  looks = MAX_LOOKS,
): Promise<Checkpoint<T> | undefined> {
  const names = await folderEntries(path, disk).catch((cause) => {
    throw refusal(`read a checkpoint from ${path}`, "it must be a folder", cause);
  });
  if (names.length === 0) return undefined;
  if (stepFolder(basename(resolve(path))) || names.includes("manifest.json")) {
    return await readStep(disk, path, read);
  }
  const problems: unknown[] = [], passedOver: string[] = [];
  const passOver = (why: string) => void passedOver.push(`${why}; it is passed over`);
  for (const { name, kind } of stepFolders(names)) {
    const folder = join(path, name);
    if (kind === "unfinished") {
      passOver(
        `Cannot read the checkpoint ${folder}: it must have been written to its end, received a part`,
      );
      continue;
    }
    try {
      const checkpoint = await readStep(disk, folder, read);
      passedOver.forEach(announce);
      return checkpoint;
    } catch (error) {
      problems.push(error);
      passOver((error as Error).message);
    }
  }
  const tellAll = () => passedOver.forEach(announce);
  if (problems.length === 0) return tellAll(), undefined;
  // A run that keeps few checkpoints may have replaced these with newer ones.
  const now = await folderEntries(path, disk);
  const hasNewer = stepFolders(now).some(({ name, kind }) =>
    kind !== "unfinished" && !names.includes(name)
  );
  if (hasNewer && looks > 1) {
    tellAll();
    return await newestOf(path, announce, disk, read, looks - 1);
  }
  throw problems[0];
}

async function readStep<T>(
  disk: Disk,
  path: string,
  read: ReadTensors<T>,
): Promise<Checkpoint<T>> {
  const manifest = await readManifest(disk, path), folder = { disk, path, manifest };
  const config = parseRecord(
    join(path, "config.json"),
    await readWhole(folder, "config.json", BYTES_MAX["config.json"], readBytes),
  );
  const isWhole = manifest.format === FORMAT, count = isWhole ? 1 : countShards(folder);
  const readFile = (file: TensorFile) =>
    isWhole
      ? readWhole(folder, fileName(file), TENSOR_BYTES_MAX[file], read)
      : readKind(folder, file, count, read);
  const weights = await readFile("model"), moments = await readFile("optimizer");
  const averagesName = (isWhole ? fileName : indexName)(AVERAGE);
  const averages = Object.hasOwn(manifest.files ?? {}, averagesName)
    ? await readFile(AVERAGE)
    : { values: new Map<string, T>(), shapes: new Map<string, readonly number[]>() };
  return {
    step: manifest.step,
    path,
    config,
    state: {
      weights: weights.values,
      moments: withAverages(moments.values, averages.values),
    },
    shapes: {
      weights: weights.shapes,
      moments: withAverages(moments.shapes, averages.shapes),
    },
  };
}

async function readManifest(disk: Disk, path: string): Promise<Manifest> {
  const name = join(path, "manifest.json");
  using file = await openInput(disk, name, BYTES_MAX["manifest.json"]);
  const manifest = parseRecord(name, await readBytes(file)) as unknown as Partial<Manifest>;
  const { format, step } = manifest, formats: readonly unknown[] = [FORMAT, SHARDED_FORMAT];
  if (!formats.includes(format) || !Number.isSafeInteger(step) || step! < 0) {
    const must = `its manifest must have format ${formats.join(" or ")} and a step`;
    throw refused(path, must, JSON.stringify({ format, step }).slice(0, 80));
  }
  const named = stepFolder(basename(resolve(path)))?.step ?? step;
  if (named === step) return manifest as Manifest;
  throw refused(path, `its manifest must have step ${named}`, `${step}; it is torn or was changed`);
}

/** Order to a worker to write its shard. */
export interface ShardOrder {
  /** The absolute path of the folder. */
  readonly folder: string;
  /** Number of the shard, from 1. */
  readonly nth: number;
  /** Number of shards. */
  readonly count: number;
  /** The weights and moments that it writes, with their sizes. */
  readonly shapes: HeldState["shapes"];
  /** The stage of each parameter. */
  readonly stages: ReadonlyMap<string, number>;
}

/** Files of a written shard. */
export type WrittenShard = WrittenFiles;

/**
 * Writes the shard of one worker.
 *
 * @param state The tensors to write.
 * @throws {Error} if reading fails, or with the file that cannot be written and the reason.
 */
export async function writeShard(
  { folder, nth, count }: Pick<ShardOrder, "folder" | "nth" | "count">,
  state: HeldState,
): Promise<WrittenShard> {
  using files = newFiles(Deno, folder);
  const written: Partial<Record<TensorFile, PlacedFile>> = {};
  for (const [file, own, kind] of statesByFile(state)) {
    const name = shardName(file, nth, count);
    try {
      written[file] = await writeTensors(files, name, own, kind, true);
      await files.sync();
    } catch (cause) {
      throw diskError(join(folder, name), cause, "the checkpoints before it stay");
    }
  }
  return written as WrittenFiles;
}

/**
 * Writes a checkpoint of shards; one of the same step is replaced.
 *
 * @param write Makes the workers write their shards into a folder.
 * @throws {Error} if `write` fails, or with the reason; existing files stay.
 */
export async function writeShards(
  directory: string,
  { step, config }: Omit<Snapshot, "state">,
  write: (folder: string) => Promise<readonly WrittenShard[]>,
): Promise<WrittenCheckpoint> {
  let shards: readonly WrittenShard[] = [];
  const fill = async (json: NewFiles, folder: string): Promise<Manifest> => {
    const files: Record<string, ManifestEntry> = {};
    shards = await write(resolve(folder)).catch(notOfDisk);
    for (const kind of TENSOR_FILES) {
      const written = shards.flatMap((shard) => shard[kind] ?? []);
      if (written.length === 0) continue;
      for (const file of written) {
        await checkSeen(folder, file);
        files[file.name] = { bytes: file.bytes, sha256: file.sha256 };
      }
      files[indexName(kind)] = await writeJson(json, indexName(kind), indexOf(written));
    }
    files["config.json"] = await writeJson(json, "config.json", config);
    return { format: SHARDED_FORMAT, step, files };
  };
  const path = await writeFolder(directory, step, Deno, fill);
  return { path, state: placedState(path, shards) };
}

/** Checks that a file of another host is visible in this folder. */
async function checkSeen(folder: string, { name, bytes }: PlacedFile): Promise<void> {
  const size = await Deno.stat(join(folder, name)).then(({ size }) => size, () => undefined);
  if (size === bytes) return;
  const found = `${size ?? "no"} bytes of ${name} in place of ${bytes}`;
  throw new Error(`${found}: the folder must be one that all hosts share`);
}

/** Returns Hugging Face's index: the bytes of all tensors, and the file of each tensor. */
function indexOf(files: readonly PlacedFile[]) {
  const tensors = files.flatMap(({ name, tensors }) =>
    Array.from(tensors, ([tensor, { bytes }]) => ({ tensor, name, bytes }))
  ).sort((a, b) => a.tensor < b.tensor ? -1 : 1);
  return {
    metadata: { total_size: tensors.reduce((sum, { bytes }) => sum + bytes, 0) },
    weight_map: Object.fromEntries(tensors.map(({ tensor, name }) => [tensor, name])),
  };
}
