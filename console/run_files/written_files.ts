/**
 * The files that a run writes beside its folder, which must be files of their own.
 *
 * @module
 */

import { resolve } from "node:path";
import type { GivenTrainFlags } from "../train/train_flags.ts";

/** What they hold is replaced when the run begins. */
const WRITTEN = ["trace", "journal"] as const;

const READ = ["text", "tokens", "schedule-file", "tokenizer", "weights", "config"] as const;

/**
 * Makes sure that no file is written that the run reads, and none twice.
 *
 * @throws {TypeError} naming both flags.
 */
export function checkWrittenFiles(given: GivenTrainFlags): void {
  for (const [i, flag] of WRITTEN.entries()) {
    const path = given[flag];
    if (path === undefined) continue;
    const other = [...READ, ...WRITTEN.slice(i + 1)].find((other) =>
      given[other] !== undefined && placeOf(given[other]) === placeOf(path)
    );
    if (other === undefined) continue;
    throw new TypeError(
      `Cannot write --${flag}: it must name a file of its own, received that of --${other}`,
    );
  }
}

/** Where a file lies, or would, whichever links lead there. */
function placeOf(path: string): string {
  try {
    return Deno.realPathSync(path);
  } catch {
    return resolve(path);
  }
}
