/**
 * Writes the files of checkpoints, each synced and with its hash.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { join } from "node:path";
import { layoutSafetensors } from "../../kernels/mod.ts";
import type { FileKind, ManifestEntry } from "./checkpoint_format.ts";
import type { Disk, DiskFile } from "./disk.ts";
import { type HeldState, readPieces } from "./tensors/held_state.ts";
import type { PlacedTensor } from "./tensors/tensor_source.ts";
import { bytesOf } from "./tensors/weights_hash.ts";

/** A file of tensors, and where each of them lies. */
export interface PlacedFile extends ManifestEntry {
  /** The file's name. */
  readonly name: string;
  /** Where each tensor lies in it. */
  readonly tensors: ReadonlyMap<string, Omit<PlacedTensor, "path" | "kind">>;
}

/** New files of a folder, which stay open until all of them are durable. */
export interface NewFiles extends Disposable {
  /** Makes a file and writes bytes to it as they come. */
  write(
    name: string,
    bytes: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  ): Promise<ManifestEntry>;
  /** Makes durable what has been written. */
  sync(): Promise<void>;
}

/** Bytes that are hashed in one go, a quarter of a millisecond in which no message is heard. */
const PIECE_BYTES = 1 << 18;

/**
 * New files of a folder. Writing them and waiting for the disk are two things: when all tensors have
 * been read, those who hold them need not wait until they are durable.
 *
 * @param signal ends what writes.
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
 * @param isHashed whether the place of each tensor is told with its hash.
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
    let at = header.length, bytes = 0, hash = createHash("sha256");
    for await (const { name, values, isLast } of readPieces(state, kind, names)) {
      const piece = bytesOf(values);
      bytes += piece.length;
      if (isHashed) hash.update(piece);
      yield piece;
      if (!isLast) continue;
      tensors.set(name, { at, bytes, ...isHashed && { sha256: hash.digest("hex") } });
      at += bytes;
      bytes = 0;
      hash = createHash("sha256");
    }
  }
  return { ...await files.write(name, parts()), name, tensors };
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
