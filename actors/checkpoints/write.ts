/**
 * Writes checkpoints: each file with its hash, then the folder as a whole.
 *
 * @module
 */

import type { StateOf } from "../../kernels/mod.ts";
import {
  assertInput,
  AVERAGE,
  builtin,
  layoutSafetensors,
  refusal,
} from "../../kernels/internal.ts";
import {
  bytesOf,
  type Disk,
  type DiskFile,
  fileName,
  folderEntries,
  FORMAT,
  ifMissing,
  jsonOf,
  type Manifest,
  type ManifestEntry,
  replacedName,
  stepName,
  type TensorFile,
  unfinishedName,
  unfinishedNames,
} from "./format.ts";
import {
  averageOf,
  type FileKind,
  type HeldState,
  type PlacedTensor,
  readPieces,
  withAverages,
} from "./tensors.ts";

const { createHash } = builtin("node:crypto");
const { basename, dirname, join, resolve } = builtin("node:path");

/**
 * Returns a configuration as a checkpoint keeps it, so that an invalid one is refused before the run.
 *
 * @throws {TypeError} when it is not an object, or JSON cannot represent it.
 */
export function encodeConfig(
  config: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  const cannot = "write checkpoints", must = "their config must be an object that JSON can say";
  const text = jsonOf(cannot, must, config);
  assertInput(text.startsWith("{"), cannot, must, text, TypeError);
  return JSON.parse(text);
}

/**
 * Checks, before the run starts, that checkpoints can be written to a directory, and leaves nothing
 * there: the first checkpoint makes the directory.
 *
 * @throws {RangeError} with the reason if they cannot.
 */
export async function checkWritable(directory: string): Promise<void> {
  try {
    const folder = await existingFolder(directory);
    await Deno.remove(await Deno.makeTempFile({ dir: folder, prefix: ".writable-" }));
  } catch (cause) {
    const must = "it must be a folder that can be written";
    throw refusal(`write checkpoints to ${directory}`, must, cause);
  }
}

/** Returns the folder, or the nearest above it if it does not exist. */
async function existingFolder(path: string): Promise<string> {
  try {
    await Deno.stat(path);
    return path;
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    const there = await Deno.lstat(path).catch(() => undefined);
    // A link to nothing is in the way of a folder, too; anything else was made by another run just now.
    if (there?.isSymlink) throw error;
    return await existingFolder(there ? path : dirname(resolve(path)));
  }
}

/** Errors that are not of the disk. */
const others = new WeakSet<object>();

/** Throws an error that {@linkcode diskError} leaves as it is. */
export function notOfDisk(error: unknown): never {
  others.add(Object(error));
  throw error;
}

/**
 * Returns the error of a file or folder that cannot be written.
 *
 * @param left state of the disk after the error.
 */
export function diskError(path: string, cause: unknown, left: string): Error {
  if (others.has(Object(cause))) return cause as Error;
  const must = "its disk must have room and let itself be written to";
  const received = `${(cause as Error).message}; ${left}`;
  return new Error(`Cannot write ${path}: ${must}, received ${received}`, { cause });
}

/** A file of tensors, with the place of each. */
export interface PlacedFile extends ManifestEntry {
  /** The file's name. */
  readonly name: string;
  /** Place of each tensor in the file. */
  readonly tensors: ReadonlyMap<string, Omit<PlacedTensor, "path" | "kind">>;
}

/** New files of a folder, which stay open until all of them are durable. */
export interface NewFiles extends Disposable {
  /** Makes a file and writes bytes to it as they come. */
  write(
    name: string,
    bytes: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  ): Promise<ManifestEntry>;
  /** Makes the written files durable. */
  sync(): Promise<void>;
}

/** Bytes that are hashed at a time: no message is received for about 0.25 ms. */
const PIECE_BYTES = 1 << 18;

/**
 * Opens new files in a folder. Writing and syncing are separate, so that the holders of tensors
 * continue when these are read, before they are durable.
 *
 * @param signal Ends the writing.
 */
