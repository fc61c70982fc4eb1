/** Dispatch policies: which of the actions that could run now a worker runs next. */

import { type Action, formatAction, parts } from "../actions/action.ts";
import type { ActionList } from "../actions/action_list.ts";

/**
 * Picks the next action of one worker.
 *
 * `ready` holds the plain actions whose inputs have arrived, in the order of their arrival: the
 * offers. A backward is offered as `B`; a policy whose schedule splits it answers with `I`, and is
 * offered `W` once that has run. A whole backward may be answered with its halves, one after the
 * other, and two halves with the whole. The worker runs what is returned, and takes its offers out
 * of `ready` ({@linkcode takeOffers}).
 */
export interface DispatchPolicy {
  /** The action to run now; undefined where the policy would rather wait. */
  next(ready: readonly Action[]): Action | undefined;
}

/** A policy for one worker and one optimizer step. */
export interface StepPolicy extends DispatchPolicy {
  /** Whether every action of the step has been given out. */
  readonly done: boolean;
  /** The one action that it waits for, for the report of a stall; undefined where any will do. */
  readonly waitsFor: Action | undefined;
}

/**
 * Follows an action list: its head as soon as the inputs of the head are there, never another.
 *
 * @example
 * ```ts
 * import { deepStrictEqual, strictEqual } from "node:assert/strict";
 * import { ActionList, B, F, listPolicy } from "@troupe/troupe/schedules";
 *
 * const policy = listPolicy(ActionList.from([F(0, 0), B(0, 0)]));
 * strictEqual(policy.next([F(0, 1)]), undefined);
 * deepStrictEqual(policy.next([F(0, 1), F(0, 0)]), F(0, 0));
 * strictEqual(policy.done, false);
 * deepStrictEqual(policy.waitsFor, B(0, 0));
 * ```
 */
export function listPolicy(list: ActionList): StepPolicy {
  let index = 0;
  return {
    next(ready) {
      const head = list.at(index);
      if (head === undefined || !isOffered(ready, head)) return undefined;
      index++;
      return head;
    },
    get done() {
      return index === list.length;
    },
    get waitsFor() {
      return list.at(index);
    },
  };
}

/**
 * Whether all that an action needs is among the offers.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { B, F, I, isOffered, overlap } from "@troupe/troupe/schedules";
 *
 * strictEqual(isOffered([F(0, 1), B(7, 0)], overlap(F(0, 1), I(7, 0))), true);
 * strictEqual(isOffered([F(0, 1)], F(0, 1, 2)), false);
 * ```
 */
export function isOffered(ready: readonly Action[], action: Action): boolean {
  return parts(action).every((part) => offersFor(ready, part).length > 0);
}

/**
 * Takes the offers that an action uses out of `ready`. The offer of a whole backward stays until
 * its second half runs.
 *
 * @throws {RangeError} if the action, or a part of it, is not offered.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { B, F, I, overlap, takeOffers } from "@troupe/troupe/schedules";
 *
 * const ready = [F(0, 1), B(7, 0), B(7, 1)];
 * takeOffers(ready, overlap(F(0, 1), I(7, 0)));
 * deepStrictEqual(ready, [B(7, 1)]);
 * ```
 */
export function takeOffers(ready: Action[], action: Action): void {
  for (const part of parts(action)) {
    const offers = offersFor(ready, part);
    if (offers.length === 0) {
      throw new RangeError(
        `Cannot run ${formatAction(action)}: ${formatAction(part)} must be offered, received ` +
          `[${ready.map(formatAction).join(", ")}]`,
      );
    }
    for (const offer of offers) {
      const isFirstHalfOfWhole = part.half === 0 && offer.half === undefined;
      if (!isFirstHalfOfWhole) ready.splice(ready.indexOf(offer), 1);
    }
  }
}

/** The offers that serve a part: one of them, two halves for a whole backward, or none. */
function offersFor(ready: readonly Action[], wanted: Action): readonly Action[] {
  const isRun = ({ kind, stage, microBatch }: Action) =>
    (kind === wanted.kind || (kind === "B" && wanted.kind === "I")) &&
    stage === wanted.stage && microBatch === wanted.microBatch;
  const offer = ready.find((one) =>
    isRun(one) && (one.half === undefined || one.half === wanted.half)
  );
  if (offer !== undefined) return [offer];
  const halves = wanted.half === undefined ? ready.filter(isRun) : [];
  return halves.length === 2 ? halves : [];
}

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
  return {
    next(ready) {
      const isNext = (kind: "F" | "B") => (action: Action) =>
        action.kind === kind && action.microBatch === expected[kind];
      const forward = ready.findIndex(isNext("F"));
      const backward = ready.findIndex(isNext("B"));
      const isFilling = stage === 0 && !isLast && expected.F < limit;
      const backwardWins = backward >= 0 && !(isFilling && forward >= 0) &&
        (forward < 0 || isLast || order === "backward-first" || backward < forward);
      const action = ready[backwardWins ? backward : forward];
      if (action !== undefined) expected[backwardWins ? "B" : "F"]++;
      return action;
    },
    get done() {
      return expected.F === microBatches && expected.B === microBatches;
    },
    waitsFor: undefined,
  };
}
