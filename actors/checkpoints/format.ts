/**
 * The format of a checkpoint: names of folders and files, limits of their sizes, the manifest, and the
 * hash of a model's weights.
 *
 * @module
 */

import type { StateOf } from "../../kernels/mod.ts";
import { AVERAGE, builtin, ELEMENTS_MAX, refusal } from "../../kernels/internal.ts";
import {
  type FileKind,
  openPieces,
  PIECE_ELEMENTS,
  type Shapes,
  type TensorSource,
} from "./tensors.ts";

const { createHash } = builtin("node:crypto");
const { join } = builtin("node:path");

/** An open file or folder, such as a `Deno.FsFile`. */
export interface DiskFile extends Disposable, Pick<Deno.FsFile, "read" | "write" | "seek"> {
  /** Its size in bytes. */
  stat(): Promise<Pick<Deno.FileInfo, "size">>;
  /** Makes written bytes durable; for a folder, the names in it. */
  sync(): Promise<void>;
  /** Makes written bytes durable, without the times of the file. */
  syncData(): Promise<void>;
}

/** The functions of a file system that checkpoints use; `Deno` implements them. */
export interface Disk {
  /** Opens a file or folder to read it, or creates a file to write it; that file must not exist. */
  open(path: string, options?: { write?: boolean; createNew?: boolean }): Promise<DiskFile>;
  /** All bytes of a file. */
  readFile(path: string): Promise<Uint8Array>;
  /** The names in a folder. */
  readDir(path: string): AsyncIterable<{ readonly name: string }>;
  /** Creates a folder; with `recursive`, also its parents, and an existing folder is not an error. */
  mkdir(path: string, options?: { recursive?: boolean }): Promise<void>;
  /** Renames a file or folder atomically. */
  rename(from: string, to: string): Promise<void>;
  /** Removes a file or folder; with `recursive`, also the contents of the folder. */
  remove(path: string, options?: { recursive?: boolean }): Promise<void>;
}

/** Kinds of folders, in order of preference. */
const FOLDER_KINDS = ["whole", "replaced", "unfinished"] as const;

/** The folder of a step. */
export type StepFolder = NonNullable<ReturnType<typeof stepFolder>>;

const UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}";
const PATTERNS = {
  whole: /^step-(\d{8,})$/,
  replaced: new RegExp(`^\\.step-(\\d{8,})-${UUID}-old$`),
  unfinished: new RegExp(`^\\.step-(\\d{8,})-${UUID}$`),
};

/** The name of a checkpoint's folder. */
export const stepName = (step: number): string => `step-${String(step).padStart(8, "0")}`;

/** The name of a folder until it is complete. */
export const unfinishedName = (folder: string): string => `.${folder}-${crypto.randomUUID()}`;

/** Returns the names that a crash has left for a folder: of unfinished and of replaced folders. */
export function unfinishedNames(folder: string, names: readonly string[]): string[] {
  const pattern = new RegExp(`^\\.${RegExp.escape(folder)}-${UUID}(-old)?$`);
  return names.filter((name) => pattern.test(name));
}

/** Returns the name of a folder while another checkpoint of its step replaces it. */
export const replacedName = (unfinished: string): string => `${unfinished}-old`;

/** Returns the step and kind in a folder's name; undefined if it is not a checkpoint. */
export function stepFolder(name: string) {
  for (const kind of FOLDER_KINDS) {
    const step = PATTERNS[kind].exec(name)?.[1];
    if (step !== undefined) return { name, step: Number(step), kind };
  }
}

/** Returns the checkpoints among names, the newest first; of one step, the whole one first. */
export function stepFolders(names: readonly string[]): StepFolder[] {
  return names.map(stepFolder).filter((folder) => folder !== undefined).sort((a, b) =>
    b.step - a.step ||
    FOLDER_KINDS.indexOf(a.kind) - FOLDER_KINDS.indexOf(b.kind)
  );
}

/** Returns a handler of errors that gives a value if a file does not exist. */
export const ifMissing = <T>(value: T) => (error: unknown): T => {
  if (error instanceof Deno.errors.NotFound) return value;
  throw error;
};

/** Returns the names in a folder; an empty list if the folder does not exist. */
export const folderEntries = (path: string, disk: Disk = Deno): Promise<string[]> =>
  Array.fromAsync(disk.readDir(path), ({ name }) => name).catch(ifMissing([]));

/** Removes the unfinished folders that crashes have left. A directory belongs to one run at a time. */
export async function removeUnfinished(directory: string, disk: Disk = Deno): Promise<void> {
  const folders = stepFolders(await folderEntries(directory, disk));
  await remove(disk, directory, folders.filter(({ kind }) => kind === "unfinished"));
}

/**
 * Removes the folders that the complete checkpoint of a step replaces: the former one of the step,
 * and older steps beyond the newest `keep`, except the best. Later steps stay.
 */
