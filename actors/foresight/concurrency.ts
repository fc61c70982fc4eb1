/**
 * How many workers compute at once while those of a stage do.
 *
 * @module
 */

import { parts } from "../../schedules/mod.ts";
import type { SimulatedStep } from "../../schedules/mod.ts";

/**
 * For each stage the mean number of workers that compute while an action of it runs, that of its own
 * worker included.
 *
 * @param replicas equal data-parallel replicas, which compute at the same times.
 */
export function concurrencyOf(
  { schedule, timeline: { starts, ends } }: Pick<SimulatedStep, "schedule" | "timeline">,
  replicas = 1,
): number[] {
  const busyUntil = busyIntegral(starts, ends);
  const ms = new Float64Array(schedule.stages), busy = new Float64Array(schedule.stages);
  for (const [worker, list] of schedule.lists.entries()) {
    let index = 0;
    for (const action of list) {
      const start = starts[worker]![index]!, end = ends[worker]![index]!, { stage } = action;
      ms[stage]! += end - start;
      busy[stage]! += busyUntil(end) - busyUntil(start);
      // Where two actions overlap, they are of the same worker: what holds for one holds for both.
      for (const part of parts(action)) {
        if (part.stage === stage) continue;
        ms[part.stage]! += end - start;
        busy[part.stage]! += busyUntil(end) - busyUntil(start);
      }
      index++;
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