export function newFiles(disk: Disk, folder: string, signal?: AbortSignal): NewFiles {
  const open = new DisposableStack(), unsynced: DiskFile[] = [];
  return {
    async write(name, parts) {
      const file = open.use(
        await disk.open(join(folder, name), { write: true, createNew: true }),
      );
      const hash = createHash("sha256");
      let bytes = 0;
      for await (const part of parts) {
        bytes += part.length;
        for (let from = 0; from < part.length; from += PIECE_BYTES) {
          const piece = part.subarray(from, from + PIECE_BYTES);
          signal?.throwIfAborted();
          hash.update(piece);
          for (let done = 0; done < piece.length;) done += await file.write(piece.subarray(done));
        }
      }
      unsynced.push(file);
      return { bytes, sha256: hash.digest("hex") };
    },
    async sync() {
      for (const file of unsynced.splice(0)) await file.syncData();
    },
    [Symbol.dispose]: () => open.dispose(),
  };
}

/**
 * Writes all tensors of a kind in F32 to a new file, as they are read.
 *
 * @param isHashed Adds the hash of each tensor to its place.
 */
export async function writeTensors(
  files: NewFiles,
  name: string,
  state: HeldState,
  kind: FileKind,
  isHashed = false,
): Promise<PlacedFile> {
  const infos = new Map(
    Array.from(state.shapes[kind], ([key, shape]) => [key, { dtype: "F32" as const, shape }]),
  );
  const { header, names } = layoutSafetensors(infos, { format: "pt" });
  const tensors = new Map<string, Omit<PlacedTensor, "path" | "kind">>();
  async function* parts() {
    yield header;
    let at = header.length, hash = createHash("sha256");
    const held: HeldState = { ...state, read: (parts) => state.read(parts).catch(notOfDisk) };
    for await (const { name, values, from, isLast } of readPieces(held, kind, names)) {
      const piece = bytesOf(values), bytes = 4 * from + piece.length;
      if (isHashed) hash.update(piece);
      yield piece;
      if (!isLast) continue;
      tensors.set(name, { at, bytes, ...isHashed && { sha256: hash.digest("hex") } });
      at += bytes;
      hash = createHash("sha256");
    }
  }
  return { ...await files.write(name, parts()), name, tensors };
}

/** The state of a file, whose tensors of a kind it has. */
type FileState = readonly [file: TensorFile, state: HeldState, kind: FileKind];

/** Returns the state of each file: averages are in one as if they were the weights. */
export function statesByFile(state: HeldState): readonly FileState[] {
  const { shapes, holderOf, read } = state;
  const averages = new Map<string, readonly number[]>(), optimizer = new Map(shapes.optimizer);
  for (const [name, shape] of shapes.model) {
    if (optimizer.delete(averageOf(name))) averages.set(name, shape);
  }
  const states: readonly FileState[] = [
    ["model", state, "model"],
    ["optimizer", { ...state, shapes: { ...shapes, optimizer } }, "optimizer"],
  ];
  if (averages.size === 0) return states;
  const own: HeldState = {
    shapes: { model: averages, optimizer: new Map() },
    holderOf: (name) => holderOf(averageOf(name)),
    read: (parts) => read(parts.map((part) => ({ ...part, name: averageOf(part.name) }))),
  };
  return [...states, [AVERAGE, own, "model"]];
}

/** Written files of tensors; `ema` only if the run keeps averages. */
export type WrittenFiles =
  & Readonly<Record<FileKind, PlacedFile>>
  & { readonly [AVERAGE]?: PlacedFile };

/** Returns a written state, when its folder has its final name. */
export function placedState(path: string, shards: readonly WrittenFiles[]): StateOf<PlacedTensor> {
  const placed = (file: TensorFile) => placedIn(path, shards.flatMap((one) => one[file] ?? []));
  return {
    weights: placed("model"),
    moments: withAverages(placed("optimizer"), placed(AVERAGE)),
  };
}

/** Writes JSON to a new file. */
export async function writeJson(
  files: NewFiles,
  name: string,
  value: unknown,
): Promise<ManifestEntry> {
  return await files.write(name, [
    new TextEncoder().encode(JSON.stringify(value, null, 2) + "\n"),
  ]);
}

/** Makes a folder and those above it. Each is durable before anything is put into it. */
async function makeFolder(disk: Disk, path: string): Promise<void> {
  try {
    await disk.mkdir(path);
  } catch (error) {
    if (error instanceof Deno.errors.AlreadyExists) return;
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    await makeFolder(disk, dirname(path));
    await disk.mkdir(path);
  }
  try {
    await syncFolder(disk, dirname(path));
  } catch (error) {
    // Otherwise the next checkpoint would find it and take it for durable.
    await disk.remove(path).catch(() => {});
    throw error;
  }
}

