/**
 * Probabilistic concurrency testing.
 *
 * @module
 */

import { substream } from "../../runtime/world/random.ts";
import type { Candidate } from "../../runtime/mod.ts";
import { checkPositive, type NextTimer, type Strategy, WAIT } from "./strategy.ts";

/**
 * Priorities drawn once, lowered at `depth - 1` random steps: a bug that needs `depth` events in
 * one order is found with probability at least 1/(n·k^(depth-1)) a run, for n threads and k steps.
 * The "threads" here are the edges, sender to actor, each a FIFO of its own, and the clock; one gets
 * its priority when it is first seen.
 *
 * Burckhardt, Kothari, Musuvathi, Nagarakatte: A Randomized Scheduler with Probabilistic
 * Guarantees of Finding Bugs, ASPLOS 2010, section 3.
 *
 * @param depth number of ordering constraints that the bugs looked for need, 1 or more.
 * @throws {RangeError} when `depth` is not a positive integer.
 *
 * @example
 * ```ts
 * import { pct } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * assert.equal(pct(3).name, "pct(3)");
 * assert.throws(() => pct(0), /Cannot explore by pct: depth must be a positive integer, received 0/);
 * ```
 */
export function pct(depth: number): Strategy {
  checkPositive("pct", "depth", depth);
  const priorities = new Map<string, number>();
  let next: () => number, changes: Set<number>, lowest: number, choices: number;

  const priorityOf = (thread: string) => priorities.getOrInsertComputed(thread, next);
  const first = (candidates: readonly Candidate[], timer?: NextTimer) => {
    const index = highest(candidates, (candidate) => priorityOf(edgeOf(candidate)));
    if (timer !== "near") return index;
    return priorityOf(CLOCK) > priorityOf(edgeOf(candidates[index]!)) ? WAIT : index;
  };
  return {
    name: `pct(${depth})`,
    begin({ seed, expectedSteps }) {
      next = substream(seed, "pct");
      priorities.clear();
      lowest = choices = 0;
      changes = new Set(
        Array.from({ length: depth - 1 }, () => Math.floor(next() * expectedSteps)),
      );
      return true;
    },
    choose(candidates, _step, _state, timer) {
      const index = first(candidates, timer);
      if (!changes.has(choices++)) return index;
      priorities.set(index === WAIT ? CLOCK : edgeOf(candidates[index]!), --lowest);
      return first(candidates, timer);
    },
  };
}

/** Stands for the clock among the edges. */
const CLOCK = "";

function edgeOf({ from, actor }: Candidate): string {
  return `${from}>${actor}`;
}

/** The index of the candidate with the highest priority. */
export function highest(
  candidates: readonly Candidate[],
  priorityOf: (candidate: Candidate) => number,
): number {
  let best = 0, bestPriority = -Infinity;
  for (let index = 0; index < candidates.length; index++) {
    const priority = priorityOf(candidates[index]!);
    if (priority > bestPriority) [best, bestPriority] = [index, priority];
  }
  return best;
}
