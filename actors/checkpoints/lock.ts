/**
 * Ownership of a folder of checkpoints. A run starts in a folder without checkpoints of other runs,
 * or resumes from them, or overwrites them.
 *
 * [Note: a lock that dies with its process] The file `.lock` names its holder for messages. The
 * system's lock on that file decides, and it ends with its process in every case. A process that
 * locks a file which was removed in the meantime holds nothing and tries again.
 *
 * @module
 */

import { assertInput, builtin, refusal, resultOr } from "../../kernels/internal.ts";
import { folderEntries, type StepFolder, stepFolder, stepFolders } from "./format.ts";
import { removeBest, removeFinished } from "./markers.ts";

const { basename, dirname, join, relative, resolve, sep } = builtin("node:path");

const NAME = ".lock";

/** Text of the lock file. */
const HOLDER = /^(pid \d{1,10} on [\w.-]{1,255})\n$/;

/** Maximum attempts to lock a folder that ending runs remove at the same time. */
const MAX_TRIES = 100;

/** Attempts to take a lock, which {@linkcode isInUse} may hold for a moment. */
const MAX_LOOKS = 3;

/** Milliseconds between two attempts. */
const LOOK_MS = 10;

/** Bytes of a lock file that are read for the name of its holder. */
const MAX_BYTES = 300;

/**
 * Locks a folder for one run until the lock is disposed of, and creates the folder if it does not exist.
 * Folders that were created here and are empty at the end are removed.
 *
 * @throws {RangeError} when another run has the folder, or it cannot be taken.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { join } from "node:path";
 *
 * const directory = await Deno.makeTempDir(), out = join(directory, "runs", "mine");
 * {
 *   using _lock = lockFolder(out);
 *   assert.throws(() => lockFolder(out), new RegExp(`received pid ${Deno.pid} on `));
 * }
 * assert.deepEqual([...Deno.readDirSync(directory)], []);
 * await Deno.remove(directory);
 * ```
 */
export function lockFolder(directory: string) {
  const made: string[] = [], path = join(directory, NAME);
  let file = hold(directory, made), isOver = false;
  return {
    /**
     * Creates and locks the folder again if the folder or its lock was removed.
     *
     * @param announce reports once that it was removed, or why it cannot be made again.
     * @throws {RangeError} when another run has it now.
     */
    renew(announce: (line: string) => void) {
      try {
        if (isOver || isAt(path, file)) return;
        const before = file;
        file = hold(directory, made);
        before.close();
        announce(`${directory} or its lock was removed during the run: it is made again`);
      } catch (error) {
        isOver = true;
        if ((error as Error).cause instanceof HeldError) throw error;
        announce(`${(error as Error).message}; training continues`);
      }
    },
    [Symbol.dispose]() {
      giveUp(path, file);
      removeEmpty(made);
    },
  };
}

/** Locks the folder, and writes the name of the holder into the lock. */
function hold(directory: string, made: string[]): Deno.FsFile {
  let file: Deno.FsFile | undefined;
  try {
    file = take(directory, made);
    file.truncateSync();
    file.writeSync(new TextEncoder().encode(`pid ${Deno.pid} on ${hostname()}\n`));
    return file;
  } catch (cause) {
    if (file) giveUp(join(directory, NAME), file);
    removeEmpty(made);
    const isHeld = cause instanceof HeldError;
    const must = isHeld ? "not be in use by another run" : "let itself be locked";
    throw refusal(`write checkpoints to ${directory}`, `it must ${must}`, cause);
  }
}

/**
 * Returns whether a run has a folder now. Nothing is written: a free lock is taken for a moment, and a
 * run that wants it meanwhile tries again.
 */
export function isInUse(directory: string): boolean {
  const path = join(directory, NAME);
  if (!lstat(path)?.isFile) return false;
  return resultOr(() => {
    using file = Deno.openSync(path);
    return !file.tryLockSync(false);
  }, false); // the run has just ended, or the lock may not be read
}

/** Removes the file before the lock ends if the system allows it, while no other run has it. */
function giveUp(path: string, file: Deno.FsFile): void {
  const isOwn = isAt(path, file), isLeft = isOwn && !tryToRemove(path);
  file.close();
  if (isLeft) tryToRemove(path);
}