/**
 * Renames a folder over another one, which is renamed first and removed last, when the new names are
 * durable. A power failure never leaves the old folder in pieces and no new one.
 */
async function replaceFolder(disk: Disk, from: string, to: string): Promise<void> {
  const old = replacedName(from);
  const isReplaced = await disk.rename(to, old).then(() => true, ifMissing(false));
  await disk.rename(from, to);
  await syncFolder(disk, dirname(to));
  if (isReplaced) await disk.remove(old, { recursive: true });
}

/** Renames a durable file or folder to a path that does not exist. */
async function renameNew(from: string, to: string): Promise<void> {
  await Deno.rename(from, to);
  await syncFolder(Deno, dirname(to));
}

/** Makes renames inside a folder durable. Windows cannot open folders and needs no such call. */
export async function syncFolder(disk: Disk, path: string): Promise<void> {
  if (Deno.build.os === "windows") return;
  using folder = await disk.open(path);
  await folder.sync();
}

/**
 * Makes a folder with its files. In the end it is complete or absent.
 *
 * @param fill Writes its files, into a folder whose name starts with a dot until it is complete.
 * @param signal Ends the writing; nothing is left.
 * @throws {RangeError} when the path exists.
 * @throws {Error} if `fill` fails, or with the reason, such as a full disk.
 */
export async function writeNewFolder(
  path: string,
  fill: (files: NewFiles) => Promise<unknown>,
  signal?: AbortSignal,
): Promise<void> {
  await checkNew(path, "folder");
  const target = resolve(path), rename = (from: string) => renameNew(from, target);
  await writeUnfinished(Deno, target, fill, rename, failedAt(path), signal);
}

/**
 * Makes or replaces a folder of a locked run. The old one stays until the new one is durable; what
 * crashes have left is removed first.
 *
 * @throws {Error} if `fill` fails, or with the reason, such as a full disk.
 */
export async function writeOwnFolder(
  path: string,
  fill: (files: NewFiles) => Promise<unknown>,
): Promise<void> {
  const target = resolve(path), parent = dirname(target);
  const left = unfinishedNames(basename(target), await folderEntries(parent));
  for (const name of left) await Deno.remove(join(parent, name), { recursive: true });
  const replace = (from: string) => replaceFolder(Deno, from, target);
  await writeUnfinished(Deno, target, fill, replace, failedAt(path, "what was there stays"));
}

/**
 * Makes a file. In the end it is complete or absent.
 *
 * @param signal Ends the writing; nothing is left.
 * @throws {RangeError} when the path exists.
 * @throws {Error} with the reason if it cannot be written, such as a full disk.
 */
export async function writeNewFile(
  path: string,
  bytes: Iterable<Uint8Array>,
  signal?: AbortSignal,
): Promise<void> {
  const target = resolve(path), name = basename(target);
  const fill = (files: NewFiles) => files.write(name, bytes);
  const place = async (from: string) => {
    await renameNew(join(from, name), target);
    await Deno.remove(from);
  };
  await checkNew(path, "file");
  await writeUnfinished(Deno, target, fill, place, failedAt(path), signal);
}

/** Returns the error of a path: that of `fill` if it is a sentence, otherwise that of the disk. */
const failedAt = (path: string, left = "nothing is left there") => (cause: unknown) =>
  /^Cannot /.test((cause as Error).message) ? cause : diskError(path, cause, left);

/** Fills an unfinished folder next to a path, and then puts it or its file there. */
async function writeUnfinished(
  disk: Disk,
  target: string,
  fill: (files: NewFiles, folder: string) => Promise<unknown>,
  place: (temporary: string) => Promise<void>,
  failed: (cause: unknown) => unknown,
  signal?: AbortSignal,
): Promise<void> {
  const parent = dirname(target), temporary = join(parent, unfinishedName(basename(target)));
  try {
    await makeFolder(disk, resolve(parent));
    await disk.mkdir(temporary);
    {
      using files = newFiles(disk, temporary, signal);
      await fill(files, temporary);
      await files.sync();
    }
    await syncFolder(disk, temporary);
    await place(temporary);
  } catch (cause) {
    await disk.remove(temporary, { recursive: true }).catch(() => {});
    signal?.throwIfAborted();
    throw failed(cause);
  }
}

