/**
 * The folders of a directory of checkpoints, as their names tell them.
 *
 * `step-00000040` is whole, or was when it got its name. `.step-00000040-UUID` is being written, or
 * is what a crash left of that. `.step-00000040-UUID-old` has just been replaced: whole too, should
 * a crash have come between the two renames. `.lock` is that of checkpoint_lock.ts.
 *
 * @module
 */

import { join } from "node:path";
import type { Disk } from "./disk.ts";

/** What a folder is, the best first. */
const KINDS = ["whole", "replaced", "unfinished"] as const;

/** The folder of a step. */
export interface StepFolder {
  readonly name: string;
  readonly step: number;
  readonly kind: typeof KINDS[number];
}

const UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}";
const PATTERNS = {
  whole: /^step-(\d{8,})$/,
  replaced: new RegExp(`^\\.step-(\\d{8,})-${UUID}-old$`),
  unfinished: new RegExp(`^\\.step-(\\d{8,})-${UUID}$`),
};

/** The name of a checkpoint's folder. */
export const stepName = (step: number): string => `step-${String(step).padStart(8, "0")}`;

/** The name under which a checkpoint is written. */
export const unfinishedName = (step: number): string => `.${stepName(step)}-${crypto.randomUUID()}`;

/** The name of what makes way for another checkpoint of its step. */
export const replacedName = (unfinished: string): string => `${unfinished}-old`;

/** What a folder's name says of it; undefined for a folder that is no checkpoint's. */
export function stepFolder(name: string): StepFolder | undefined {
  for (const kind of KINDS) {
    const step = PATTERNS[kind].exec(name)?.[1];
    if (step !== undefined) return { name, step: Number(step), kind };
  }
  return undefined;
}

/** The checkpoints among a directory's names: the newest first, of one step the best first. */
export function stepFolders(names: readonly string[]): StepFolder[] {
  return names.map(stepFolder).filter((folder) => folder !== undefined).sort((a, b) =>
    b.step - a.step || KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind)
  );
}

/** The names in a folder; none where there is no folder. */
export async function folderEntries(path: string, disk: Disk = Deno): Promise<string[]> {
  try {
    return await Array.fromAsync(disk.readDir(path), ({ name }) => name);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return [];
    throw error;
  }
}

/** Removes what crashes have left half written. A directory belongs to one run at a time. */
export async function removeUnfinished(directory: string, disk: Disk = Deno): Promise<void> {
  const folders = stepFolders(await folderEntries(directory, disk));
  await remove(disk, directory, folders.filter(({ kind }) => kind === "unfinished"));
}

/**
 * Removes what the checkpoint of a step, now whole, has made needless: what it replaced, and older
 * steps beyond the newest `keep`, but for the best. Nothing else is touched, nor are later steps.
 */
export async function removeOld(
  directory: string,
  step: number,
  keep = Infinity,
  disk: Disk = Deno,
  best?: number,
): Promise<void> {
  const folders = stepFolders(await folderEntries(directory, disk));
  const replaced = folders.filter((folder) => folder.kind === "replaced" && folder.step === step);
  // What was replaced is all that is left of its step where the power failed in between.
  const older = folders.filter((folder) => folder.kind !== "unfinished" && folder.step < step);
  const kept = [...new Set(older.map((folder) => folder.step))].slice(0, keep - 1);
  await remove(disk, directory, [
    ...replaced,
    ...older.filter((folder) => !kept.includes(folder.step) && folder.step !== best),
  ]);
}

async function remove(
  disk: Disk,
  directory: string,
  folders: readonly StepFolder[],
): Promise<void> {
  for (const { name } of folders) await disk.remove(join(directory, name), { recursive: true });
}
