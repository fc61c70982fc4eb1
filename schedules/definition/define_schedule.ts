/** How a schedule is made: a place for each stage, an order for each worker. */

import type { Schedule } from "../schedule.ts";
import { buildSchedule } from "./build_schedule.ts";
import type { ScheduleOptions } from "./options.ts";
import { refuseUnread } from "./read_options.ts";
import type { PolicyRule, ScheduleDefinition, ScheduleRule } from "./rule.ts";

/**
 * Makes a schedule from a rule: `place` says which worker holds which stage, `order` what each
 * worker does. What it returns can be trained with, `train({ schedule: mine })`, measured and drawn.
 *
 * A schedule joins this package with a file of its own in `schedules/generators/` and its name in
 * the list of `schedules/registry.ts`; commands, comparison, search and tests find it there. Its
 * order is kept on file by `deno task troupe schedule NAME --workers 4 --micro-batches 8 --format
 * csv --out tests/golden/schedules/NAME.csv`.
 *
 * @throws {RangeError} on `create`, if an option is not read or is no positive whole number, or if a
 * stage is placed on no worker.
 *
 * @example All forwards, then all backwards
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { B, defineSchedule, F } from "@troupe/troupe/schedules";
 *
 * const mine = defineSchedule({
 *   name: "mine",
 *   summary: "all forwards, then all backwards",
 *   place: ({ workers }) => ({ stages: workers, workerOf: (stage) => stage }),
 *   *order(worker, { microBatches }) {
 *     for (let m = 0; m < microBatches; m++) yield F(worker, m);
 *     for (let m = 0; m < microBatches; m++) yield B(worker, m);
 *   },
 * });
 * const schedule = mine.create({ workers: 2, microBatches: 2 });
 * strictEqual(String(schedule.lists?.[1]), "1F0,1F1,1B0,1B1");
 * ```
 */
export function defineSchedule<O extends ScheduleOptions = ScheduleOptions>(
  rule: ScheduleRule<O> | PolicyRule<O>,
): ScheduleDefinition<O> {
  return defineMade(rule, (options) => buildSchedule(rule, options));
}

/** What a definition says of itself. */
type Headline<O extends ScheduleOptions> = Pick<
  ScheduleRule<O>,
  "name" | "aliases" | "summary" | "reads" | "closedForm"
>;

/** A definition that makes its schedules from others, or from a rule. */
export function defineMade<O extends ScheduleOptions = ScheduleOptions>(
  { name, aliases, summary, reads, closedForm }: Headline<O>,
  make: (options: O) => Schedule,
): ScheduleDefinition<O> {
  const read = reads?.map(String);
  return {
    name,
    summary,
    ...(aliases && { aliases }),
    ...(read && { reads: read }),
    ...(closedForm && { closedForm }),
    create(options: O) {
      refuseUnread({ name, reads: read }, options);
      return make(options);
    },
  };
}
