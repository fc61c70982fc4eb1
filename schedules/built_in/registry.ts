/** The schedules of this package by name. */

import { refuseUnread, type ScheduleDefinition, type ScheduleOptions } from "../define.ts";
import { quote, refusal } from "../errors.ts";
import type { Schedule } from "../schedule.ts";
import { defineSearch } from "../search/search.ts";
import { chimera, chimeraGreedy, gems } from "./chimera.ts";
import { vHalf, vMin } from "./controllable_memory.ts";
import { dualPipe, dualPipeV } from "./dual_pipe.ts";
import { gpipe, loopedBfs, teraPipe } from "./gpipe.ts";
import { chimeraWave, hanayo } from "./hanayo.ts";
import { messageDriven } from "./message_driven.ts";
import {
  interleaved,
  oneFOneB,
  pipeDream,
  pipeDream2bw,
  seq1f1b,
  slimPipe,
} from "./one_f_one_b.ts";
import {
  interleavedZeroBubble,
  seqZeroBubble,
  zeroBubbleH1,
  zeroBubbleH2,
  zeroBubbleV,
} from "./zero_bubble.ts";

const byRule: readonly ScheduleDefinition[] = [
  gpipe,
  oneFOneB,
  seq1f1b,
  seqZeroBubble,
  teraPipe,
  slimPipe,
  interleaved,
  loopedBfs,
  gems,
  pipeDream,
  pipeDream2bw,
  chimera,
  chimeraWave,
  hanayo,
  messageDriven,
  zeroBubbleH1,
  zeroBubbleH2,
  zeroBubbleV,
  interleavedZeroBubble,
  vHalf,
  vMin,
  dualPipe,
  dualPipeV,
  chimeraGreedy,
];

/**
 * Every schedule, in the order in which commands list them.
 *
 * @example The options that a schedule reads
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { scheduleDefinitions } from "@troupe/troupe/schedules";
 *
 * const hanayo = scheduleDefinitions.find(({ name }) => name === "hanayo");
 * deepStrictEqual(hanayo?.reads, ["waves"]);
 * ```
 */
export const scheduleDefinitions: readonly ScheduleDefinition[] = [
  ...byRule,
  defineSearch(byRule),
];

/**
 * The names that {@linkcode createSchedule} accepts, aliases included.
 *
 * @example
 * ```ts
 * import { ok } from "node:assert/strict";
 * import { scheduleNames } from "@troupe/troupe/schedules";
 *
 * ok(scheduleNames().includes("1f1b"));
 * ok(scheduleNames().includes("dapple")); // DAPPLE's name of 1F1B
 * ```
 */
export function scheduleNames(): readonly string[] {
  return scheduleDefinitions.flatMap(({ name, aliases = [] }) => [name, ...aliases]);
}

/**
 * Finds the definition of a schedule by its name or alias.
 *
 * @throws {RangeError} if no schedule has the name.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { findSchedule } from "@troupe/troupe/schedules";
 *
 * strictEqual(findSchedule("dapple").name, "1f1b");
 * ```
 */
export function findSchedule(name: string): ScheduleDefinition {
  const found = scheduleDefinitions.find((definition) =>
    definition.name === name || definition.aliases?.includes(name)
  );
  if (found !== undefined) return found;
  const must = `its name must be one of ${scheduleNames().join(", ")}`;
  throw refusal("make a schedule", must, quote(name));
}

/**
 * Makes a schedule by name. A schedule made by an alias has the alias as its name.
 *
 * @throws {RangeError} if no schedule has the name, if it does not read one of the options (the text
 * says which schedules do), or if it cannot serve them (the text says which it can serve).
 *
 * @example
 * ```ts
 * import { strictEqual, throws } from "node:assert/strict";
 * import { createSchedule } from "@troupe/troupe/schedules";
 *
 * const { lists } = createSchedule("1f1b", { workers: 2, microBatches: 3 });
 * strictEqual(String(lists?.[0]), "0F0,0F1,0B0,0F2,0B1,0B2");
 * throws(() => createSchedule("1f1b", { workers: 2, microBatches: 3, waves: 3 }), {
 *   message:
 *     "Cannot make the schedule 1f1b: it does not read waves; schedules that do: hanayo, search",
 * });
 * ```
 */
export function createSchedule(name: string, options: ScheduleOptions): Schedule {
  const definition = findSchedule(name);
  refuseUnread({ ...definition, name }, options, scheduleDefinitions);
  const made = definition.create(options);
  return name === definition.name ? made : Object.freeze({ ...made, name });
}
