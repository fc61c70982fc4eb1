/**
 * The schedule of a run of which only its record is left, which may be a stranger's.
 *
 * @module
 */

import { checkSizes } from "../../actors/run/options/sizes.ts";
import type { Schedule } from "../../schedules/mod.ts";
import type { RunRecord } from "../run_files/run_record.ts";
import { scheduleOf } from "../schedule/schedule_flags.ts";
import type { TrainFlags } from "../train/train_flags.ts";
import { ACTIONS_MAX } from "./view/trace_view.ts";

/**
 * The schedule that the flags of a run name. Undefined for one of a file or a search, which would
 * take long, for one of more actions than are drawn, and for flags that make none.
 */
export function recordedSchedule(
  { flags: recorded, schedule, plan }: RunRecord,
): Schedule | undefined {
  const flags = recorded as TrainFlags, { workers, "micro-batches": microBatches } = flags;
  if (flags["schedule-file"] !== undefined || flags.schedule === "search") return undefined;
  try {
    checkSizes({ workers, microBatches, replicas: plan.replicas });
    if (workers * microBatches > ACTIONS_MAX / 2) return undefined;
    const made = scheduleOf(flags);
    const isSame = made.name === schedule.name && made.stages === plan.stages.length;
    return isSame ? made : undefined;
  } catch (error) {
    if (error instanceof RangeError || error instanceof TypeError) return undefined;
    throw error;
  }
}
