/**
 * `finished.json`: what a run leaves in the folder of its checkpoints when it has come to its end.
 *
 * Exit codes of launchers do not tell it: one that counts processes may say 0 where a rank has left
 * before its time. So a run that begins takes the mark away, and only one that is whole sets it.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { join } from "node:path";
import { removeIfThere, replaceFile, syncFolder } from "../durable_folder.ts";

const NAME = "finished.json";

/** The most bytes of such a file that are read. */
const BYTES_MAX = 2 ** 16;

/** What is known of a run that has come to its end. */
export interface Finished {
  /** Optimizer steps of the whole run. */
  readonly step: number;
  /** Loss of the last of them; absent where none was left to be taken. */
  readonly loss?: number | undefined;
  /** SHA-256 of all parameters. */
  readonly weightsHash: string;
  /** SHA-256 of what its checkpoints say of model and flags. */
  readonly configHash: string;
  /** Who launched it, as the launcher calls itself. */
  readonly launch?: string | undefined;
}

/** The hash of what checkpoints say of a run. */
export const hashConfig = (config: unknown): string =>
  createHash("sha256").update(JSON.stringify(config ?? null)).digest("hex");

/** Sets the mark; once this resolves, no power failure takes it away. */
export async function writeFinished(directory: string, finished: Finished): Promise<void> {
  const text = JSON.stringify(finished, null, 2) + "\n";
  await replaceFile(Deno, join(directory, NAME), text);
}

/**
 * Takes the mark away: what it was about is no longer the last run of the folder.
 *
 * @throws {RangeError} when it stays.
 */
export async function removeFinished(directory: string): Promise<void> {
  const path = join(directory, NAME);
  const isRemoved = await removeIfThere(Deno, path).catch((cause) => {
    throw new RangeError(
      `Cannot train: ${path} must be a file that can be removed, received ${cause.message}`,
      { cause },
    );
  });
  if (isRemoved) await syncFolder(Deno, directory);
}

/** The mark of a folder; undefined where there is none, or what is there is none. */
export async function readFinished(directory: string): Promise<Finished | undefined> {
  const path = join(directory, NAME);
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
