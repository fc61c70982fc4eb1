/**
 * Numbered folders for runs without `--out`.
 *
 * @module
 */

import { existsSync } from "node:fs";
import { join, parse } from "node:path";
import { lstat } from "../../actors/checkpoints/lock.ts";
import { suggest } from "../../actors/options/option.ts";

/** Parent of run folders, relative to the working directory. */
export const RUNS_FOLDER = "runs";

/** Limit of attempts, since other runs may take the next number. */
const TRIES_MAX = 1000;

/** Maximum length of the model's name in the name of a folder. */
const NAME_MAX = 60;

/** Returns the path of a named run: as given, or below `runs/` if it only exists there. */
export function runPath(named: string): string {
  const below = join(RUNS_FOLDER, named);
  return !existsSync(named) && /^[^./\\]/.test(named) && existsSync(below) ? below : named;
}

/** Suggests a similar run for a missing one, as the end of a sentence. */
export function meantRun(named: string): string {
  if (existsSync(named)) return "";
  const { dir, base } = parse(named),
    isFolder = (name: string) => lstat(join(dir, name))!.isDirectory;
  const siblings = dir !== "" && existsSync(dir) ? namesIn(dir).filter(isFolder) : [];
  const near = suggest(base, siblings).replace(/\S+$/, (name) => join(dir, name));
  return near || suggest(base, namesIn(RUNS_FOLDER));
}

/**
 * Returns the path of the next run of a model, whose number is above all existing ones.
 *
 * @param model name of the model; other characters than letters, digits, `_` and `-` become `-`.
 */
export function nextRunFolder(model: string, parent: string = RUNS_FOLDER): string {
  const name = folderName(model), pattern = new RegExp(`^${RegExp.escape(name)}-([1-9]\\d{0,8})$`);
  const numbers = namesIn(parent).map((one) => Number(pattern.exec(one)?.[1] ?? 0));
  return join(parent, `${name}-${Math.max(0, ...numbers) + 1}`);
}

/**
 * Creates the folder of the next run of a model. Of two runs that start at the same time, one gets
 * the next number. Disposing of the result removes the folder if it is still empty.
 *
 * @throws {RangeError} when the folder cannot be created.
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
 * assert.deepEqual([...Deno.readDirSync(parent)], [], "empty folders are removed");
 * await Deno.remove(parent);
 * ```
 */
export function makeRunFolder(
  model: string,
  parent: string = RUNS_FOLDER,
): Disposable & { readonly path: string } {
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
      `Cannot begin a run: ${parent} must be a writable folder, or --out must name another, received ${
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

/** Names of models may be untrusted. */
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
    // It is not empty.
  }
}

/** A module of the user in a checkpoint. It is shown and compared, but never imported. */
export interface KeptComponent {
  /** Name or specifier. */
  readonly name: string;
  /** URL of the module. */
  readonly from: string;
  /** Hash of its modules. */
  readonly integrity: string;
}

/** Modules of the user, by kind. */
export type KeptComponents = {
  readonly [kind in "model" | "data" | "optimizer" | "supervisor"]?: KeptComponent;
};
