/**
 * Whose a folder of checkpoints is: a run begins where no other has left some, unless it goes on
 * from these, or was told to take their place.
 *
 * @module
 */

import { basename, dirname, join, relative, resolve, sep } from "node:path";
import { folderEntries, type StepFolder, stepFolder, stepFolders } from "./checkpoint_folders.ts";
import { removeBest } from "./marks/best.ts";
import { removeFinished } from "./marks/finished.ts";

/** What a run has to say for itself. */
export interface Claim {
  /** The checkpoint from which it goes on, and its folder where that is known. */
  readonly resume?: { readonly step: number; readonly path?: string | undefined } | undefined;
  /** Whether it takes the place of the run that was there. */
  readonly overwrite?: boolean | undefined;
  /** Its first weights; they are read after a claim where they lie in a file. */
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
 * import { writeCheckpoint } from "@troupe/troupe/actors";
 *
 * const directory = await Deno.makeTempDir();
 * await checkClaim(directory, {});
 * const state = { weights: new Map(), moments: new Map() };
 * const path = await writeCheckpoint(directory, { step: 1, state, parameters: [], config: {} });
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
  throw new RangeError(
    `Cannot write checkpoints to ${directory}: it must hold none of another run, received one of step ${newest.step}; go on from it with --resume ${directory}, remove what is there with --overwrite (in a script: resume, checkpoint.overwrite), or name another folder`,
  );
}

/**
 * The same for a run that has the lock on its directory, where checkpoints now make way for it if
 * that was asked: all of them, or those that are later than where it goes on.
 *
 * @throws {RangeError} as {@linkcode checkClaim}; or when something cannot be removed.
 */
export async function claimFolder(directory: string, claim: Claim): Promise<void> {
  await checkClaim(directory, claim);
  const goesOn = goesOnIn(directory, claim), from = goesOn ? claim.resume!.step : -1;
  if (!claim.overwrite) {
    // Somebody has removed the checkpoint that it names.
    if (!goesOn) await removeBest(directory, from);
    return;
  }
  const later = (await checkpointsIn(directory)).filter(({ step }) => step > from);
  try {
    await removeBest(directory, from);
    // The oldest last: what is cut short leaves an earlier state, and none with a gap.
    for (const { name } of later) await Deno.remove(join(directory, name), { recursive: true });
  } catch (cause) {
    throw new RangeError(
      `Cannot overwrite ${directory}: its checkpoints must let themselves be removed, received ${
        (cause as Error).message
      }`,
      { cause },
    );
  }
  await removeFinished(directory);
}

/** What makes way must not be what the run is about to read. */
function checkWeights(directory: string, { resume, weights }: Claim): void {
  if (resume || typeof weights !== "string") return;
  const [name] = relative(real(directory), real(weights)).split(sep);
  if (!stepFolder(name!)) return;
  throw new RangeError(
    `Cannot overwrite ${directory}: its checkpoints must not hold the weights to begin with, received ${weights}; name another folder for the checkpoints, or copy the weights out first`,
  );
}

/** The newest folder of a step, if there is one with anything in it; what is unfinished is none. */
async function newestIn(directory: string): Promise<StepFolder | undefined> {
  for (const folder of await checkpointsIn(directory)) {
    if (folder.kind === "unfinished") continue;
    if ((await folderEntries(join(directory, folder.name))).length > 0) return folder;
  }
  return undefined;
}

const checkpointsIn = async (directory: string) => stepFolders(await folderEntries(directory));

/** Whether a run goes on where its checkpoint lies; one of which nobody knows where may do so. */
export function goesOnIn(directory: string, { resume }: Claim): boolean {
  if (!resume?.path) return resume !== undefined;
  const path = resolve(resume.path), folder = stepFolder(basename(path)) ? dirname(path) : path;
  return real(folder) === real(directory);
}

/** A path without links, as far as it is there. */
function real(path: string): string {
  try {
    return Deno.realPathSync(path);
  } catch {
    return resolve(path);
  }
}
