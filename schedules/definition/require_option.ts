/** Refuses an option that a schedule cannot serve. */

/**
 * Refuses an option of a schedule.
 *
 * @throws {RangeError} if `holds` is false or `value` is not a whole number.
 *
 * @example
 * ```ts
 * import { throws } from "node:assert/strict";
 * import { requireOption } from "@troupe/troupe/schedules";
 *
 * throws(() => requireOption("chimera", "workers", 3, 3 % 2 === 0, "even"), {
 *   name: "RangeError",
 *   message: "Cannot make the schedule chimera: workers must be even, received 3",
 * });
 * ```
 */
export function requireOption(
  schedule: string,
  option: string,
  value: number,
  holds: boolean,
  must: string,
): void {
  if (Number.isInteger(value) && holds) return;
  const whole = Number.isInteger(value) ? "" : "a whole number, ";
  throw new RangeError(
    `Cannot make the schedule ${schedule}: ${option} must be ${whole}${must}, received ${value}`,
  );
}
