/**
 * Checkpoints: one folder for each saved step, complete or not there at all.
 *
 * `step-00000040/` holds `model.safetensors` and `optimizer.safetensors` (F32, keyed by parameter
 * name, never by worker), `config.json` (what rebuilds model and tokenizer) and `manifest.json`,
 * which is written last and holds the others' hashes. Everything is written to a folder with a
 * temporary name, synced, and renamed.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { basename, dirname, join, resolve } from "node:path";
import {
  checkInputFile,
  ELEMENTS_MAX,
  layoutSafetensors,
  type ModelParameter,
  type StageState,
} from "../../kernels/mod.ts";
import {
  folderEntries,
  replacedName,
  stepFolder,
  stepFolders,
  stepName,
  unfinishedName,
} from "./checkpoint_folders.ts";
import type { Disk, DiskFile } from "./disk.ts";
import { bytesOf, readFloats } from "./weights.ts";

/** Version of the folder's layout. */
const FORMAT = 1;

/** What a checkpoint's folder holds beside its manifest. */
const FILES = ["model.safetensors", "optimizer.safetensors", "config.json"] as const;

/** The most bytes of each file: two moments of each parameter, and the headers of the tensors. */
const BYTES_MAX = {
  "model.safetensors": 4 * ELEMENTS_MAX + 2 ** 27,
  "optimizer.safetensors": 8 * ELEMENTS_MAX + 2 ** 27,
  "config.json": 2 ** 24,
  "manifest.json": 2 ** 16,
} as const;

/** What `manifest.json` holds. */
interface Manifest {
  readonly format: number;
  readonly step: number;
  readonly files: Readonly<
    Record<typeof FILES[number], { readonly bytes: number; readonly sha256: string }>
  >;
}

/** The sizes of tensors by name. */
export type Shapes = ReadonlyMap<string, readonly number[]>;

/** A checkpoint that was read. */
export interface Checkpoint {
  /** Optimizer steps done. */
  readonly step: number;
  /** Weights and moments. */
  readonly state: StageState;
  /** The sizes of each of them. */
  readonly shapes: { readonly weights: Shapes; readonly moments: Shapes };
  /** What `config.json` holds. */
  readonly config: Readonly<Record<string, unknown>>;
  /** Its folder. */
  readonly path: string;
}

/**
 * Writes a checkpoint; one of the same step is replaced.
 *
 * @param disk where files are.
 * @returns the path of its folder.
 * @throws {Error} saying what is in the way, such as a full disk; what was there before stays.
 */
export async function writeCheckpoint(
  directory: string,
  checkpoint: {
    readonly step: number;
    readonly state: StageState;
    readonly parameters: readonly Pick<ModelParameter, "name" | "shape">[];
    readonly config: Readonly<Record<string, unknown>>;
  },
  disk: Disk = Deno,
): Promise<string> {
  const { step, state, parameters, config } = checkpoint;
  const target = join(directory, stepName(step));
  const temporary = join(directory, unfinishedName(step));
  try {
    await makeFolder(disk, resolve(directory));
    await disk.mkdir(temporary);
    const shapes = new Map(parameters.map((parameter) => [parameter.name, parameter.shape]));
    const momentShape = (key: string) => shapes.get(key.slice(0, key.lastIndexOf(".")))!;
    const files = {
      "model.safetensors": await writeTensors(
        disk,
        join(temporary, "model.safetensors"),
        state.weights,
        (key) => shapes.get(key)!,
      ),
      "optimizer.safetensors": await writeTensors(
        disk,
        join(temporary, "optimizer.safetensors"),
        state.moments,
        momentShape,
      ),
      "config.json": await writeJson(disk, join(temporary, "config.json"), config),
    };
    const manifest: Manifest = { format: FORMAT, step, files };
    await writeJson(disk, join(temporary, "manifest.json"), manifest);
    await syncFolder(disk, temporary);
    await replaceFolder(disk, temporary, target);
  } catch (cause) {
    await disk.remove(temporary, { recursive: true }).catch(() => {});
    throw new Error(
      `Cannot write the checkpoint ${target}: its disk must have room and let itself be written to, received ${
        (cause as Error).message
      }; the checkpoints before it stay`,
      { cause },
    );
  }
  return target;
}

/**
 * What a checkpoint will keep of a configuration, so that it is no surprise at the end of a run.
 *
 * @throws {TypeError} when JSON cannot say it, or says no object.
 */
export function encodeConfig(
  config: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  const refuse = "Cannot write checkpoints: their config must be an object that JSON can say";
  let text: string | undefined;
  try {
    text = JSON.stringify(config);
  } catch (cause) {
    const [why] = (cause as Error).message.split("\n");
    throw new TypeError(`${refuse}, received one that it cannot (${why})`, { cause });
  }
  if (text?.startsWith("{")) return JSON.parse(text);
  throw new TypeError(`${refuse}, received ${text}`);
}

