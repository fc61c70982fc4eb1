/**
 * Files of a checkpoint, read when their bytes are those that its manifest tells.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { join } from "node:path";
import { checkInputFile } from "../../kernels/mod.ts";
import type { Manifest } from "./checkpoint_format.ts";
import type { Disk, DiskFile } from "./disk.ts";

/** The folder of a step that is read. */
export interface StepSource {
  readonly disk: Disk;
  readonly path: string;
  readonly manifest: Manifest;
}

/**
 * Reads a file of a checkpoint.
 *
 * @param bytesMax the most bytes that it may have.
 * @throws {SyntaxError} when it is not there as a file, or is not the one that the manifest tells.
 */
export async function readWhole<T>(
  { disk, path, manifest }: StepSource,
  name: string,
  bytesMax: number,
  read: (file: DiskFile, path: string) => Promise<T>,
): Promise<T> {
  const full = join(path, name), { bytes, sha256 } = manifest.files?.[name] ?? {};
  // What was hashed is what is read, whatever takes the path's place meanwhile.
  using file = await openInput(disk, full, bytesMax);
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

/** Opens a regular file of a checkpoint. @throws {SyntaxError} when there is none. */
export async function openInput(disk: Disk, path: string, bytesMax: number): Promise<DiskFile> {
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

/** All bytes of a file. */
export async function readBytes(file: DiskFile): Promise<Uint8Array> {
  const bytes = new Uint8Array((await file.stat()).size);
  for (let done = 0, read; done < bytes.length; done += read) {
    read = await file.read(bytes.subarray(done));
    if (read === null) return bytes.subarray(0, done);
  }
  return bytes;
}

/** An object of JSON. @throws {SyntaxError} when the bytes are none. */
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