/** Returns whether a path still leads to an open file, which may have been removed and made again. */
export function isAt(path: string, file: Deno.FsFile): boolean {
  const there = lstat(path), here = file.statSync();
  return there !== undefined && there.ino === here.ino && there.dev === here.dev;
}

/** Another run, which the message names, has the folder. */
class HeldError extends Error {}

/** Makes the folder if it is missing and locks it; adds made folders to `made`, the lowest first. */
function take(directory: string, made: string[]): Deno.FsFile {
  for (let tries = 1;; tries++) {
    try {
      for (const folder of missingFolders(directory)) {
        makeFolder(folder);
        made.unshift(folder);
      }
      const file = tryLock(join(directory, NAME));
      if (file) return file;
      if (tries === MAX_TRIES) throw new Error("a file that others remove again and again");
    } catch (error) {
      // Another run may have ended in the meantime and removed the folder that it had made.
      if (!(error instanceof Deno.errors.NotFound) || tries === MAX_TRIES) throw error;
    }
  }
}

/** The file, locked; undefined when it was removed meanwhile. */
function tryLock(path: string): Deno.FsFile | undefined {
  // Only a regular file is a lock: a link points elsewhere, and a pipe blocks.
  const before = lstat(path);
  if (before && !before.isFile) throw new TypeError(`something that is no file at ${path}`);
  const file = Deno.openSync(path, { read: true, write: true, create: true });
  try {
    if (!canLock(file)) {
      throw new HeldError(`${holderOf(file)}; wait for its end, or name another folder`);
    }
    if (isAt(path, file)) return file;
  } catch (error) {
    file.close();
    throw error;
  }
  file.close();
  return undefined;
}

function canLock(file: Deno.FsFile): boolean {
  for (let looks = 1;; looks++) {
    if (file.tryLockSync(true)) return true;
    if (looks === MAX_LOOKS) return false;
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, LOOK_MS);
  }
}

function holderOf(file: Deno.FsFile): string {
  const bytes = new Uint8Array(MAX_BYTES);
  return resultOr(() => {
    const text = new TextDecoder().decode(bytes.subarray(0, file.readSync(bytes) ?? 0));
    return HOLDER.exec(text)?.[1] ?? "an unnamed process";
  }, "an unknown process"); // on Windows a locked file cannot be read
}

/** Returns the name of the machine, or "localhost" without the permission to read it. */
const hostname = (): string => resultOr(() => Deno.hostname(), "localhost");

/** Reads from a path; returns another value if the path does not exist. */
export function unlessMissing<T, O>(read: () => T, otherwise: O): T | O {
  try {
    return read();
  } catch (error) {
    const { NotFound, NotADirectory } = Deno.errors;
    if (error instanceof NotFound || error instanceof NotADirectory) return otherwise;
    throw error;
  }
}

/** Returns the information of a path without following links; undefined if it does not exist. */
export const lstat = (path: string): Deno.FileInfo | undefined =>
  unlessMissing(() => Deno.lstatSync(path), undefined);

/** Returns the missing folders of a path, the highest first. */
function missingFolders(directory: string): string[] {
  const missing = [];
  for (let path = resolve(directory); !lstat(path); path = dirname(path)) missing.unshift(path);
  return missing;
}

/** Makes a folder, and its name durable: a checkpoint in it is no safer than the folder. */
function makeFolder(path: string): void {
  Deno.mkdirSync(path, { recursive: true }); // another run may make it too
  if (Deno.build.os === "windows") return; // Windows cannot open folders, and needs no such call
  using above = Deno.openSync(dirname(path));
  above.syncSync();
}

function removeEmpty(folders: readonly string[]): void {
  for (const folder of folders) if (!lstat(folder)?.isDirectory || !tryToRemove(folder)) return;
}

/** Removes a file or an empty folder; returns false if it cannot be removed. */
export function tryToRemove(path: string): boolean {
  return resultOr(() => {
    Deno.removeSync(path);
    return true;
  }, false);
}