/**
 * Makes sure that checkpoints can be written to a directory, before a run spends hours on them, and
 * leaves nothing there: the directory itself is made with its first checkpoint.
 *
 * @throws {RangeError} saying what is in the way.
 */
export async function checkWritable(directory: string): Promise<void> {
  try {
    const folder = await existingFolder(directory);
    await Deno.remove(await Deno.makeTempFile({ dir: folder, prefix: ".writable-" }));
  } catch (cause) {
    throw new RangeError(
      `Cannot write checkpoints to ${directory}: it must be a folder that can be written, received ${
        (cause as Error).message
      }`,
      { cause },
    );
  }
}

/** The folder, or where there is none yet, the nearest above it. */
async function existingFolder(path: string): Promise<string> {
  try {
    await Deno.stat(path);
    return path;
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    // A link to nothing is in the way of a folder, too.
    if (await Deno.lstat(path).then(() => true, () => false)) throw error;
    return await existingFolder(dirname(resolve(path)));
  }
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
    // Else the next checkpoint would find it and take it for durable.
    await disk.remove(path).catch(() => {});
    throw error;
  }
}

/**
 * Renames a folder over another; the other leaves the way first and is removed last. Not before the
 * new names are durable: else the power could fail when the old one is in pieces and the new one
 * nowhere.
 */
async function replaceFolder(disk: Disk, from: string, to: string): Promise<void> {
  const old = replacedName(from);
  const isReplaced = await disk.rename(to, old).then(() => true, (error) => {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  });
  await disk.rename(from, to);
  await syncFolder(disk, dirname(to));
  if (isReplaced) await disk.remove(old, { recursive: true });
}

/** Makes renames inside a folder durable. Windows cannot open folders and needs no such call. */
async function syncFolder(disk: Disk, path: string): Promise<void> {
  if (Deno.build.os === "windows") return;
  using folder = await disk.open(path);
  await folder.sync();
}

async function writeTensors(
  disk: Disk,
  path: string,
  tensors: ReadonlyMap<string, Float32Array>,
  shapeOf: (name: string) => readonly number[],
) {
  const infos = new Map(
    [...tensors.keys()].map((name) => [name, { dtype: "F32" as const, shape: shapeOf(name) }]),
  );
  const { header, names } = layoutSafetensors(infos, { format: "pt" });
  function* parts() {
    yield header;
    for (const name of names) yield bytesOf(tensors.get(name)!);
  }
  return await writeFile(disk, path, parts());
}

const writeJson = (disk: Disk, path: string, value: unknown) =>
  writeFile(disk, path, [new TextEncoder().encode(JSON.stringify(value, null, 2) + "\n")]);

/** Bytes that are hashed in one go, a quarter of a millisecond in which no message is heard. */
const PIECE_BYTES = 1 << 18;

async function writeFile(disk: Disk, path: string, parts: Iterable<Uint8Array>) {
  const hash = createHash("sha256");
  let bytes = 0;
  using file = await disk.open(path, { write: true, createNew: true });
  for (const part of parts) {
    bytes += part.length;
    for (let from = 0; from < part.length; from += PIECE_BYTES) {
      const piece = part.subarray(from, from + PIECE_BYTES);
      hash.update(piece);
      for (let done = 0; done < piece.length;) done += await file.write(piece.subarray(done));
    }
  }
  await file.syncData();
  return { bytes, sha256: hash.digest("hex") };
}

/**
 * Reads the newest whole checkpoint of a directory, or the one of a step's folder. Whatever else
 * the directory holds, such as what a crash left of a checkpoint, is passed over.
 *
 * @param announce told in words which checkpoints, newer than the one that is read, are not whole.
 * @param disk where files are.
 * @returns `undefined` when the path does not exist or holds no checkpoint.
 * @throws {RangeError} when the path is no folder.
 * @throws {SyntaxError} when a step's folder is named, or the directory holds some, and none is whole.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const directory = await Deno.makeTempDir();
 * const state = { weights: new Map([["bias", Float32Array.of(1, 2)]]), moments: new Map() };
 * const parameters = [{ name: "bias", shape: [2] }];
 * for (const step of [1, 2]) {
 *   await writeCheckpoint(directory, { step, state, parameters, config: {} });
 * }
 * await Deno.truncate(`${directory}/step-00000002/model.safetensors`, 9);
 *
 * const told: string[] = [];
 * const checkpoint = await readCheckpoint(directory, (line) => told.push(line));
 * assert.equal(checkpoint?.step, 1);
 * assert.match(told[0]!, /step-00000002: model.safetensors .* it is passed over$/);
 * await Deno.remove(directory, { recursive: true });
 * ```
 */
