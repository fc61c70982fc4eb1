/**
 * Markers in a folder of checkpoints: `best.json` names the best checkpoint, `finished.json` marks a
 * completed run; and functions that read the files of a checkpoint.
 *
 * Exit codes of launchers do not show completion: a launcher that counts processes can return 0
 * although a rank left early. A run removes the marker when it starts and writes it when it ends.
 *
 * @module
 */

import {
  assertInput,
  builtin,
  inputFileProblem,
  readFull,
  refusal,
  repeatedKey,
} from "../../kernels/internal.ts";
import { type Disk, type DiskFile, folderEntries, type Manifest, stepName } from "./format.ts";
import { diskError, removeIfThere, replaceFile, syncFolder } from "./write.ts";

const { createHash } = builtin("node:crypto");
const { join } = builtin("node:path");

/** The folder of a step that is read. */
export interface StepSource {
  readonly disk: Disk;
  readonly path: string;
  readonly manifest: Manifest;
}

/**
 * Reads a file of a checkpoint.
 *
 * @param bytesMax Limit of its size.
 * @throws {SyntaxError} when it is missing, not a file, or differs from the manifest.
 */
export async function readWhole<T>(
  { disk, path, manifest }: StepSource,
  name: string,
  bytesMax: number,
  read: (file: DiskFile, path: string) => Promise<T>,
): Promise<T> {
  const full = join(path, name), { bytes, sha256 } = manifest.files?.[name] ?? {};
  // The open file is hashed and read, even if another file takes its path.
  using file = await openInput(disk, full, bytesMax);
  const { size } = await file.stat();
  const received = size === bytes ? await hashOf(file) : `${size} bytes`;
  const must = `${name} must have the hash ${shownHash(sha256)} of its manifest`;
  const changed = `${received}; it is torn or was changed`;
  assertInput(received === sha256, `read the checkpoint ${path}`, must, changed, SyntaxError);
  await file.seek(0, Deno.SeekMode.Start);
  return await read(file, full);
}

const shownHash = (hash: unknown) => /^[0-9a-f]{64}$/.test(`${hash}`) ? hash : "of 64 digits";

/** Opens a regular file of a checkpoint. @throws {SyntaxError} when it does not exist. */
export async function openInput(disk: Disk, path: string, bytesMax: number): Promise<DiskFile> {
  try {
    // Opening a pipe waits for its other end.
    const problem = disk === Deno ? inputFileProblem(path, bytesMax) : undefined;
    if (problem !== undefined) throw new Error(problem);
    return await disk.open(path);
  } catch (cause) {
    throw refusal(`read ${path}`, "a whole checkpoint must have this file", cause, SyntaxError);
  }
}

async function hashOf(file: DiskFile): Promise<string> {
  const hash = createHash("sha256"), piece = new Uint8Array(1 << 20);
  for (let read; (read = await file.read(piece)) !== null;) hash.update(piece.subarray(0, read));
  return hash.digest("hex");
}

/** Reads all bytes of a file. */
export async function readBytes(file: DiskFile): Promise<Uint8Array> {
  const bytes = new Uint8Array((await file.stat()).size);
  await readFull(file, bytes);
  return bytes;
}

