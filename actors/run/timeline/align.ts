/**
 * One clock for the workers of several hosts.
 *
 * [Note: clocks of hosts] Workers of one host read one clock; those of several read several, which
 * may be milliseconds apart. No message comes before it was sent: where one seems to, the clock of
 * its receiver is behind. The shift is then the one that makes the fastest message to and fro take
 * equally long, as in NTP; without such a message nothing is shifted. Only neighbours in the pipeline
 * are compared, so the replicas of a run on many hosts each keep the clock of their first worker.
 *
 * @module
 */

import { type Flow, flowsOf, sentAt } from "./flows.ts";
import type { Span } from "./span.ts";

/** The least time that a message seemed to take from one worker to another, by `from/to`. */
function leastMs(flows: readonly Flow[]): Map<string, number> {
  const least = new Map<string, number>();
  for (const { from, to } of flows) {
    // Of several actions at once the last output alone has its time.
    if (from.actions.length > 1 || to.arrived === undefined) continue;
    const key = `${from.worker}/${to.worker}`, took = to.arrived - sentAt(from);
    least.set(key, Math.min(least.get(key) ?? Infinity, took));
  }
  return least;
}

/** How far the clock of each worker is ahead of that of the first of its replica. */
function aheadMs(workers: readonly number[], least: ReadonlyMap<string, number>) {
  const ahead = new Map<number, number>(), queue = workers.slice(0, 1);
  for (const first of queue) ahead.set(first, 0);
  for (let at = queue.shift(); at !== undefined; at = queue.shift()) {
    for (const other of workers.filter((one) => !ahead.has(one))) {
      const there = least.get(`${at}/${other}`), back = least.get(`${other}/${at}`);
      if (there === undefined && back === undefined) continue;
      const isWrong = Math.min(there ?? 0, back ?? 0) < 0;
      const shift = ((there ?? -back!) - (back ?? -there!)) / 2;
      ahead.set(other, ahead.get(at)! + (isWrong ? shift : 0));
      queue.push(other);
    }
  }
  return ahead;
}

/**
 * The spans of one data-parallel replica with one clock, that of the first worker.
 *
 * @param replica the spans of each of its workers.
 */
export function alignClocks(replica: readonly (readonly Span[])[]): (readonly Span[])[] {
  const workers = replica.flatMap((spans) => spans[0] ? [spans[0].worker] : []);
  const ahead = aheadMs(workers, leastMs(flowsOf(replica.flat())));
  return replica.map((spans) => {
    const shift = spans[0] ? ahead.get(spans[0].worker) ?? 0 : 0;
    return shift === 0 ? spans : spans.map((span) => ({
      ...span,
      start: span.start - shift,
      end: span.end - shift,
      ...span.arrived !== undefined && { arrived: span.arrived - shift },
      ...span.sent !== undefined && { sent: span.sent - shift },
    }));
  });
}
