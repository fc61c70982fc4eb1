/**
 * `best.json`: which of the checkpoints in a folder has the best evaluation, as the run says that
 * keeps it. That checkpoint is never removed for newer ones.
 *
 * @module
 */

import { join } from "node:path";
import { folderEntries, stepName } from "../checkpoint_folders.ts";
import type { Disk } from "../disk.ts";
import { removeIfThere, replaceFile } from "../durable_folder.ts";
import { openInput, parseRecord, readBytes } from "../whole_files.ts";

const NAME = "best.json";

/** The most bytes of such a file that are read. */
const BYTES_MAX = 2 ** 16;

/** The best checkpoint of a folder. */
export interface BestCheckpoint {
  /** The step after which held-out data was evaluated. */
  readonly step: number;
  /** Its mean loss, in nats a prediction. */
  readonly loss: number;
  /** The name of its folder, in the same folder as this file. */
  readonly checkpoint: string;
}

/**
 * Says which checkpoint is the best, if it is there; once this resolves, no power failure takes that
 * back.
 *
 * @returns the checkpoint's folder; undefined where it lies elsewhere.
 * @throws {Error} saying what is in the way; what was said before stays.
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
    throw new Error(
      `Cannot write ${
        join(directory, NAME)
      }: its disk must have room and let itself be written to, received ${
        (cause as Error).message
      }; the checkpoints are whole`,
      { cause },
    );
  }
  return path;
}

/** Says no more which checkpoint is the best, if that is later than a step. */
export async function removeBest(directory: string, from: number): Promise<void> {
  const best = await readBest(directory);
  if (best && best.step > from) await removeIfThere(Deno, join(directory, NAME));
}

/**
 * Which checkpoint of a folder is the best; undefined where nothing says so.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { readBest } from "@troupe/troupe/actors";
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
