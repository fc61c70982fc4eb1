/**
 * Writes checkpoints: each file with its hash, then the folder as a whole.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { join, resolve } from "node:path";
import { layoutSafetensors, type ModelParameter, type StageState } from "../../kernels/mod.ts";
import { stepName, unfinishedName } from "./checkpoint_folders.ts";
import { FORMAT, type Manifest } from "./checkpoint_format.ts";
import type { Disk } from "./disk.ts";
import { makeFolder, replaceFolder, syncFolder } from "./durable_folder.ts";
import { bytesOf } from "./weights.ts";

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
