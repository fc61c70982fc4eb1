/**
 * The schedule of a file: action lists, as CSV.
 *
 * @module
 */

import { basename } from "node:path";
import {
  assertValid,
  type ListedSchedule,
  parseCsv,
  scheduleFromLists,
} from "../../schedules/mod.ts";
import { inOneLine, quoted } from "../escape.ts";
import type { GivenFlags } from "../flags/flag.ts";
import type { SCHEDULE_FLAGS } from "./schedule_flags.ts";

/** What was said beside the file. */
type Given = GivenFlags<typeof SCHEDULE_FLAGS> & { readonly "micro-batches"?: number };

/**
 * Makes the schedule of `--schedule-file`. Its workers and micro-batches are those of the file.
 *
 * @throws {SyntaxError} if a cell is no action.
 * @throws {RangeError} if the lists cannot run, or if a flag says something else than the file.
 * @throws {TypeError} if a schedule is named as well.
 */
export function readScheduleFile(path: string, text: string, given: Given): ListedSchedule {
  if (given.schedule !== undefined) {
    throw new TypeError(
      "Cannot train: the schedule must come from one place, received --schedule and --schedule-file",
    );
  }
  const name = inOneLine(basename(path).replace(/\.csv$/, ""));
  const schedule = scheduleFromLists(name, parseCsv(text));
  assertValid(schedule);
  const { workers, microBatches } = schedule;
  for (const [flag, held] of Object.entries({ workers, "micro-batches": microBatches })) {
    const value = given[flag as "workers" | "micro-batches"];
    if (value === undefined || value === held) continue;
    throw new RangeError(
      `Cannot use --schedule-file: --${flag} must be ${held}, as in ${
        quoted(path)
      }, or left out, received ${value}`,
    );
  }
  return schedule;
}
