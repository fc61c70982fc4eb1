/**
 * The schedule of a run of which only its record is left, which may be a stranger's.
 *
 * @module
 */

import { checkSizes } from "../../actors/run/options/sizes.ts";
import { createSchedule, type Schedule, withRecomputation } from "../../schedules/mod.ts";
import { inOneLine, quoted } from "../escape.ts";
import type { RunRecord } from "../run_files/run_record.ts";
import { scheduleOptionsOf } from "../schedule/schedule_flags.ts";
import type { TrainFlags } from "../train/train_flags.ts";

/** More than any run has. */
const COUNT_MAX = 2 ** 16;

const isCount = (value: unknown) =>
  Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) <= COUNT_MAX;

const isListOf = (list: unknown, is: (value: unknown) => boolean) =>
  Array.isArray(list) && list.length <= COUNT_MAX && list.every(is);

/** Whether a stage of a plan is one. */
function isStage(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  const { stage, workers, layers, parameters, costShare } = value as Record<string, unknown>;
  return isCount(stage) && isListOf(workers, isCount) &&
    isListOf(layers, (name) => typeof name === "string") &&
    Number.isFinite(parameters) && Number.isFinite(costShare);
}

/**
 * Makes sure that the plan of a record is one.
 *
 * @throws {SyntaxError} saying what it is not.
 */
export function checkPlan({ plan, schedule, data }: RunRecord, path: string): void {
  const { stages, replicas, parameters } = plan;
  const wrong = !isListOf(stages, isStage) || stages.length === 0
    ? ["plan must have stages", stages]
    : !isCount(replicas) || replicas * stages.length > COUNT_MAX
    ? ["plan must have a number of replicas", replicas]
    : !Number.isFinite(parameters)
    ? ["plan must have a number of parameters", parameters]
    : [schedule, data].some(({ name }) => typeof name !== "string")
    ? ["schedule and data must have names", [schedule, data]]
    : undefined;
  if (!wrong) return;
  throw new SyntaxError(
    `Cannot read ${inOneLine(path)}: its ${wrong[0]}, received ${quoted(wrong[1])}`,
  );
}

/**
 * The schedule that the flags of a run name. Undefined for one of a file or a search, which would
 * take long, and for flags that make none.
 */
export function recordedSchedule({ flags: recorded, schedule }: RunRecord): Schedule | undefined {
  const flags = recorded as TrainFlags, { workers, "micro-batches": microBatches } = flags;
  if (flags["schedule-file"] !== undefined || flags.schedule === "search") return undefined;
  try {
    checkSizes({ workers, microBatches, replicas: flags.replicas });
    const options = { ...scheduleOptionsOf(flags), workers, microBatches };
    const named = createSchedule(flags.schedule, options);
    const made = flags["recompute-ahead"] ? withRecomputation(named) : named;
    return made.name === schedule.name ? made : undefined;
  } catch (error) {
    if (error instanceof RangeError || error instanceof TypeError) return undefined;
    throw error;
  }
}
