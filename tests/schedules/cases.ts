/** The schedules and options of the tests. */

import assert from "node:assert/strict";
import {
  createSchedule,
  parseCsv,
  type Schedule,
  scheduleDefinitions,
  scheduleFromLists,
  type ScheduleOptions,
} from "../../schedules/mod.ts";

/** A schedule by name and options. */
export interface Case {
  readonly name: string;
  readonly options: ScheduleOptions;
}

const MICRO_BATCHES = [1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 16, 20, 24, 27, 30, 31, 32, 48, 64];
const WORKERS = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16];

/** The options of a name beside the number of workers and of micro-batches. */
function variants(name: string, workers: number): Partial<ScheduleOptions>[] {
  if (name === "interleaved" || name === "interleaved-zb" || name === "looped-bfs") {
    return [1, 2, 3, 4].map((chunks) => ({ chunks }));
  }
  if (["seq1f1b", "seq1f1b-zb", "terapipe"].includes(name)) {
    return [1, 2, 3, 4].map((slices) => ({ slices }));
  }
  if (name === "slimpipe") {
    const two = [1, 2, 4, 8].map((slices) => ({ slices, chunks: 2 }));
    return [...two, { slices: 3, chunks: 3 }];
  }
  if (name === "hanayo") return [1, 2, 3, 4].map((waves) => ({ waves }));
  if (name === "chimera") {
    const pipelines = [1, 2, 3, 4, 5, 6, 8];
    const scales = ["direct", "doubling", "halving"] as const;
    return pipelines.flatMap((f) => scales.map((scale) => ({ pipelines: f, scale })));
  }
  if (name === "message-driven") {
    const limits = [1, 2, workers, 2 * workers - 1];
    const orders = ["fifo", "backward-first"] as const;
    return limits.flatMap((pipelineLimit) => orders.map((order) => ({ pipelineLimit, order })));
  }
  if (name === "chimera-greedy") return [1, 2, 4].map((pipelines) => ({ pipelines }));
  return [{}];
}

/** Every schedule that is made by a rule, under every combination of options, served or not. */
export function allCases(): Case[] {
  const names = scheduleDefinitions.map(({ name }) => name).filter((name) => name !== "search");
  return names.flatMap((name) =>
    WORKERS.flatMap((workers) =>
      MICRO_BATCHES.flatMap((microBatches) =>
        variants(name, workers).map((variant) => ({
          name,
          options: { workers, microBatches, ...variant },
        }))
      )
    )
  );
}

/** The schedule of a case; undefined where it refuses the options. */
export function made({ name, options }: Case): Schedule | undefined {
  try {
    return createSchedule(name, options);
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

/** A case in words, for the message of a failure. */
export function inWords({ name, options }: Case): string {
  return `${name} ${JSON.stringify(options)}`;
}

/** Whether two sums of the same durations are equal up to the rounding of their additions. */
export function isNear(a: number, b: number): boolean {
  return Math.abs(a - b) <= 1e-9 * Math.max(1, Math.abs(a), Math.abs(b));
}

/** Four workers and eight micro-batches. */
export const FOUR = { workers: 4, microBatches: 8 } as const;

/** A schedule of these lists, in CSV. */
export const listed = (csv: string) => scheduleFromLists("mine", parseCsv(csv));

/** Expects a RangeError with this message. */
export function refuses(
  call: () => unknown,
  message: RegExp | string = /^Cannot /,
  where?: string,
): void {
  assert.throws(call, { name: "RangeError", message }, where);
}
