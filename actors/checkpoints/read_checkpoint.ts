/**
 * Reads checkpoints: only what is whole, as the hashes of its manifest say.
 *
 * @module
 */

import { basename, join, resolve } from "node:path";
import { folderEntries, stepFolder, stepFolders } from "./checkpoint_folders.ts";
import { type Checkpoint, FORMAT, type Manifest, SHARDED_FORMAT } from "./checkpoint_format.ts";
import { BYTES_MAX, fileName, TENSOR_BYTES_MAX } from "./checkpoint_format.ts";
import type { Disk } from "./disk.ts";
import { readShards } from "./read_shards.ts";
import { locateFloats, readFloats, type ReadTensors } from "./tensors/tensor_files.ts";
import type { PlacedTensor } from "./tensors/tensor_source.ts";
import { openInput, parseRecord, readBytes, readWhole } from "./whole_files.ts";

/**
 * Reads the newest whole checkpoint of a directory, or the one of a step's folder. Whatever else
 * the directory holds, such as what a crash left of a checkpoint, is passed over.
 *
 * @param announce told in words which checkpoints, newer than the one that is read, are not whole;
 * where none is whole, the newest is told as what is thrown, alone.
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
  return await newestOf(path, announce, disk, readFloats);
}

/**
 * Looks where the tensors of the newest whole checkpoint lie, as {@linkcode readCheckpoint} reads
 * them, and keeps none in memory: who needs one reads it by itself.
 *
 * @param announce as of {@linkcode readCheckpoint}.
 * @throws as {@linkcode readCheckpoint}; and {@linkcode RangeError} when a tensor has numbers that no
 * run could have kept.
 */
export async function locateCheckpoint(
  path: string,
  announce: (line: string) => void = () => {},
): Promise<Checkpoint<PlacedTensor> | undefined> {
  return await newestOf(path, announce, Deno, locateFloats);
}

/** How often a folder is looked through that another program writes to meanwhile. */
const MAX_LOOKS = 10;

async function newestOf<T>(
  path: string,
  announce: (line: string) => void,
  disk: Disk,
  read: ReadTensors<T>,
  looks = MAX_LOOKS,
): Promise<Checkpoint<T> | undefined> {
  const names = await folderEntries(path, disk).catch((cause) => {
    throw new RangeError(
      `Cannot read a checkpoint from ${path}: it must be a folder, received ${cause.message}`,
      { cause },
    );
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
  // A run that keeps few may have removed them for newer ones.
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
  const { weights, moments } = manifest.format === FORMAT
    ? {
      weights: await readWhole(folder, fileName("model"), TENSOR_BYTES_MAX.model, read),
      moments: await readWhole(folder, fileName("optimizer"), TENSOR_BYTES_MAX.optimizer, read),
    }
    : await readShards(folder, read);
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
  const { format, step } = manifest, formats: readonly unknown[] = [FORMAT, SHARDED_FORMAT];
  if (!formats.includes(format) || !Number.isSafeInteger(step) || step! < 0) {
    throw new SyntaxError(
      `Cannot read the checkpoint ${path}: its manifest must have format ${
        formats.join(" or ")
      } and a step, received ${JSON.stringify({ format, step }).slice(0, 80)}`,
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
