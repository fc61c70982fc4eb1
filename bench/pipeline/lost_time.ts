/**
 * What a step loses between its actions: to messages, copies of messages, and whatever else no
 * action's own duration explains.
 *
 * [Note: played again] The actions of a traced step are played again on paper, each on its worker, in
 * its order, for as long as it took, as soon as what it needs has been computed. What the step took
 * longer than that is lost. Other programs make actions longer, and so both: the difference stands on
 * a busy machine, too.
 *
 * @module
 */

import type { TracedAction } from "../../actors/pipeline/step.ts";

/** An action of a stage on a micro-batch. */
interface Played {
  readonly name: string;
  /** The action of another stage whose output it takes; none at the ends of the pipeline. */
  readonly needs: string;
  readonly ms: number;
}

/** Those that compute; others are no part of it: all-reduce and optimizer. */
function playedOf({ name, start, end }: TracedAction): Played[] {
  const [, stage, kind, microBatch] = /^(\d+)([FBIW])(\d+)$/.exec(name) ?? [];
  if (stage === undefined) return [];
  const before = Number(stage) + (kind === "F" ? -1 : 1);
  // Split backwards pass the gradient on by I.
  return [{ name, needs: kind === "W" ? "" : `${before}${kind}${microBatch}`, ms: end - start }];
}

/** Milliseconds from the first forward to the last backward, played without any loss. */
function playedMs(lists: readonly (readonly Played[])[]): number {
  const all = new Set(lists.flat().map(({ name }) => name));
  const ends = new Map<string, number>(), queues = lists.map((list) => [...list]);
  const freeAt = lists.map(() => 0);
  for (let isMoving = true; isMoving;) {
    isMoving = false;
    for (const [worker, queue] of queues.entries()) {
      const [next] = queue;
      if (!next || all.has(next.needs) && !ends.has(next.needs)) continue;
      freeAt[worker] = Math.max(freeAt[worker]!, ends.get(next.needs) ?? 0) + next.ms;
      ends.set(next.name, freeAt[worker]!);
      queue.shift();
      isMoving = true;
    }
  }
  return Math.max(...freeAt);
}

/** Milliseconds that a traced step lost between its actions. */
export function lostMs(traces: readonly (readonly TracedAction[])[]): number {
  const computing = traces.map((trace) => trace.filter((one) => playedOf(one).length > 0));
  const all = computing.flat();
  const took = Math.max(...all.map(({ end }) => end)) - Math.min(...all.map(({ start }) => start));
  return took - playedMs(computing.map((trace) => trace.flatMap(playedOf)));
}