export async function readCheckpoint(
  path: string,
  announce: (line: string) => void = () => {},
  disk: Disk = Deno,
): Promise<Checkpoint | undefined> {
  const names = await folderEntries(path, disk).catch((cause) => {
    throw new RangeError(
      `Cannot read a checkpoint from ${path}: it must be a folder, received ${cause.message}`,
      { cause },
    );
  });
  if (names.length === 0) return undefined;
  if (stepFolder(basename(resolve(path))) || names.includes("manifest.json")) {
    return await readStep(disk, path);
  }
  const problems: unknown[] = [];
  for (const { name, kind } of stepFolders(names)) {
    const folder = join(path, name);
    if (kind === "unfinished") {
      announce(
        `Cannot read the checkpoint ${folder}: it must have been written to its end, received a part; it is passed over`,
      );
      continue;
    }
    try {
      return await readStep(disk, folder);
    } catch (error) {
      problems.push(error);
      announce(`${(error as Error).message}; it is passed over`);
    }
  }
  if (problems.length > 0) throw problems[0];
  return undefined;
}

async function readStep(disk: Disk, path: string): Promise<Checkpoint> {
  const manifest = await readManifest(disk, path);
  const config = parseRecord(
    join(path, "config.json"),
    await readWhole(disk, path, manifest, "config.json", readBytes),
  );
  const weights = await readWhole(disk, path, manifest, "model.safetensors", readFloats);
  const moments = await readWhole(disk, path, manifest, "optimizer.safetensors", readFloats);
  return {
    step: manifest.step,
    path,
    config,
    state: { weights: weights.values, moments: moments.values },
    shapes: { weights: weights.shapes, moments: moments.shapes },
  };
}

async function readManifest(disk: Disk, path: string): Promise<Manifest> {
  const name = join(path, "manifest.json");
  using file = await openInput(disk, name, BYTES_MAX["manifest.json"]);
  const manifest = parseRecord(name, await readBytes(file)) as unknown as Partial<Manifest>;
  const { format, step } = manifest;
  if (format !== FORMAT || !Number.isSafeInteger(step) || step! < 0) {
    throw new SyntaxError(
      `Cannot read the checkpoint ${path}: its manifest must have format ${FORMAT} and a step, received ${
        JSON.stringify({ format, step }).slice(0, 80)
      }`,
    );
  }
  const named = stepFolder(basename(resolve(path)))?.step ?? step;
  if (named !== step) {
    throw new SyntaxError(
      `Cannot read the checkpoint ${path}: its manifest must have step ${named}, received ${step}; it is torn or was changed`,
    );
  }
  return manifest as Manifest;
}

/** Reads a file of a checkpoint when its bytes are those that the manifest tells. */
async function readWhole<T>(
  disk: Disk,
  path: string,
  manifest: Manifest,
  name: typeof FILES[number],
  read: (file: DiskFile, path: string) => Promise<T>,
): Promise<T> {
  const full = join(path, name), { bytes, sha256 } = manifest.files?.[name] ?? {};
  // What was hashed is what is read, whatever takes the path's place meanwhile.
  using file = await openInput(disk, full, BYTES_MAX[name]);
  const { size } = await file.stat();
  const received = size === bytes ? await hashOf(file) : `${size} bytes`;
  if (received !== sha256) {
    throw new SyntaxError(
      `Cannot read the checkpoint ${path}: ${name} must have the hash ${
        shownHash(sha256)
      } of its manifest, received ${received}; it is torn or was changed`,
    );
  }
  await file.seek(0, Deno.SeekMode.Start);
  return await read(file, full);
}

const shownHash = (hash: unknown) => /^[0-9a-f]{64}$/.test(`${hash}`) ? hash : "of 64 digits";

/** Opens a regular file of a checkpoint. */
async function openInput(disk: Disk, path: string, bytesMax: number): Promise<DiskFile> {
  try {
    // Opening a pipe waits for its other end.
    if (disk === Deno) checkInputFile(path, bytesMax);
    return await disk.open(path);
  } catch (cause) {
    const { message } = cause as Error;
    throw new SyntaxError(
      `Cannot read ${path}: a whole checkpoint must have this file, received ${message}`,
      { cause },
    );
  }
}

async function hashOf(file: DiskFile): Promise<string> {
  const hash = createHash("sha256"), piece = new Uint8Array(1 << 20);
  for (let read; (read = await file.read(piece)) !== null;) hash.update(piece.subarray(0, read));
  return hash.digest("hex");
}

async function readBytes(file: DiskFile): Promise<Uint8Array> {
  const bytes = new Uint8Array((await file.stat()).size);
  for (let done = 0, read; done < bytes.length; done += read) {
    read = await file.read(bytes.subarray(done));
    if (read === null) return bytes.subarray(0, done);
  }
  return bytes;
}

function parseRecord(path: string, bytes: Uint8Array): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
    if (typeof value === "object" && value !== null && !Array.isArray(value)) {
      return value as Record<string, unknown>;
    }
    throw new SyntaxError("something that is no object");
  } catch (cause) {
    const received = JSON.stringify((cause as Error).message).slice(1, -1);
    throw new SyntaxError(
      `Cannot read ${path}: it must be a JSON object, received ${received}`,
      { cause },
    );
  }
}
