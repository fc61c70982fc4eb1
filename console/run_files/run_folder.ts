/**
 * The folder of a run that was told of none: numbered, and nobody else's.
 *
 * @module
 */

import { existsSync } from "node:fs";
import { join, parse } from "node:path";
import { lstat } from "../../actors/checkpoints/lock.ts";
import { didYouMean } from "../../actors/options/option.ts";

/** Where such folders are, from where the command is run. */
export const RUNS_FOLDER = "runs";

/** Runs that may take the next number just before this one. */
const TRIES_MAX = 1000;

/** Characters of a model's name that a folder's has. */
const NAME_MAX = 60;

/** The path of a run: as it is named, or below `runs/` where it is there alone. */
export function runPath(named: string): string {
  const below = join(RUNS_FOLDER, named);
  return !existsSync(named) && /^[^./\\]/.test(named) && existsSync(below) ? below : named;
}

/** The run that was probably meant, as the end of a sentence; empty where the named one is there. */
export function meantRun(named: string): string {
  if (existsSync(named)) return "";
  const { dir, base } = parse(named),
    isFolder = (name: string) => lstat(join(dir, name))!.isDirectory;
  const siblings = dir !== "" && existsSync(dir) ? namesIn(dir).filter(isFolder) : [];
  const near = didYouMean(base, siblings).replace(/\S+$/, (name) => join(dir, name));
  return near || didYouMean(base, namesIn(RUNS_FOLDER));
}

/** A folder that is made; disposing of it removes what is still empty. */
interface MadeFolder extends Disposable {
  readonly path: string;
}

/**
 * The path of the next run of a model: its name and a number higher than any that is there. The
 * folder is not made.
 *
 * @param model its name; what cannot stand in the name of a folder becomes `-`.
 */
export function nextRunFolder(model: string, parent: string = RUNS_FOLDER): string {
  const name = folderName(model), pattern = new RegExp(`^${RegExp.escape(name)}-([1-9]\\d{0,8})$`);
  const numbers = namesIn(parent).map((one) => Number(pattern.exec(one)?.[1] ?? 0));
  return join(parent, `${name}-${Math.max(0, ...numbers) + 1}`);
}

/**
 * Makes the folder of the next run of a model. Who makes it has it: of two that begin at once, one
 * gets the next number.
 *
 * @throws {RangeError} when it cannot be made.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { basename } from "node:path";
 *
 * const parent = await Deno.makeTempDir();
 * {
 *   using first = makeRunFolder("gpt", parent);
 *   using second = makeRunFolder("gpt", parent);
 *   assert.deepEqual([first, second].map(({ path }) => basename(path)), ["gpt-1", "gpt-2"]);
 * }
 * assert.deepEqual([...Deno.readDirSync(parent)], [], "nothing was put into them");
 * await Deno.remove(parent);
 * ```
 */
export function makeRunFolder(model: string, parent: string = RUNS_FOLDER): MadeFolder {
  try {
    const isNew = lstat(parent) === undefined;
    if (isNew) Deno.mkdirSync(parent, { recursive: true });
    const path = makeNext(model, parent);
    return {
      path,
      [Symbol.dispose]: () => [path, ...isNew ? [parent] : []].forEach(removeEmpty),
    };
  } catch (cause) {
    throw new RangeError(
      `Cannot begin a run: ${parent} must be a folder that can be written, or --out name another, received ${
        (cause as Error).message
      }`,
      { cause },
    );
  }
}

function makeNext(model: string, parent: string): string {
  for (let tries = 1;; tries++) {
    const path = nextRunFolder(model, parent);
    try {
      Deno.mkdirSync(path);
      return path;
    } catch (error) {
      if (!(error instanceof Deno.errors.AlreadyExists) || tries === TRIES_MAX) throw error;
    }
  }
}

/** A model may be a stranger's. */
const folderName = (model: string) =>
  model.replaceAll(/[^\w-]+/g, "-").slice(0, NAME_MAX).replace(/^-+/, "") || "run";

function namesIn(folder: string): string[] {
  try {
    return Array.from(Deno.readDirSync(folder), ({ name }) => name);
  } catch (error) {
    const { NotFound, NotADirectory } = Deno.errors;
    if (error instanceof NotFound || error instanceof NotADirectory) return [];
    throw error;
  }
}

function removeEmpty(folder: string): void {
  try {
    Deno.removeSync(folder);
  } catch {
    // Something has been put there.
  }
}

/** What a checkpoint remembers of a module of the user's. It is shown and compared, never imported. */
export interface KeptComponent {
  /** How it was named. */
  readonly name: string;
  /** Where it was. */
  readonly from: string;
  /** The hash of its modules. */
  readonly integrity: string;
}

/** Modules of the user's by what they are for. */
export interface KeptComponents {
  /** What was trained. */
  readonly model?: KeptComponent;
  /** What it learnt from. */
  readonly data?: KeptComponent;
  /** How weights were stepped. */
  readonly optimizer?: KeptComponent;
  /** What supervised its workers. */
  readonly supervisor?: KeptComponent;
}
