/**
 * 1F1B without an end: the order of PipeDream (Narayanan et al. 2019, section 3.2) over the ends of
 * steps, until the pipe is to run empty.
 *
 * @module
 */

import { type Action, B, F, isOffered, type StepPolicy } from "../../../schedules/mod.ts";

/** A policy for any number of steps. */
export interface EndlessPolicy extends StepPolicy {
  /** So many more micro-batches come. */
  extend(microBatches: number): void;
  /** No more come: run the backwards that are left. */
  drain(): void;
}

/**
 * Opens the policy of a stage, for an empty pipe.
 *
 * Stage s of D runs D − 1 − s forwards ahead, then a forward and a backward in turn. Where the next
 * action has not got its input, or its step has not begun, it waits, though another could run.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { B, F } from "@troupe/troupe/schedules";
 *
 * const policy = openEndlessPolicy(0, 2);
 * policy.extend(2);
 * assert.deepEqual(policy.next([F(0, 0), F(0, 1)]), F(0, 0));
 * assert.deepEqual(policy.next([F(0, 1), B(0, 0)]), F(0, 1));
 * assert.deepEqual(policy.next([B(0, 0)]), B(0, 0));
 * assert.equal(policy.next([B(0, 1)]), undefined); // F of the next step comes first
 * policy.drain();
 * assert.deepEqual(policy.next([B(0, 1)]), B(0, 1));
 * assert.ok(policy.done);
 * ```
 */
export function openEndlessPolicy(stage: number, stages: number): EndlessPolicy {
  const warmUp = stages - 1 - stage;
  let forwards = 0, backwards = 0, known = 0, isDraining = false;
  const head = (): Action | undefined => {
    const wantsForward = forwards - backwards <= warmUp && !(isDraining && forwards === known);
    if (wantsForward) return forwards < known ? F(stage, forwards) : undefined;
    return backwards < forwards ? B(stage, backwards) : undefined;
  };
  return {
    next(ready) {
      const action = head();
      if (!action || !isOffered(ready, action)) return undefined;
      if (action.kind === "F") forwards++;
      else backwards++;
      return action;
    },
    get done() {
      return isDraining && backwards === known;
    },
    get waitsFor() {
      return head();
    },
    extend: (microBatches) => void (known += microBatches),
    drain: () => void (isDraining = true),
  };
}
