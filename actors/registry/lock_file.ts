/**
 * `troupe.lock`, beside a registry's file: for each name the versions of what its modules import, as
 * Deno writes them into a lock file. What was hashed once is so found again on every machine.
 *
 * @module
 */

import { dirname, join } from "node:path";
import type { Lock } from "../sandbox/mod.ts";
import { isRecord } from "./entries.ts";
import { readText, replaceFile } from "./text_file.ts";

/** Locks by name. */
export type Locks = Readonly<Record<string, Lock>>;

const VERSION = "1";

/** Bytes of such a file. */
const BYTES_MAX = 2 ** 24;

/** The lock file of a registry's file. */
const lockPathOf = (path: string): string => join(dirname(path), "troupe.lock");

/**
 * Reads the locks of a registry.
 *
 * @param path of its file.
 * @throws {SyntaxError} when they are no JSON.
 * @throws {TypeError} when they are of another kind than they must be.
 */
export function readLocks(path: string): Locks {
  const lockPath = lockPathOf(path), text = readText(lockPath, BYTES_MAX);
  if (text === undefined) return {};
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new SyntaxError(`Cannot read ${lockPath}: it must be JSON`, { cause });
  }
  const isLock = isRecord(value) && value.version === VERSION && isRecord(value.locks) &&
    Object.values(value.locks).every(isRecord);
  if (isLock) return (value as { readonly locks: Locks }).locks;
  throw new TypeError(
    `Cannot read ${lockPath}: it must be of version "${VERSION}", with a record for each name; ` +
      `without it, "troupe actors add" chooses versions again`,
  );
}

/** Writes the lock of a name; where nothing was chosen for it, or it is undefined, it has none. */
export async function editLock(path: string, name: string, lock: Lock = {}): Promise<void> {
  const before = readLocks(path), { [name]: _, ...others } = before;
  const isEmpty = Object.keys(lock).every((key) => key === "version");
  if (isEmpty && !Object.hasOwn(before, name)) return;
  const locks = Object.entries(isEmpty ? others : { ...others, [name]: lock })
    .sort(([one], [other]) => one < other ? -1 : 1);
  if (locks.length === 0) return await Deno.remove(lockPathOf(path));
  const value = { version: VERSION, locks: Object.fromEntries(locks) };
  await replaceFile(lockPathOf(path), `${JSON.stringify(value, null, 2)}\n`);
}