/**
 * Refuses a path that exists.
 *
 * @param kind Kind of the new entry.
 * @throws {RangeError} when the path exists.
 */
export async function checkNew(path: string, kind: "folder" | "file"): Promise<void> {
  const found = await Deno.lstat(path).then(() => "one that is", (error: Error) => {
    return error instanceof Deno.errors.NotFound ? undefined : error.message;
  });
  const must = `it must be a ${kind} that is not there yet`;
  assertInput(found === undefined, `write ${path}`, must, `${found}; name another`);
}

/**
 * Replaces a small file atomically: a reader finds the old or the new one, complete. The new file is
 * durable when the promise resolves.
 */
export async function replaceFile(
  disk: Disk,
  path: string,
  content: string | Uint8Array,
): Promise<void> {
  const folder = dirname(path), name = `.${basename(path)}`, unfinished = join(folder, name);
  await removeIfThere(disk, unfinished);
  try {
    {
      using files = newFiles(disk, folder);
      const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
      await files.write(name, [bytes]);
      await files.sync();
    }
    await disk.rename(unfinished, path);
    await syncFolder(disk, folder);
  } catch (error) {
    await disk.remove(unfinished).catch(() => {});
    throw error;
  }
}

/** Removes a file if it is there; returns whether it was. */
export const removeIfThere = (disk: Disk, path: string): Promise<boolean> =>
  disk.remove(path).then(() => true, ifMissing(false));

/** Contents of a checkpoint. */
export interface Snapshot {
  /** Optimizer steps done. */
  readonly step: number;
  /** Weights and moments, which do not change until all of them have been read. */
  readonly state: HeldState;
  /** The configuration of the run. */
  readonly config: Readonly<Record<string, unknown>>;
}

/** A complete checkpoint, with the places of its tensors. */
export interface WrittenCheckpoint {
  /** Its folder. */
  readonly path: string;
  /** Weights and moments. */
  readonly state: StateOf<PlacedTensor>;
}

/**
 * Writes a checkpoint of tensors, which may be in other processes, while they are read; one of the
 * same step is replaced.
 *
 * @param disk The file system.
 * @throws {Error} if reading fails; or with the reason if it cannot be written; existing files stay.
 */
export async function writeHeld(
  directory: string,
  { step, state, config }: Snapshot,
  disk: Disk = Deno,
): Promise<WrittenCheckpoint> {
  const written: Partial<Record<TensorFile, PlacedFile>> = {};
  const path = await writeFolder(directory, step, disk, async (made) => {
    const files: Record<string, ManifestEntry> = {};
    for (const [file, own, kind] of statesByFile(state)) {
      const placed = written[file] = await writeTensors(made, fileName(file), own, kind);
      files[placed.name] = { bytes: placed.bytes, sha256: placed.sha256 };
    }
    files["config.json"] = await writeJson(made, "config.json", config);
    return { format: FORMAT, step, files };
  });
  return { path, state: placedState(path, [written as WrittenFiles]) };
}

/** Returns the places of the tensors of some files, when their folder has its final name. */
export function placedIn(
  path: string,
  files: readonly PlacedFile[],
): ReadonlyMap<string, PlacedTensor> {
  return new Map(
    files.flatMap(({ name, tensors }) =>
      Array.from(tensors, ([tensor, place]): [string, PlacedTensor] => [
        tensor,
        { kind: "placed", path: resolve(path, name), ...place },
      ])
    ),
  );
}

/**
 * Writes the folder of a step. In the end it is complete or absent.
 *
 * @param fill Writes its files into a folder with a temporary name and returns their entries.
 * @returns The path of the folder.
 * @throws {Error} with the reason if it cannot be written; existing files stay.
 */
export async function writeFolder(
  directory: string,
  step: number,
  disk: Disk,
  fill: (files: NewFiles, folder: string) => Promise<Manifest>,
): Promise<string> {
  const target = join(directory, stepName(step));
  const fillAll = async (files: NewFiles, folder: string) => {
    const manifest = await fill(files, folder);
    // The manifest names only durable files.
    await files.sync();
    await writeJson(files, "manifest.json", manifest);
  };
  const replace = (from: string) => replaceFolder(disk, from, target);
  const failed = (cause: unknown) =>
    diskError(`the checkpoint ${target}`, cause, "the checkpoints before it stay");
  await writeUnfinished(disk, target, fillAll, replace, failed);
  return target;
}
