/**
 * A traced action as a file says it, which may be a stranger's.
 *
 * @module
 */

import { readSpan, type TracedAction } from "../../actors/mod.ts";

/** Whether a value is a finite number. */
export const isTime = (value: unknown): value is number =>
  typeof value === "number" && Number.isFinite(value);

/** Whether a value is a whole number from 0. */
export const isCount = (value: unknown): value is number =>
  Number.isSafeInteger(value) && value as number >= 0;

/** Longer than the name of any action: an overlap of two, or an all-reduce of all stages. */
const NAME_MAX = 2048;

const TIMES = ["arrived", "sent"] as const,
  COUNTS = ["waiting", "stage", "chunk", "bucket"] as const;

/** Reads what is known of an action; undefined if it is none. */
export function readTraced(value: unknown): TracedAction | undefined {
  const record = (typeof value === "object" ? value ?? {} : {}) as Record<string, unknown>;
  const { name, start, end } = record;
  if (typeof name !== "string" || name.length > NAME_MAX || !isTime(start) || !isTime(end)) {
    return undefined;
  }
  const times = TIMES.filter((key) => record[key] !== undefined);
  const counts = COUNTS.filter((key) => record[key] !== undefined);
  const isRight = end >= start && times.every((key) => isTime(record[key])) &&
    counts.every((key) => isCount(record[key]));
  if (!isRight) return undefined;
  const said = [...times, ...counts].map((key) => [key, record[key]]);
  const traced: TracedAction = { name, start, end, ...Object.fromEntries(said) };
  return isNamed(traced) ? traced : undefined;
}

function isNamed(traced: TracedAction): boolean {
  try {
    const { stages, actions } = readSpan(traced, 0);
    return [...stages, ...actions.map(({ microBatch }) => microBatch)].every(isCount);
  } catch {
    return false;
  }
}
