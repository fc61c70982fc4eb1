/**
 * Writes checkpoints: each file with its hash, then the folder as a whole.
 *
 * @module
 */

import { join, resolve } from "node:path";
import type { ModelParameter, StageState, StateOf } from "../../kernels/mod.ts";
import { stepName, unfinishedName } from "./checkpoint_folders.ts";
import { type FileKind, fileName, FORMAT, type Manifest } from "./checkpoint_format.ts";
import type { Disk } from "./disk.ts";
import { makeFolder, replaceFolder, syncFolder } from "./durable_folder.ts";
import { type HeldState, heldValues } from "./tensors/held_state.ts";
import type { PlacedTensor } from "./tensors/tensor_source.ts";
import {
  type NewFiles,
  newFiles,
  type PlacedFile,
  writeJson,
  writeTensors,
} from "./write_files.ts";

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
  const shapes = new Map(parameters.map(({ name, shape }) => [name, shape]));
  const held = heldValues(state, shapes);
  return (await writeHeld(directory, { step, state: held, config }, disk)).path;
}

/** A checkpoint that is whole, and where its tensors lie. */
export interface WrittenCheckpoint {
  /** Its folder. */
  readonly path: string;
  /** Weights and moments. */
  readonly state: StateOf<PlacedTensor>;
}

/**
 * Writes a checkpoint of what somebody else holds, as it is read.
 *
 * @throws {Error} what reading throws; or as {@linkcode writeCheckpoint}.
 */
export async function writeHeld(
  directory: string,
  { step, state, config }: {
    readonly step: number;
    readonly state: HeldState;
    readonly config: Readonly<Record<string, unknown>>;
  },
  disk: Disk = Deno,
): Promise<WrittenCheckpoint> {
  let failure: unknown;
  const written = new Map<FileKind, PlacedFile>();
  const read: HeldState["read"] = (parts) =>
    state.read(parts).catch((error) => {
      throw failure = error;
    });
  const write = async (files: NewFiles, kind: FileKind) => {
    const file = await writeTensors(files, fileName(kind), { ...state, read }, kind);
    written.set(kind, file);
    return { bytes: file.bytes, sha256: file.sha256 };
  };
  const path = await writeFolder(directory, step, disk, async (files) => {
    const entries = {
      [fileName("model")]: await write(files, "model"),
      [fileName("optimizer")]: await write(files, "optimizer"),
      "config.json": await writeJson(files, "config.json", config),
    };
    return { format: FORMAT, step, files: entries };
  }).catch((error) => {
    throw failure ?? error;
  });
  const placed = (kind: FileKind) => placedIn(path, [written.get(kind)!]);
  return { path, state: { weights: placed("model"), moments: placed("optimizer") } };
}

/** Where the tensors of some files lie, when their folder has its name. */
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
 * Writes the folder of a step, which is whole in the end or not there at all.
 *
 * @param fill writes its files into a folder that has another name as yet, and says what they are.
 * @returns its path.
 * @throws {Error} saying what is in the way; what was there before stays.
 */
export async function writeFolder(
  directory: string,
  step: number,
  disk: Disk,
  fill: (files: NewFiles, folder: string) => Promise<Manifest>,
): Promise<string> {
  const target = join(directory, stepName(step));
  const temporary = join(directory, unfinishedName(step));
  try {
    await makeFolder(disk, resolve(directory));
    await disk.mkdir(temporary);
    await fillFolder(disk, temporary, fill);
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

/** The manifest is written last: it tells of nothing that is not durable. */
async function fillFolder(
  disk: Disk,
  folder: string,
  fill: (files: NewFiles, folder: string) => Promise<Manifest>,
): Promise<void> {
  using files = newFiles(disk, folder);
  const manifest = await fill(files, folder);
  await files.sync();
  await writeJson(files, "manifest.json", manifest);
  await files.sync();
}
