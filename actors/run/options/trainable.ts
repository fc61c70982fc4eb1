/**
 * Which schedules the workers can execute.
 *
 * @module
 */

import {
  assertValid,
  createSchedule,
  type ListedSchedule,
  type Schedule,
  scheduleNames,
} from "../../../schedules/mod.ts";

/**
 * Refuses a schedule that cannot train, before anything runs: one whose lists are not valid (they
 * would hang), one whose policy no other isolate could make, and one without flushes that is neither
 * PipeDream nor PipeDream-2BW.
 *
 * @throws {RangeError} naming the schedule and what is in the way.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { createSchedule, F, scheduleFromLists, ActionList } from "@troupe/troupe/schedules";
 * import { assertTrainable } from "@troupe/troupe/actors";
 *
 * assertTrainable(createSchedule("chimera", { workers: 4, microBatches: 4 }));
 * const forwardOnly = scheduleFromLists("mine", [ActionList.from([F(0, 0)])]);
 * assert.throws(() => assertTrainable(forwardOnly), RangeError);
 * ```
 */
export function assertTrainable(schedule: Schedule): void {
  const { name, lists } = schedule;
  if (schedule.updates !== "flush" && !isKnown(schedule)) {
    throw new RangeError(
      `Cannot train with the schedule ${name}: without a flush its lists, followed to the letter, and weight versions must be those of pipedream or pipedream-2bw, received others`,
    );
  }
  if (lists) return assertValid(schedule as ListedSchedule);
  if (scheduleNames().includes(name)) return;
  throw new RangeError(
    `Cannot train with the schedule ${name}: a schedule of one's own must have lists, received a policy; make the lists with withLists`,
  );
}

/** Whether a schedule without flushes is PipeDream or PipeDream-2BW by whatever name. */
function isKnown({ workers, microBatches, updates, lists, listPolicy, weightVersions }: Schedule) {
  const name = updates === "every-backward" ? "pipedream" : "pipedream-2bw";
  const known = createSchedule(name, { workers, microBatches });
  return listPolicy?.name !== "elastic" && `${lists}` === `${known.lists}` &&
    `${weightVersions}` === `${known.weightVersions}`;
}

/** Options that need a step to be committed by all workers at once. */
export interface CommitOptions {
  /** Data-parallel replicas. */
  readonly replicas: number;
  /** When the all-reduce of a stage starts. */
  readonly sync: string;
  /** The most that the norm of all gradients may be. */
  readonly clip?: number | undefined;
  /** In which type weights and gradients are stored. */
  readonly precision: string;
  /** Factor of the loss. */
  readonly lossScale?: number | "dynamic" | undefined;
  /** Pairs of tied parameters. */
  readonly ties: number;
}

/**
 * Refuses what a schedule without flushes cannot serve. Its stages step their optimizers one by one,
 * while others still compute: there is no moment at which all gradients of a step are there, to be
 * added over replicas or ties, measured for clipping, or found not to be finite.
 *
 * @throws {RangeError} naming the option.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { createSchedule } from "@troupe/troupe/schedules";
 * import { assertServable } from "@troupe/troupe/actors";
 *
 * const pipedream = createSchedule("pipedream", { workers: 2, microBatches: 4 });
 * const options = { replicas: 1, sync: "end", precision: "fp32", ties: 0 };
 * assertServable(pipedream, options);
 * assert.throws(() => assertServable(pipedream, { ...options, clip: 1 }), {
 *   message: "Cannot train with the schedule pipedream: it has no flush, so clip must be none, received 1",
 * });
 * ```
 */
export function assertServable({ name, updates }: Schedule, options: CommitOptions): void {
  if (updates === "flush") return;
  const { replicas, sync, clip = "none", precision, lossScale = 1, ties } = options;
  const wanted = {
    replicas: 1,
    sync: "end",
    clip: "none",
    precision: "fp32",
    lossScale: 1,
    ties: 0,
  };
  const given: Record<string, unknown> = { replicas, sync, clip, precision, lossScale, ties };
  for (const [option, value] of Object.entries(wanted)) {
    if (given[option] === value) continue;
    throw new RangeError(
      `Cannot train with the schedule ${name}: it has no flush, so ${option} must be ${value}, received ${
        given[option]
      }`,
    );
  }
}