export async function removeOld(
  directory: string,
  step: number,
  keep = Infinity,
  disk: Disk = Deno,
  best?: number,
): Promise<void> {
  const folders = stepFolders(await folderEntries(directory, disk));
  const replaced = folders.filter((folder) => folder.kind === "replaced" && folder.step === step);
  // After a power failure the replaced folder can be the only one of its step.
  const older = folders.filter((folder) => folder.kind !== "unfinished" && folder.step < step);
  const kept = [...new Set(older.map((folder) => folder.step))].slice(0, keep - 1);
  await remove(disk, directory, [
    ...replaced,
    ...older.filter((folder) => !kept.includes(folder.step) && folder.step !== best),
  ]);
}

async function remove(
  disk: Disk,
  directory: string,
  folders: readonly StepFolder[],
): Promise<void> {
  for (const { name } of folders) await disk.remove(join(directory, name), { recursive: true });
}

/** Version of the folder's layout: one file of each kind of tensors. */
export const FORMAT = 1;

/** Version of the layout with shards. */
export const SHARDED_FORMAT = 2;

/** Kinds of tensors. */
export const KINDS: readonly FileKind[] = ["model", "optimizer"];

/**
 * Files of tensors. `ema` has the averages of the weights under the names of the weights, so it can be
 * read like a file of weights; runs without averages have no such file.
 */
export type TensorFile = FileKind | typeof AVERAGE;

/** All files of tensors. */
export const TENSOR_FILES: readonly TensorFile[] = [...KINDS, AVERAGE];

/** The most bytes of all files of a kind: two moments of each parameter, and the tensors' headers. */
export const TENSOR_BYTES_MAX: Readonly<Record<TensorFile, number>> = {
  model: 4 * ELEMENTS_MAX + 2 ** 27,
  optimizer: 8 * ELEMENTS_MAX + 2 ** 27,
  [AVERAGE]: 4 * ELEMENTS_MAX + 2 ** 27,
};

/** The most bytes of the other files. */
export const BYTES_MAX = {
  "config.json": 2 ** 24,
  "manifest.json": 2 ** 20,
  index: 2 ** 25,
} as const;

/** The file of all tensors of a kind. */
export const fileName = (kind: TensorFile): string => `${kind}.safetensors`;

/** Returns the name of the index, which has the shard of each tensor. */
export const indexName = (kind: TensorFile): string => `${fileName(kind)}.index.json`;

/** The file of the `nth` of `count` shards, counted from 1. */
export function shardName(kind: TensorFile, nth: number, count: number): string {
  const [n, all] = [nth, count].map((number) => String(number).padStart(5, "0"));
  return `${kind}-${n}-of-${all}.safetensors`;
}

/** The names of all shards of a kind. */
export const shardNames = (kind: TensorFile, count: number): string[] =>
  Array.from({ length: count }, (_, i) => shardName(kind, i + 1, count));

/** Entry of a file in a manifest. */
export interface ManifestEntry {
  /** Its size. */
  readonly bytes: number;
  /** SHA-256 of its bytes, in hexadecimal. */
  readonly sha256: string;
}

/** Contents of `manifest.json`. */
export interface Manifest {
  /** Version of the layout. */
  readonly format: number;
  /** Optimizer steps done. */
  readonly step: number;
  /** The other files of the folder, by name. */
  readonly files: Readonly<Record<string, ManifestEntry>>;
}

/** A checkpoint whose tensors were read or located. */
export interface Checkpoint<T = Float32Array> {
  /** Optimizer steps done. */
  readonly step: number;
  /** Weights and moments. */
  readonly state: StateOf<T>;
  /** The sizes of each of them. */
  readonly shapes: { readonly weights: Shapes; readonly moments: Shapes };
  /** Contents of `config.json`. */
  readonly config: Readonly<Record<string, unknown>>;
  /** Its folder. */
  readonly path: string;
}

/**
 * Returns the SHA-256 of all parameters' F32 bytes in the order of their names, in hexadecimal.
 * Tensors in files or other processes are read in pieces.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { hashWeights } from "@troupe/troupe/actors";
 *
 * const [a, b] = [Float32Array.of(1), Float32Array.of(2)];
 * assert.equal(hashWeights(new Map([["a", a], ["b", b]])), hashWeights(new Map([["b", b], ["a", a]])));
 * ```
 */
export function hashWeights(weights: ReadonlyMap<string, TensorSource>): string {
  const hash = createHash("sha256"), read = openPieces(PIECE_ELEMENTS);
  for (const name of [...weights.keys()].sort()) {
    read(weights.get(name)!, (values) => hash.update(bytesOf(values)));
  }
  return hash.digest("hex");
}

/**
 * Returns a value as JSON.
 *
 * @throws {TypeError} when JSON cannot represent it.
 */
export function jsonOf(cannot: string, must: string, value: unknown): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch (cause) {
    const [why] = String((cause as Error)?.message ?? cause).split("\n");
    throw new TypeError(`Cannot ${cannot}: ${must}, received a value that is not (${why})`, {
      cause,
    });
  }
  if (text !== undefined) return text;
  throw refusal(cannot, must, typeof value, TypeError);
}

/** The bytes of an array. */
export function bytesOf(values: Float32Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}
