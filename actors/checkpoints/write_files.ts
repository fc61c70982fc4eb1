/**
 * Writes the files of checkpoints, each synced and with its hash.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { join } from "node:path";
import { layoutSafetensors } from "../../kernels/mod.ts";
import type { ManifestEntry } from "./checkpoint_format.ts";
import type { Disk } from "./disk.ts";
import type { PlacedTensor } from "./tensors/tensor_source.ts";
import { bytesOf } from "./tensors/weights_hash.ts";

/** A file of tensors, and where each of them lies. */
export interface PlacedFile extends ManifestEntry {
  /** The file's name. */
  readonly name: string;
  /** Where each tensor lies in it. */
  readonly tensors: ReadonlyMap<string, Omit<PlacedTensor, "path" | "kind">>;
}

/** Writes tensors in F32 to a new file of a folder. */
export async function writeTensors(
  disk: Disk,
  folder: string,
  name: string,
  tensors: ReadonlyMap<string, Float32Array>,
  shapeOf: (name: string) => readonly number[],
): Promise<ManifestEntry> {
  const { header, parts } = layOut(tensors, shapeOf);
  return await writeFile(disk, join(folder, name), [header, ...parts]);
}

/** The same, told with the hash of each tensor. */
export async function placeTensors(
  disk: Disk,
  folder: string,
  name: string,
  tensors: ReadonlyMap<string, Float32Array>,
  shapeOf: (name: string) => readonly number[],
): Promise<PlacedFile> {
  const { header, names, parts } = layOut(tensors, shapeOf), hashes: string[] = [];
  const entry = await writeFile(disk, join(folder, name), [header, ...parts], hashes);
  let at = header.length;
  const places = names.map((name, i) => {
    const { length: bytes } = parts[i]!, place = { at, bytes, sha256: hashes[i + 1]! };
    at += bytes;
    return [name, place] as const;
  });
  return { name, ...entry, tensors: new Map(places) };
}

function layOut(
  tensors: ReadonlyMap<string, Float32Array>,
  shapeOf: (name: string) => readonly number[],
) {
  const infos = new Map(
    [...tensors.keys()].map((name) => [name, { dtype: "F32" as const, shape: shapeOf(name) }]),
  );
  const { header, names } = layoutSafetensors(infos, { format: "pt" });
  return { header, names, parts: names.map((name) => bytesOf(tensors.get(name)!)) };
}

/** Writes JSON to a new file of a folder. */
export async function writeJson(
  disk: Disk,
  folder: string,
  name: string,
  value: unknown,
): Promise<ManifestEntry> {
  const text = new TextEncoder().encode(JSON.stringify(value, null, 2) + "\n");
  return await writeFile(disk, join(folder, name), [text]);
}

/** Bytes that are hashed in one go, a quarter of a millisecond in which no message is heard. */
const PIECE_BYTES = 1 << 18;

/** Writes parts to a new file. @param hashes gets that of each part, where it is wanted. */
async function writeFile(
  disk: Disk,
  path: string,
  parts: readonly Uint8Array[],
  hashes?: string[],
): Promise<ManifestEntry> {
  const hash = createHash("sha256");
  let bytes = 0;
  using file = await disk.open(path, { write: true, createNew: true });
  for (const part of parts) {
    const own = hashes && createHash("sha256");
    bytes += part.length;
    for (let from = 0; from < part.length; from += PIECE_BYTES) {
      const piece = part.subarray(from, from + PIECE_BYTES);
      hash.update(piece);
      own?.update(piece);
      for (let done = 0; done < piece.length;) done += await file.write(piece.subarray(done));
    }
    if (own) hashes!.push(own.digest("hex"));
  }
  await file.syncData();
  return { bytes, sha256: hash.digest("hex") };
}
