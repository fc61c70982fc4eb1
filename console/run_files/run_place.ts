/**
 * Where a run puts what it leaves.
 *
 * @module
 */

import { basename } from "node:path";
import {
  folderEntries,
  stepFolder,
  stepFolders,
} from "../../actors/checkpoints/checkpoint_folders.ts";
import { goesOnIn } from "../../actors/checkpoints/claim_folder.ts";
import type { TrainRequest } from "../train/train_request.ts";
import { makeRunFolder } from "./run_folder.ts";

/** The folder of a run. */
export interface RunPlace {
  readonly directory: string;
  /** Whether the checkpoint from which the run goes on lies there. */
  readonly isInPlace: boolean;
}

/**
 * The folder of a run: the one that is named, or a new one with a number; none where a program reads
 * what is printed and nobody has named one.
 *
 * @param model the name of its model.
 * @param made gets the folder that was made, to be removed if nothing is put into it.
 * @throws {RangeError} when there are later checkpoints than the one from which the run goes on.
 */
export async function placeOf(
  request: TrainRequest,
  model: string,
  made: DisposableStack,
): Promise<RunPlace | undefined> {
  const { out, checkpoint, flags: { json } } = request;
  if (out === undefined) {
    return json ? undefined : { directory: made.use(makeRunFolder(model)).path, isInPlace: false };
  }
  const isInPlace = checkpoint !== undefined && goesOnIn(out, { resume: checkpoint });
  if (isInPlace) await refuseBranch(request, out);
  return { directory: out, isInPlace };
}

/** A run that goes back to an earlier step would leave the later ones of the other beside its own. */
async function refuseBranch(
  { flags: { resume, overwrite }, checkpoint }: TrainRequest,
  out: string,
): Promise<void> {
  if (overwrite || !stepFolder(basename(resume!))) return;
  const { step, kind } = stepFolders(await folderEntries(out))[0]!;
  if (step <= checkpoint!.step || kind === "unfinished") return;
  throw new RangeError(
    `Cannot resume from ${resume}: it must be the newest checkpoint of its folder, received one before step ${step}; name another folder with --out, or remove the later ones with --overwrite`,
  );
}
