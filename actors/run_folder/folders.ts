/**
 * Folders of runs: names below `runs/`, numbers for runs without `--out`, and the run to resume.
 *
 * @module
 */

import { existsSync } from "node:fs";
import { basename, dirname, join, parse, resolve } from "node:path";
import { folderEntries, stepFolder, stepFolders } from "../checkpoints/format.ts";
import { goesOnIn, lstat } from "../checkpoints/lock.ts";
import { quoted } from "../options/file_schema.ts";
import { suggest } from "../options/option.ts";

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

/**
 * Returns the path of the run to resume; a folder without a checkpoint starts one.
 *
 * @param out folder of the run that resumes it: if it is the named one, it need not exist yet.
 * @throws {RangeError} when there is none.
 */
export function runToResume(named: string, out?: string): string {
  const path = runPath(named),
    places = [named, join(RUNS_FOLDER, named)].map((one) => resolve(one));
  if (existsSync(path)) return path;
  if (out !== undefined && places.includes(resolve(out))) return out;
  throw new RangeError(
    `Cannot resume from ${
      quoted(named)
    }: it must be a run's folder, its name below runs/ or an empty folder, received none${
      meantRun(named)
    }`,
  );
}

/** Returns the folder of a run, also for the folder of one of its checkpoints. */
export const runFolder = (path: string): string =>
  stepFolder(basename(path)) ? dirname(path) : path;

/**
 * Refuses to resume from an earlier checkpoint of a folder in the same folder, where the later ones
 * would remain among those of the run.
 *
 * @param named the folder of a run, or of one of its checkpoints.
 * @param out folder of the run that resumes it.
 * @throws {RangeError} naming the checkpoint.
 */
export async function refuseBranch(
  named: string,
  resume: { readonly step: number; readonly path?: string },
  out: string,
): Promise<void> {
  if (!stepFolder(basename(named)) || !goesOnIn(out, { resume })) return;
  const { step, kind } = stepFolders(await folderEntries(out))[0]!;
  if (step <= resume.step || kind === "unfinished") return;
  throw new RangeError(
    `Cannot resume from ${named}: it must be the newest checkpoint of its folder, received one before step ${step}; name another folder with --out, or remove the later ones with --overwrite`,
  );
}
