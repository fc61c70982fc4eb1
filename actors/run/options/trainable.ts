/**
 * Which schedules the workers can execute.
 *
 * @module
 */

import {
  assertValid,
  createSchedule,
  followedActions,
  formatAction,
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

/**
 * Refuses recomputations (R) that the workers cannot serve.
 *
 * [Note: what an R is good for] What is computed again lies in memory that all micro-batches of a
 * stage share, or nothing would be saved. So an R must be the last that its worker runs on the copy of
 * the stage before the backward that reads it: it may stand before the actions of other stages, and
 * fill the time in which the gradient is on its way. A stage keeps inputs only, or all: where it has an
 * R, each of its micro-batches has. A W that does not follow its I at once computes the stage once
 * more by itself, as it does under `recomputeInterval`.
 *
 * @throws {RangeError} naming the first that is in the way.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { parseCsv, scheduleFromLists } from "@troupe/troupe/schedules";
 * import { assertRecomputable } from "@troupe/troupe/actors";
 *
 * assertRecomputable(scheduleFromLists("mine", parseCsv("0F0,0F1,0R0,0B0,0R1,0B1")));
 * const early = scheduleFromLists("mine", parseCsv("0F0,0R0,0F1,0B0,0R1,0B1"));
 * assert.throws(() => assertRecomputable(early), /what 0R0 brings back .* received 0F1 after it/);
 * ```
 */
export function assertRecomputable(
  schedule: Schedule,
  { recomputeInterval }: { readonly recomputeInterval?: number | undefined } = {},
): void {
  const { name, listPolicy, slices = 1, microBatches } = schedule,
    counts = new Map<number, number>();
  const refuse = (must: string, received: unknown): never => {
    throw new RangeError(`Cannot train with the schedule ${name}: ${must}, received ${received}`);
  };
  for (const { action, next } of followedActions(schedule)) {
    const { kind, stage, microBatch, slice } = action;
    if (kind !== "R") continue;
    counts.set(stage, (counts.get(stage) ?? 0) + 1);
    const isNext = next?.microBatch === microBatch && next.slice === slice;
    if (isNext && next.half === undefined) continue;
    refuse(
      `what ${
        formatAction(action)
      } brings back must be read before anything else of its stage runs`,
      next ? `${formatAction(next)} after it` : "nothing after it",
    );
  }
  if (counts.size === 0) return;
  for (const [stage, count] of counts) {
    if (count === microBatches * slices) continue;
    const each = slices > 1 ? `${microBatches * slices} slices` : `${microBatches} micro-batches`;
    refuse(`each of ${each} must have an R of stage ${stage}, or none`, count);
  }
  if (listPolicy?.name === "elastic") {
    refuse("lists with R must be followed to the letter", "elastic");
  }
  if (recomputeInterval === undefined) return;
  refuse("its R say what is computed again, so recomputeInterval must be none", recomputeInterval);
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
