/**
 * Folders that a power failure leaves whole: what is made, renamed or replaced, and synced.
 *
 * @module
 */

import { dirname } from "node:path";
import { replacedName } from "./checkpoint_folders.ts";
import type { Disk } from "./disk.ts";

/** Makes a folder and those above it. Each is durable before anything is put into it. */
export async function makeFolder(disk: Disk, path: string): Promise<void> {
  try {
    await disk.mkdir(path);
  } catch (error) {
    if (error instanceof Deno.errors.AlreadyExists) return;
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    await makeFolder(disk, dirname(path));
    await disk.mkdir(path);
  }
  try {
    await syncFolder(disk, dirname(path));
  } catch (error) {
    // Else the next checkpoint would find it and take it for durable.
    await disk.remove(path).catch(() => {});
    throw error;
  }
}

/**
 * Renames a folder over another; the other leaves the way first and is removed last. Not before the
 * new names are durable: else the power could fail when the old one is in pieces and the new one
 * nowhere.
 */
export async function replaceFolder(disk: Disk, from: string, to: string): Promise<void> {
  const old = replacedName(from);
  const isReplaced = await disk.rename(to, old).then(() => true, (error) => {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  });
  await disk.rename(from, to);
  await syncFolder(disk, dirname(to));
  if (isReplaced) await disk.remove(old, { recursive: true });
}

/** Makes renames inside a folder durable. Windows cannot open folders and needs no such call. */
export async function syncFolder(disk: Disk, path: string): Promise<void> {
  if (Deno.build.os === "windows") return;
  using folder = await disk.open(path);
  await folder.sync();
}
