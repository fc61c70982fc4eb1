/**
 * The schedule of a run: one that has a name, one that is defined, or one that is there.
 *
 * @module
 */

import {
  createSchedule,
  findSchedule,
  refuseUnread,
  type Schedule,
  type ScheduleDefinition,
  scheduleDefinitions,
  scheduleNames,
  type ScheduleOptions,
  withPolicy,
} from "../../../schedules/mod.ts";
import type { TrainOptions } from "./train_options.ts";
import { assertTrainable } from "./trainable.ts";

/** A schedule as it is followed, and what it was made from. */
export interface ChosenSchedule {
  /** What every worker does. */
  readonly schedule: Schedule;
  /** The options that it was made with. */
  readonly scheduleOptions: ScheduleOptions;
  /** What makes it for fewer micro-batches too, where it is not known by its name. */
  readonly scheduleDefinition: ScheduleDefinition | undefined;
}

/** What says which schedule a run has. */
type Choice =
  & Pick<TrainOptions, "policy" | "scheduleOptions">
  & Required<Pick<TrainOptions, "schedule" | "workers" | "microBatches">>;

/**
 * Makes the schedule that is named, defined or given, and has its lists followed by the policy.
 *
 * @throws {RangeError} if an option is not read by it, says another size than the run's, or cannot be
 * served, or if the schedule cannot be trained with.
 */
export function chooseSchedule(
  { schedule: asked, policy, scheduleOptions = {}, workers, microBatches }: Choice,
): ChosenSchedule {
  checkSameSize(scheduleOptions, { workers, microBatches });
  const { activationLimit } = scheduleOptions;
  const reader = readerOf(asked);
  // What the schedule itself does not read is the policy's.
  const isOfPolicy = policy === "elastic" && !reader.reads?.includes("activationLimit");
  const options: ScheduleOptions = {
    ...scheduleOptions,
    ...(isOfPolicy && { activationLimit: undefined }),
    workers,
    microBatches,
  };
  refuseUnread(reader, options, scheduleDefinitions);
  const made = typeof asked === "string"
    ? createSchedule(asked, options)
    : isDefinition(asked)
    ? asked.create(options)
    : asked;
  if (made === asked && made.microBatches !== microBatches) {
    throw new RangeError(
      `Cannot train: the schedule must be for ${microBatches} micro-batches, received ${made.microBatches}`,
    );
  }
  const schedule = policy ? withPolicy(made, policy, activationLimit) : made;
  assertTrainable(schedule);
  const scheduleDefinition = isDefinition(asked) ? asked : undefined;
  return { schedule, scheduleOptions: options, scheduleDefinition };
}

/** Refuses sizes of the schedule that are not those of the run. */
function checkSameSize(
  options: Partial<ScheduleOptions>,
  sizes: Pick<ScheduleOptions, "workers" | "microBatches">,
): void {
  for (const name of ["workers", "microBatches"] as const) {
    const size = options[name];
    if (size === undefined || size === sizes[name]) continue;
    throw new RangeError(
      `Cannot train: scheduleOptions.${name} must be ${sizes[name]}, as ${name} of the run, or ` +
        `left out, received ${size}`,
    );
  }
}

/** What reads the options: lists of one's own read none. */
function readerOf(
  asked: NonNullable<TrainOptions["schedule"]>,
): Pick<ScheduleDefinition, "name" | "reads"> {
  if (typeof asked === "string") return { ...findSchedule(asked), name: asked };
  if (isDefinition(asked)) return asked;
  const { name } = asked;
  return scheduleNames().includes(name) ? { ...findSchedule(name), name } : { name, reads: [] };
}

function isDefinition(
  asked: NonNullable<TrainOptions["schedule"]>,
): asked is ScheduleDefinition {
  return typeof asked !== "string" && "create" in asked;
}
