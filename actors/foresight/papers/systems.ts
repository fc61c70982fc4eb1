/**
 * The systems that the papers compare, as schedules with what is theirs alone.
 *
 * @module
 */

import { createSchedule, type Schedule, type ScheduleOptions } from "../../../schedules/mod.ts";

/** A system of the papers. */
export interface PaperSystem {
  /** What the papers call it. */
  readonly name: string;
  /** The schedule that it follows. */
  readonly schedule: string;
  /** The options that it may choose from beside depth and micro-batches. */
  readonly variants: readonly Partial<ScheduleOptions>[];
  /** Steps follow each other without a flush. */
  readonly isAsynchronous?: boolean;
  /** An all-reduce after each backward (PipeDream), which nothing overlaps. */
  readonly reducesAlways?: boolean;
}

const system = (name: string, schedule: string, more: Partial<PaperSystem> = {}): PaperSystem => ({
  name,
  schedule,
  variants: [{}],
  ...more,
});

/** GPipe. */
export const GPIPE: PaperSystem = system("GPipe", "gpipe");
/** DAPPLE. */
export const DAPPLE: PaperSystem = system("DAPPLE", "dapple");
/** GEMS. */
export const GEMS: PaperSystem = system("GEMS", "gems");
/** PipeDream: one micro-batch a step. */
export const PIPEDREAM: PaperSystem = system("PipeDream", "pipedream", {
  isAsynchronous: true,
  reducesAlways: true,
});
/** PipeDream-2BW. */
export const PIPEDREAM_2BW: PaperSystem = system("PipeDream-2BW", "pipedream-2bw", {
  isAsynchronous: true,
});
/** Chimera with f = 1, by the best of its three ways to scale. */
export const CHIMERA: PaperSystem = system("Chimera", "chimera", {
  variants: [{ scale: "direct" }, { scale: "doubling" }, { scale: "halving" }],
});

/** Chimera in the form of waves: each group of workers runs one wave (Hanayo, section 3.2). */
export const CHIMERA_WAVE: PaperSystem = system("Chimera-wave", "hanayo");
/** Hanayo with so many waves. */
export const hanayoOf = (waves: number): PaperSystem =>
  system(`Hanayo, ${waves} waves`, "hanayo", { variants: [{ waves }] });
/** AxoNN. */
export const AXONN: PaperSystem = system("AxoNN", "message-driven");

/** The schedule of a system; undefined where it cannot serve these numbers. */
export function scheduleOf(
  { schedule }: PaperSystem,
  options: ScheduleOptions,
): Schedule | undefined {
  try {
    return createSchedule(schedule, options);
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}
