/**
 * Writes checkpoints: each file with its hash, then the folder as a whole.
 *
 * @module
 */

import { join, resolve } from "node:path";
import type { ModelParameter, StageState } from "../../kernels/mod.ts";
import { stepName, unfinishedName } from "./checkpoint_folders.ts";
import { FORMAT, type Manifest } from "./checkpoint_format.ts";
import type { Disk } from "./disk.ts";
import { makeFolder, replaceFolder, syncFolder } from "./durable_folder.ts";
import { writeJson, writeTensors } from "./write_files.ts";

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
  const shapes = new Map(parameters.map((parameter) => [parameter.name, parameter.shape]));
  const momentShape = (key: string) => shapes.get(key.slice(0, key.lastIndexOf(".")))!;
  return await writeFolder(directory, step, disk, async (folder) => {
    const write = (
      name: string,
      tensors: ReadonlyMap<string, Float32Array>,
      shapeOf: (name: string) => readonly number[],
    ) => writeTensors(disk, folder, name, tensors, shapeOf);
    const files = {
      "model.safetensors": await write(
        "model.safetensors",
        state.weights,
        (key) => shapes.get(key)!,
      ),
      "optimizer.safetensors": await write("optimizer.safetensors", state.moments, momentShape),
      "config.json": await writeJson(disk, folder, "config.json", config),
    };
    return { format: FORMAT, step, files };
  });
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
  fill: (folder: string) => Promise<Manifest>,
): Promise<string> {
  const target = join(directory, stepName(step));
  const temporary = join(directory, unfinishedName(step));
  try {
    await makeFolder(disk, resolve(directory));
    await disk.mkdir(temporary);
    await writeJson(disk, temporary, "manifest.json", await fill(temporary));
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