/** Facts about a run that decide whether it may use a folder. */
export interface Claim {
  /** Checkpoint from which the run continues, and its folder if known. */
  readonly resume?: { readonly step: number; readonly path?: string | undefined } | undefined;
  /** True if it takes the place of the run that was there. */
  readonly overwrite?: boolean | undefined;
  /** Initial weights; a file is read after the claim. */
  readonly weights?: object | string | undefined;
}

/**
 * Makes sure that a run may write its checkpoints to a directory.
 *
 * @throws {RangeError} when it holds checkpoints of another run, or what would be removed holds the
 * weights to begin with.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { heldValues } from "./tensors.ts";
 * import { writeHeld } from "./write.ts";
 *
 * const directory = await Deno.makeTempDir();
 * await checkClaim(directory, {});
 * const state = heldValues({ weights: new Map(), moments: new Map() }, new Map());
 * const { path } = await writeHeld(directory, { step: 1, state, config: {} });
 * await assert.rejects(checkClaim(directory, {}), RangeError);
 * await checkClaim(directory, { resume: { step: 1, path } });
 * await checkClaim(directory, { overwrite: true });
 * await Deno.remove(directory, { recursive: true });
 * ```
 */
export async function checkClaim(directory: string, claim: Claim): Promise<void> {
  if (claim.overwrite) return checkWeights(directory, claim);
  if (goesOnIn(directory, claim)) return;
  const newest = await newestIn(directory);
  if (!newest) return;
  const must = "the folder must have no checkpoints of another run";
  const remedy = `resume it with --resume ${directory}, remove what is there with --overwrite ` +
    "(in a script: resume, checkpoint.overwrite), or name another folder";
  const received = `one of step ${newest.step}; ${remedy}`;
  throw refusal(`write checkpoints to ${directory}`, must, received);
}

/**
 * Checks the claim of a run that holds the lock. With `overwrite`, removes all checkpoints, or those
 * after the checkpoint from which the run continues.
 *
 * @throws {RangeError} as {@linkcode checkClaim}; or when something cannot be removed.
 */
export async function claimFolder(directory: string, claim: Claim): Promise<void> {
  await checkClaim(directory, claim);
  const goesOn = goesOnIn(directory, claim), from = goesOn ? claim.resume!.step : -1;
  if (!claim.overwrite) {
    // The checkpoint that it names has been removed.
    if (!goesOn) await removeBest(directory, from);
    return;
  }
  const later = (await checkpointsIn(directory)).filter(({ step }) => step > from);
  try {
    await removeBest(directory, from);
    // The oldest last: an interrupted removal leaves an earlier state without gaps.
    for (const { name } of later) await Deno.remove(join(directory, name), { recursive: true });
  } catch (cause) {
    const must = "its checkpoints must let themselves be removed";
    throw refusal(`overwrite ${directory}`, must, cause);
  }
  await removeFinished(directory);
}

/** Refuses to remove files that the run is about to read. */
function checkWeights(directory: string, { resume, weights }: Claim): void {
  if (resume || typeof weights !== "string") return;
  const [name] = relative(real(directory), real(weights)).split(sep);
  const must = "its checkpoints must not hold the weights to begin with";
  const remedy = "name another folder for the checkpoints, or copy the weights out first";
  assertInput(!stepFolder(name!), `overwrite ${directory}`, must, `${weights}; ${remedy}`);
}

/** Returns the newest folder of a step that is not empty and not unfinished. */
async function newestIn(directory: string): Promise<StepFolder | undefined> {
  for (const folder of await checkpointsIn(directory)) {
    if (folder.kind === "unfinished") continue;
    if ((await folderEntries(join(directory, folder.name))).length > 0) return folder;
  }
  return undefined;
}

const checkpointsIn = async (directory: string) => stepFolders(await folderEntries(directory));

/** Returns whether a run resumes in the folder of its checkpoint, or from an unknown folder. */
export function goesOnIn(directory: string, { resume }: Claim): boolean {
  if (!resume?.path) return resume !== undefined;
  const path = resolve(resume.path), folder = stepFolder(basename(path)) ? dirname(path) : path;
  return real(folder) === real(directory);
}

/** Returns a path without links, or as it is if it does not exist. */
export const real = (path: string): string =>
  resultOr(() => Deno.realPathSync(path), resolve(path));
