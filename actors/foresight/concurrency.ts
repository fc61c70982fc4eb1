/**
 * How many workers compute at once while those of a stage do.
 *
 * @module
 */

import { parts, type SimulatedStep } from "../../schedules/mod.ts";

type Timed = Pick<SimulatedStep, "schedule" | "timeline">;

/** Yields the actions of all workers with their times. */
export function* timedActions({ schedule, timeline: { starts, ends } }: Timed) {
  for (const [worker, list] of schedule.lists.entries()) {
    let index = 0;
    for (const action of list) {
      yield { action, start: starts[worker]![index]!, end: ends[worker]![index]! };
      index++;
    }
  }
}

/**
 * Returns for each stage the mean number of workers that compute while an action of it runs, that of
 * its own worker included.
 *
 * @param replicas equal data-parallel replicas, which compute at the same times.
 */
export function concurrencyOf(step: Timed, replicas = 1): number[] {
  const { schedule: { stages }, timeline: { starts, ends } } = step;
  const busyUntil = busyIntegral(starts, ends);
  const ms = new Float64Array(stages), busy = new Float64Array(stages);
  for (const { action, start, end } of timedActions(step)) {
    // Two actions that overlap are of the same worker, so both have the same times.
    const others = parts(action).filter(({ stage }) => stage !== action.stage);
    for (const { stage } of [action, ...others]) {
      ms[stage]! += end - start;
      busy[stage]! += busyUntil(end) - busyUntil(start);
    }
  }
  return Array.from(ms, (own, stage) => replicas * (own === 0 ? 1 : busy[stage]! / own));
}

/** Milliseconds that all workers together have computed until a time. */
export function busyIntegral(
  starts: readonly Float64Array[],
  ends: readonly Float64Array[],
): (time: number) => number {
  const flat = (lists: readonly Float64Array[]) =>
    Float64Array.from(lists.flatMap((list) => [...list])).sort();
  const sides = [flat(starts), flat(ends)].map((times) => {
    const sums = new Float64Array(times.length + 1);
    for (let i = 0; i < times.length; i++) sums[i + 1] = sums[i]! + times[i]!;
    return { times, sums };
  });
  // Each that has begun by then counts from its start, less what came after its end.
  return (time) => {
    const [begun, ended] = sides.map(({ times, sums }) => {
      const count = countUntil(times, time);
      return count * time - sums[count]!;
    });
    return begun! - ended!;
  };
}

/** How many of some sorted times are not later than a time. */
function countUntil(times: Float64Array, time: number): number {
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle]! <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}
