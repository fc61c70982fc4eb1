/**
 * Reads the folder of a run, which may be a stranger's: what is in it is data, bounded and checked,
 * and no link is followed.
 *
 * @module
 */

import { basename, dirname, join, resolve } from "node:path";
import {
  folderEntries,
  type StepFolder,
  stepFolder,
  stepFolders,
} from "../../actors/checkpoints/checkpoint_folders.ts";
import { BYTES_MAX } from "../../actors/checkpoints/checkpoint_format.ts";
import { isInUse } from "../../actors/checkpoints/checkpoint_lock.ts";
import { parseRecord } from "../../actors/checkpoints/whole_files.ts";
import { checkInputFile } from "../../kernels/mod.ts";
import { quoted } from "../escape.ts";
import { readRecord } from "./read_record.ts";
import { meantRun, runPath } from "./run_folder.ts";
import { RUN_FILES, type RunRecord } from "./run_record.ts";

/** The folder of a run. */
export interface RunFolder {
  /** Where it is. */
  readonly path: string;
  /** What `run.json` says; undefined for a run of Troupe 0.1, and for one of a script. */
  readonly record: RunRecord | undefined;
  /** The folders of its checkpoints, the newest first; what is unfinished is none. */
  readonly checkpoints: readonly StepFolder[];
  /** Whether it trains just now. */
  readonly isRunning: boolean;
}

/**
 * Reads the folder of a run.
 *
 * @param named its path, that of one of its checkpoints, or its name below `runs/`.
 * @throws {RangeError} when there is no run.
 * @throws {SyntaxError} when its `run.json` is of another version, or of something else.
 */
export async function readRun(named: string): Promise<RunFolder> {
  const found = runPath(named);
  const path = stepFolder(basename(found)) ? dirname(resolve(found)) : found;
  const names = await folderEntries(path).catch((cause: Error) => {
    throw noRun(named, `a folder, received ${cause.message}`, cause);
  });
  const checkpoints = checkpointsAmong(names), record = readRecord(path);
  if (names.includes(RUN_FILES.record) && !record) {
    throw new SyntaxError(
      `Cannot read ${
        quoted(join(path, RUN_FILES.record))
      }: it must be a file that a run of Troupe has written, received something else`,
    );
  }
  if (!isRun(names)) {
    throw noRun(
      named,
      `a folder with run.json or checkpoints, received ${
        names.length === 0 ? `none, or an empty one${meantRun(named)}` : "one without"
      }`,
    );
  }
  return { path, record, checkpoints, isRunning: isInUse(path) };
}

/** Whether these names are in the folder of a run. */
export const isRun = (names: readonly string[]): boolean =>
  names.includes(RUN_FILES.record) || checkpointsAmong(names).length > 0;

const checkpointsAmong = (names: readonly string[]) =>
  stepFolders(names).filter(({ kind }) => kind !== "unfinished");

const noRun = (named: string, must: string, cause?: unknown) =>
  new RangeError(`Cannot read the run ${quoted(named)}: it must be ${must}`, { cause });

/**
 * What the newest checkpoint says of its run, for one without `run.json`; undefined where it is not
 * whole.
 */
export function readConfig({ path, checkpoints }: RunFolder): Readonly<Record<string, unknown>> {
  const [newest] = checkpoints;
  if (!newest) return {};
  const file = join(path, newest.name, "config.json");
  try {
    checkInputFile(file, BYTES_MAX["config.json"]);
    return parseRecord(file, Deno.readFileSync(file));
  } catch {
    return {};
  }
}
