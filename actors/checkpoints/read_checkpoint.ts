/**
 * Reads checkpoints: only what is whole, as the hashes of its manifest say.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { basename, join, resolve } from "node:path";
import { checkInputFile } from "../../kernels/mod.ts";
import { folderEntries, stepFolder, stepFolders } from "./checkpoint_folders.ts";
import {
  BYTES_MAX,
  type Checkpoint,
  type FILES,
  FORMAT,
  type Manifest,
} from "./checkpoint_format.ts";
import type { Disk, DiskFile } from "./disk.ts";
import { readFloats } from "./weights.ts";

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
 * import { readCheckpoint, writeCheckpoint } from "@troupe/troupe/actors";
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
