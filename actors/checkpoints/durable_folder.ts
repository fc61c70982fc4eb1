/**
 * Folders and files that a power failure leaves whole: what is made, renamed or replaced, and synced.
 *
 * @module
 */

import { basename, dirname, join, resolve } from "node:path";
import { replacedName } from "./checkpoint_folders.ts";
import type { Disk } from "./disk.ts";
import { type NewFiles, newFiles } from "./write_files.ts";

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

/**
 * Makes a folder with its files: it is whole in the end, or not there at all.
 *
 * @param fill writes its files, while it has another name yet, that of `path` with a dot before it.
 * @param signal ends it, and nothing is left.
 * @throws {RangeError} when there is something of that name.
 * @throws {Error} what `fill` throws; or saying what is in the way, such as a full disk.
 */
export async function writeNewFolder(
  path: string,
  fill: (files: NewFiles) => Promise<unknown>,
  signal?: AbortSignal,
): Promise<void> {
  await writeNew(
    path,
    "folder",
    fill,
    signal,
    (temporary, target) => Deno.rename(temporary, target),
  );
}

/**
 * Makes a file: it is whole in the end, or not there at all.
 *
 * @param signal ends it, and nothing is left.
 * @throws {RangeError} when there is something of that name.
 * @throws {Error} saying what is in the way, such as a full disk.
 */
export async function writeNewFile(
  path: string,
  bytes: Iterable<Uint8Array>,
  signal?: AbortSignal,
): Promise<void> {
  const name = basename(resolve(path)), fill = (files: NewFiles) => files.write(name, bytes);
  await writeNew(path, "file", fill, signal, async (from, target) => {
    await Deno.rename(join(from, name), target);
    await Deno.remove(from);
  });
}

async function writeNew(
  path: string,
  kind: "folder" | "file",
  fill: (files: NewFiles) => Promise<unknown>,
  signal: AbortSignal | undefined,
  place: (temporary: string, target: string) => Promise<void>,
): Promise<void> {
  await checkNew(path, kind);
  const target = resolve(path), parent = dirname(target);
  const temporary = join(parent, `.${basename(target)}-${crypto.randomUUID()}`);
  try {
    await makeFolder(Deno, parent);
    await Deno.mkdir(temporary);
    await fillFolder(temporary, fill, signal);
    await place(temporary, target);
    await syncFolder(Deno, parent);
  } catch (cause) {
    await Deno.remove(temporary, { recursive: true }).catch(() => {});
    signal?.throwIfAborted();
    if (/^Cannot /.test((cause as Error).message)) throw cause; // what `fill` says in a sentence
    throw new Error(
      `Cannot write ${path}: its disk must have room and let itself be written to, received ${
        (cause as Error).message
      }; nothing is left there`,
      { cause },
    );
  }
}

async function fillFolder(
  folder: string,
  fill: (files: NewFiles) => Promise<unknown>,
  signal: AbortSignal | undefined,
): Promise<void> {
  using files = newFiles(Deno, folder, signal);
  await fill(files);
  await files.sync();
  await syncFolder(Deno, folder);
}

/**
 * Refuses a place where there is something, whatever it is.
 *
 * @param kind what is to be there.
 * @throws {RangeError} when there is something of that name.
 */
export async function checkNew(path: string, kind: "folder" | "file"): Promise<void> {
  const found = await Deno.lstat(path).then(() => "one that is", (error: Error) => {
    return error instanceof Deno.errors.NotFound ? undefined : error.message;
  });
  if (found === undefined) return;
  throw new RangeError(
    `Cannot write ${path}: it must be a ${kind} that is not there yet, received ${found}; name another`,
  );
}

/**
 * Writes a small file in the place of another: whoever reads finds one of the two, whole. Once this
 * resolves, no power failure takes it away.
 */
export async function replaceFile(
  disk: Disk,
  path: string,
  content: string | Uint8Array,
): Promise<void> {
  const folder = dirname(path), name = `.${basename(path)}`, unfinished = join(folder, name);
  await removeIfThere(disk, unfinished);
  try {
    {
      using files = newFiles(disk, folder);
      const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
      await files.write(name, [bytes]);
      await files.sync();
    }
    await disk.rename(unfinished, path);
    await syncFolder(disk, folder);
  } catch (error) {
    await disk.remove(unfinished).catch(() => {});
    throw error;
  }
}

/** Removes a file if it is there; returns whether it was. */
export async function removeIfThere(disk: Disk, path: string): Promise<boolean> {
  try {
    await disk.remove(path);
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}
