/** Which options a schedule reads: others are refused by name, or left out. */

import type { ScheduleOptions } from "./options.ts";

/** What says of itself which options it reads beside `workers` and `microBatches`. */
export interface OptionReader {
  /** The name of the schedule. */
  readonly name: string;
  /** The names of the options; any where it does not say. */
  readonly reads?: readonly string[] | undefined;
}

/**
 * The options that are given and not read, by name. Of costs without a value none is given.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { findSchedule, unreadOptions } from "@troupe/troupe/schedules";
 *
 * const options = { workers: 2, microBatches: 4, waves: 2, costs: { send: undefined } };
 * deepStrictEqual(unreadOptions(findSchedule("1f1b"), options), ["waves"]);
 * deepStrictEqual(unreadOptions(findSchedule("hanayo"), options), []);
 * ```
 */
export function unreadOptions({ reads }: OptionReader, options: object): string[] {
  if (reads === undefined) return [];
  const read = new Set(["workers", "microBatches", ...reads]);
  return Object.entries(options)
    .filter(([name, value]) => !read.has(name) && isGiven(value))
    .map(([name]) => name);
}

function isGiven(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return value !== undefined;
  return Object.values(value).some(isGiven);
}

/**
 * Of options that serve several schedules, those that this one reads.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { findSchedule, readOptions } from "@troupe/troupe/schedules";
 *
 * const options = { workers: 2, microBatches: 4, waves: 2, chunks: 3 };
 * deepStrictEqual(readOptions(findSchedule("hanayo"), options), {
 *   workers: 2,
 *   microBatches: 4,
 *   waves: 2,
 * });
 * ```
 */
export function readOptions<O extends ScheduleOptions>(reader: OptionReader, options: O): O {
  const unread = unreadOptions(reader, options);
  const read = Object.entries(options).filter(([name]) => !unread.includes(name));
  return Object.fromEntries(read) as O;
}

/**
 * Refuses options that are not read.
 *
 * @param definitions Among which those are named that read them.
 * @throws {RangeError} naming the options.
 */
export function refuseUnread(
  reader: OptionReader,
  options: object,
  definitions: readonly OptionReader[] = [],
): void {
  const unread = unreadOptions(reader, options);
  if (unread.length === 0) return;
  const others = definitions
    .filter(({ reads }) => unread.every((name) => reads?.includes(name)))
    .map(({ name }) => name);
  throw new RangeError(
    `Cannot make the schedule ${reader.name}: it does not read ${unread.join(" or ")}` +
      (others.length === 0 ? "" : `; schedules that do: ${others.join(", ")}`),
  );
}
