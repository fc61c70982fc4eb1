/** The message-driven policy: no order known beforehand, messages as they come. */

import type { Action } from "../actions/action.ts";
import type { StepPolicy } from "./policy.ts";

/** Which message a message-driven worker takes when several wait. */
export type MailboxOrder = "fifo" | "backward-first";

/**
 * AxoNN's policy (section III-C, Algorithm 2): handle messages as they come.
 *
 * `fifo` takes what arrived first; `backward-first` prefers a backward, then the lower
 * micro-batch. Both hold the one rule that keeps sums reproducible: within a stage and a kind,
 * micro-batches run in ascending order. Both run the backward of the last stage directly after
 * its forward, as no message lies between the two, and the first stage runs its first `limit`
 * forwards before all else. That there are never more in flight is the supervisor's business
 * (`Schedule.injectionLimit`).
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { B, F, messageDrivenPolicy } from "@troupe/troupe/schedules";
 *
 * const options = { stage: 1, stages: 4, microBatches: 8, limit: 4 };
 * const fifo = messageDrivenPolicy({ ...options, order: "fifo" });
 * deepStrictEqual(fifo.next([F(1, 0), B(1, 0)]), F(1, 0));
 * const backwardFirst = messageDrivenPolicy({ ...options, order: "backward-first" });
 * deepStrictEqual(backwardFirst.next([F(1, 0), B(1, 0)]), B(1, 0));
 * ```
 */
export function messageDrivenPolicy(
  options: {
    stage: number;
    stages: number;
    microBatches: number;
    limit: number;
    order: MailboxOrder;
  },
): StepPolicy {
  const { stage, stages, microBatches, limit, order } = options;
  const isLast = stage === stages - 1;
  // The next micro-batch of each kind; all that came before it has been given out.
  const expected = { F: 0, B: 0 };
  const policy = {
    next(ready: readonly Action[]): Action | undefined {
      const forward = indexOf(ready, "F", expected.F), backward = indexOf(ready, "B", expected.B);
      const isFilling = stage === 0 && !isLast && expected.F < limit;
      const backwardWins = backward >= 0 && !(isFilling && forward >= 0) &&
        (forward < 0 || isLast || order === "backward-first" || backward < forward);
      const action = ready[backwardWins ? backward : forward];
      if (action !== undefined) expected[backwardWins ? "B" : "F"]++;
      policy.done = expected.F === microBatches && expected.B === microBatches;
      return action;
    },
    done: microBatches === 0,
    waitsFor: undefined,
  };
  return policy;
}

function indexOf(ready: readonly Action[], kind: "F" | "B", microBatch: number): number {
  for (let i = 0; i < ready.length; i++) {
    const action = ready[i] as Action;
    if (action.microBatch === microBatch && action.kind === kind) return i;
  }
  return -1;
}