/** Parses an object of JSON. @throws {SyntaxError} when the bytes are not one. */
export function parseRecord(path: string, bytes: Uint8Array): Record<string, unknown> {
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

/**
 * Parses an object of JSON that has no name twice.
 *
 * @throws {SyntaxError} as {@linkcode parseRecord}, or with the name.
 */
export function parseUnique(path: string, bytes: Uint8Array): Record<string, unknown> {
  const record = parseRecord(path, bytes), twice = repeatedKey(new TextDecoder().decode(bytes));
  if (twice === undefined) return record;
  const received = `${JSON.stringify(twice.slice(0, 80))} twice`;
  throw refusal(`read ${path}`, "its names must be unique", received, SyntaxError);
}

const NAME = "best.json";

/** The most bytes of such a file that are read. */
const BYTES_MAX = 2 ** 16;

/** The best checkpoint of a folder. */
export interface BestCheckpoint {
  /** The step after which held-out data was evaluated. */
  readonly step: number;
  /** Its mean loss, in nats per prediction. */
  readonly loss: number;
  /** The name of its folder, in the same folder as this file. */
  readonly checkpoint: string;
}

/**
 * Records the best checkpoint if it exists. The record is durable when the promise resolves.
 *
 * @returns The checkpoint's folder; undefined if it is in another directory.
 * @throws {Error} with the reason if it cannot be written; the former record stays.
 */
export async function writeBest(
  directory: string,
  { step, loss }: Pick<BestCheckpoint, "step" | "loss">,
  disk: Disk = Deno,
): Promise<string | undefined> {
  const checkpoint = stepName(step), best: BestCheckpoint = { step, loss, checkpoint };
  const names = await folderEntries(directory, disk), path = join(directory, checkpoint);
  if (!names.includes(checkpoint)) return undefined;
  const said = await readBest(directory, disk);
  if (said?.step === step && said.loss === loss) return path;
  try {
    await replaceFile(disk, join(directory, NAME), JSON.stringify(best, null, 2) + "\n");
  } catch (cause) {
    throw diskError(join(directory, NAME), cause, "the checkpoints are whole");
  }
  return path;
}

/** Removes the record of the best checkpoint if that is later than a step. */
export async function removeBest(directory: string, from: number): Promise<void> {
  const best = await readBest(directory);
  if (best && best.step > from) await removeIfThere(Deno, join(directory, NAME));
}

/**
 * Returns the best checkpoint of a folder; undefined if none is recorded.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const directory = await Deno.makeTempDir();
 * assert.equal(await readBest(directory), undefined);
 * const best = { step: 300, loss: 2.5, checkpoint: "step-00000300" };
 * await Deno.writeTextFile(`${directory}/best.json`, JSON.stringify(best));
 * assert.deepEqual(await readBest(directory), best);
 * await Deno.remove(directory, { recursive: true });
 * ```
 */
export async function readBest(
  directory: string,
  disk: Disk = Deno,
): Promise<BestCheckpoint | undefined> {
  const path = join(directory, NAME);
  try {
    using file = await openInput(disk, path, BYTES_MAX);
    const { step, loss, checkpoint } = parseRecord(path, await readBytes(file));
    const isStep = typeof step === "number" && Number.isSafeInteger(step) && step >= 0;
    const isBest = isStep && typeof loss === "number" && checkpoint === stepName(step);
    return isBest ? { step, loss, checkpoint } : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

const FINISHED_NAME = "finished.json";

/** Facts about a completed run. */
export interface Finished {
  /** Optimizer steps of the whole run. */
  readonly step: number;
  /** Loss of the last step; absent if no step was left to take. */
  readonly loss?: number | undefined;
  /** SHA-256 of all parameters. */
  readonly weightsHash: string;
  /** SHA-256 of the model and flags in the configuration of its checkpoints. */
  readonly configHash: string;
  /** Name that the launcher gives to the launch. */
  readonly launch?: string | undefined;
}

/** Returns the hash of the configuration in the checkpoints of a run. */
export const hashConfig = (config: unknown): string =>
  createHash("sha256").update(JSON.stringify(config ?? null)).digest("hex");

/** Writes the marker, which is durable when the promise resolves. */
export async function writeFinished(directory: string, finished: Finished): Promise<void> {
  const text = JSON.stringify(finished, null, 2) + "\n";
  await replaceFile(Deno, join(directory, FINISHED_NAME), text);
}

/**
 * Removes the marker, because another run starts in the folder.
 *
 * @throws {RangeError} if it cannot be removed.
 */
export async function removeFinished(directory: string): Promise<void> {
  const path = join(directory, FINISHED_NAME);
  const isRemoved = await removeIfThere(Deno, path).catch((cause) => {
    throw refusal("train", `${path} must be a file that can be removed`, cause);
  });
  if (isRemoved) await syncFolder(Deno, directory);
}

/** Reads the marker of a folder; undefined if there is no valid one. */
export async function readFinished(directory: string): Promise<Finished | undefined> {
  const path = join(directory, FINISHED_NAME);
  try {
    const { isFile, size } = await Deno.lstat(path);
    if (!isFile || size > BYTES_MAX) return undefined;
    const value: unknown = JSON.parse(await Deno.readTextFile(path));
    return typeof value === "object" && value !== null ? value as Finished : undefined;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound || error instanceof SyntaxError) return undefined;
    throw error;
  }
}
