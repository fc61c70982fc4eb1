/** Dispatch policies: action lists, elastic lists, and AxoNN's message-driven policy. */

import { type Action, endsBackward, formatAction, parts } from "./action.ts";
import { type ActionList, activationChanges, KIND, peakOf } from "./action_list.ts";

/**
 * Returns true if `ready` has all offers that an action needs.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { B, F, I } from "@troupe/troupe/schedules";
 * import { overlap } from "./action.ts";
 *
 * strictEqual(isOffered([F(0, 1), B(7, 0)], overlap(F(0, 1), I(7, 0))), true);
 * strictEqual(isOffered([F(0, 1)], F(0, 1, 2)), false);
 * ```
 */
export function isOffered(ready: readonly Action[], action: Action): boolean {
  for (const part of parts(action)) if (offersFor(ready, part).length === 0) return false;
  return true;
}

/**
 * Removes the offers of an action from `ready`. The offer of a whole backward stays until its last
 * part runs.
 *
 * @throws {RangeError} if the action, or a part of it, is not offered.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { B, F, I } from "@troupe/troupe/schedules";
 * import { overlap } from "./action.ts";
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
      const isKept = offer.part === undefined && !endsBackward(part);
      if (!isKept) ready.splice(ready.indexOf(offer), 1);
    }
  }
}

/** The offers for a part: one, all parts for a whole backward, or none. */
function offersFor(ready: readonly Action[], wanted: Action): readonly Action[] {
  const found: Action[] = [], { index } = wanted.part ?? {};
  for (const offer of ready) {
    if (!isOf(offer, wanted)) continue;
    if (offer.part === undefined || offer.part.index === index) return [offer];
    found.push(offer);
  }
  return index === undefined && found.length === found[0]?.part?.count ? found : [];
}

/** Returns true if an offer matches an action, apart from their parts. */
function isOf({ kind, stage, microBatch }: Action, wanted: Action): boolean {
  return microBatch === wanted.microBatch && stage === wanted.stage &&
    (kind === wanted.kind || (kind === "B" && wanted.kind === "I"));
}

/**
 * Picks the next action of one worker.
 *
 * `ready` holds the plain actions whose inputs have arrived, in the order of their arrival: the
 * offers. A backward is offered as `B`; a policy whose schedule splits it answers with `I`, and is
 * offered `W` once that has run. A whole backward may be answered with its halves, one after the
 * other, and two halves with the whole. The worker runs the returned action and removes its offers
 * from `ready` ({@linkcode takeOffers}).
 */
export interface DispatchPolicy {
  /** The action to run now; undefined to wait. */
  next(ready: readonly Action[]): Action | undefined;
}

/** A policy for one worker and one optimizer step. */
export interface StepPolicy extends DispatchPolicy {
  /** True once every action of the step has been returned. */
  readonly done: boolean;
  /** The only action that it waits for, for the report of a stall; undefined if several would do. */
  readonly waitsFor: Action | undefined;
}

/** Options of an elastic policy. */
export interface ElasticOptions {
  /** Most (stage, micro-batch) activations at a time; the peak of the list unless given. */
  readonly activationLimit?: number | undefined;
}

/**
 * Follows an action list; if its head is not ready, runs the first later action that is: within the
 * memory that the list itself needs, and never past another action of the same stage and kind. A B
 * counts as both an I and a W here, so gradients are summed in the order of the list and the result
 * is bit-identical. Doubled forwards, actions of parts and overlaps remain composed.
 *
 * The gain depends on the list. In simulated steps of 16 micro-batches with message delays from 0 to
 * 3 tF, Chimera, Hanayo and GPipe on 4 workers take 5 to 11 % less time in their own memory. 1F1B keeps
 * few activations, so it gains nothing there unless some messages are very late; on 8 workers with room
 * for 8 activations on each it takes 9 % less.
 *
 * [Note: elastic lists neither deadlock nor need more memory] The policy keeps an invariant: the
 * remaining actions, run in the order of the list from the current live activations, stay within the
 * limit. It holds at the start. Running the head keeps it. Running a later action early changes the
 * live activations at each overtaken action by its own share, and nothing after its place; so the
 * policy adds that share to the actions in between and runs the later action only if all of them stay
 * within the limit. Room for the head is therefore never given away, and a ready head always runs. Now
 * take any order of all actions of all workers in which the lists could run one by one, and its first
 * action that has not run: its inputs have arrived or are in transit, and the actions before it on its
 * list have run. It is a head, so it will run. The step therefore ends if the lists alone would end.
 *
 * @throws {RangeError} if the limit is less than the list itself needs.
 *
 * @example A later gradient must wait for a late one, but a forward may overtake it
 * ```ts
 * import { deepStrictEqual, strictEqual } from "node:assert/strict";
 * import { ActionList, B, elasticPolicy, F } from "@troupe/troupe/schedules";
 *
 * const list = ActionList.from([F(0, 0), F(0, 1), B(0, 0), F(0, 2), B(0, 1), B(0, 2)]);
 * const policy = elasticPolicy(list, { activationLimit: 3 });
 * policy.next([F(0, 0)]);
 * policy.next([F(0, 1)]);
 * strictEqual(policy.next([B(0, 1)]), undefined);
 * deepStrictEqual(policy.next([B(0, 1), F(0, 2)]), F(0, 2));
 * deepStrictEqual(policy.waitsFor, B(0, 0));
 * ```
 */
export function elasticPolicy(list: ActionList, options: ElasticOptions = {}): StepPolicy {
  const needed = peakOf(list), { activationLimit = needed } = options;
  if (!(activationLimit >= needed)) {
    throw new RangeError(
      `Cannot make an elastic policy: activationLimit must be at least ${needed}, what the list ` +
        `itself needs, received ${activationLimit}`,
    );
  }
  const limit = activationLimit * list.slices, changes = activationChanges(list);
  const actions = [...list], memory = actions.map((_, index) => memoryOf(list, changes, index));
  const lanes = openLanes(list), isGiven = new Uint8Array(list.length);
  let head = 0, live = 0;

  /** Returns true if an action can run now and leave room for all actions that it overtakes. */
  const fits = (index: number): boolean => {
    const { rise, net } = memory[index]!;
    if (live + rise > limit) return false;
    let level = live + net;
    for (let i = head; net > 0 && i < index; i++) {
      if (isGiven[i]) continue;
      const overtaken = memory[i]!;
      if (level + overtaken.rise > limit) return false;
      level += overtaken.net;
    }
    return true;
  };
  const give = (index: number) => {
    isGiven[index] = 1;
    live += memory[index]!.net;
    lanes.pass(index);
    while (isGiven[head]) head++;
    policy.done = head === list.length;
    policy.waitsFor = actions[head];
    return actions[index];
  };
  const policy = {
    next(ready: readonly Action[]): Action | undefined {
      const action = actions[head];
      if (action === undefined) return undefined;
      if (isOffered(ready, action)) return give(head);
      const early = lanes.fronts().find((i) => isOffered(ready, actions[i]!) && fits(i));
      return early === undefined ? undefined : give(early);
    },
    done: list.length === 0,
    waitsFor: actions[head],
  };
  return policy;
}

/** The live activations that an action adds: at most while it runs, and after it. */
function memoryOf(list: ActionList, changes: Float64Array, index: number) {
  let rise = 0, net = 0;
  for (let part = list.startOf(index), end = list.startOf(index + 1); part < end; part++) {
    net += changes[part]!;
    rise = Math.max(rise, net);
  }
  return { rise, net };
}

/** Of the lanes of a stage (0 forwards, 1 gradients of inputs, 2 of weights, 3 R), those of a kind. */
const LANES_OF = { [KIND.F]: [0], [KIND.B]: [1, 2], [KIND.I]: [1], [KIND.W]: [2], [KIND.R]: [3] };
const LANES_PER_STAGE = 4;

/** The lanes of a list: actions of one stage and kind, which must not overtake each other. */
function openLanes(list: ActionList) {
  const lanes = new Map<number, { readonly actions: number[]; passed: number }>();
  const lanesOf = Array.from(list, (_, index) => {
    const keys = new Set<number>();
    for (let part = list.startOf(index), end = list.startOf(index + 1); part < end; part++) {
      for (const lane of LANES_OF[list.kindAt(part) as keyof typeof LANES_OF]) {
        keys.add(list.stageAt(part) * LANES_PER_STAGE + lane);
      }
    }
    return Array.from(keys, (key) => {
      const lane = lanes.get(key) ?? { actions: [], passed: 0 };
      lanes.set(key, lane);
      lane.actions.push(index);
      return lane;
    });
  });
  const isFront = (index: number) =>
    lanesOf[index]!.every(({ actions, passed }) => actions[passed] === index);
  return {
    /** The actions that are next in all their lanes, in the order of the list. */
    fronts(): number[] {
      const fronts = lanes.values().flatMap(({ actions, passed }) =>
        actions.slice(passed, passed + 1)
      );
      return [...new Set(fronts.filter(isFront))].sort((a, b) => a - b);
    },
    /** Removes an action that is next in all its lanes. */
    pass(index: number) {
      for (const lane of lanesOf[index]!) lane.passed++;
    },
  };
}

/**
 * Follows an action list strictly: its head as soon as the inputs of the head have arrived.
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
  const policy = {
    next(ready: readonly Action[]): Action | undefined {
      const head = policy.waitsFor;
      if (head === undefined || !isOffered(ready, head)) return undefined;
      policy.waitsFor = list.at(++index);
      policy.done = index === list.length;
      return head;
    },
    done: list.length === 0,
    waitsFor: list.at(index),
  };
  return policy;
}

/** A policy that follows lists, as plain data. */
export interface ListPolicy {
  /**
   * Only the head ({@linkcode listPolicy}), or a later action if the head is not ready
   * ({@linkcode elasticPolicy}).
   */
  readonly name: "list" | "elastic";
  /**
   * Elastic: the most (stage, micro-batch) activations of a worker; at least, and unless given, the
   * peak of its list.
   */
  readonly activationLimit?: number | undefined;
}

/**
 * Makes a policy that follows a list for one step.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { ActionList, B, F } from "@troupe/troupe/schedules";
 *
 * const list = ActionList.from([F(0, 0), F(0, 1), B(0, 0), B(0, 1)]);
 * const policy = followList(list, { name: "list" });
 * policy.next([F(0, 0), F(0, 1)]);
 * strictEqual(policy.next([B(0, 0)]), undefined);
 * ```
 */
export function followList(
  list: ActionList,
  { name, activationLimit = 0 }: ListPolicy,
): StepPolicy {
  if (name === "list") return listPolicy(list);
  return elasticPolicy(list, { activationLimit: Math.max(activationLimit, peakOf(list)) });
}

/**
 * Returns a function that makes the policy of a worker, which follows its list.
 *
 * @example
 * ```ts
 * import { throws } from "node:assert/strict";
 * import { ActionList } from "@troupe/troupe/schedules";
 *
 * const policyOf = listPolicies([ActionList.from([])]);
 * throws(() => policyOf(1), RangeError);
 * ```
 */
export function listPolicies(
  lists: readonly ActionList[],
  policy: ListPolicy = { name: "list" },
): (worker: number) => StepPolicy {
  return (worker) => followList(lists[checkWorker(worker, lists.length)]!, policy);
}

/** Returns the worker. @throws {RangeError} if it does not exist. */
export function checkWorker(worker: number, workers: number): number {
  if (Number.isInteger(worker) && worker >= 0 && worker < workers) return worker;
  throw new RangeError(
    `Cannot make a policy: the worker must be from 0 to ${workers - 1}, received ${worker}`,
  );
}

/** The message that a message-driven worker takes first. */
export type MailboxOrder = "fifo" | "backward-first";

/**
 * AxoNN's policy (section III-C, Algorithm 2): handle messages as they come.
 *
 * `fifo` takes the first to arrive; `backward-first` prefers a backward, then the lower micro-batch.
 * Both keep the rule that makes sums reproducible: within a stage and a kind, micro-batches run in
 * ascending order. Both run the backward of the last stage directly after its forward, without a
 * message between them, and the first stage begins with its first `limit` forwards. The
 * supervisor limits the micro-batches in flight (`Schedule.injectionLimit`).
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
  { stage, stages, microBatches, limit, order }: {
    readonly stage: number;
    readonly stages: number;
    readonly microBatches: number;
    readonly limit: number;
    readonly order: MailboxOrder;
  },
): StepPolicy {
  const isLast = stage === stages - 1;
  // The next micro-batch of each kind; all before it have been returned.
  const expected = { F: 0, B: 0 };
  const find = (ready: readonly Action[], kind: "F" | "B") =>
    ready.findIndex((one) => one.kind === kind && one.microBatch === expected[kind]);
  const policy = {
    next(ready: readonly Action[]): Action | undefined {
      const forward = find(ready, "F"), backward = find(ready, "B");
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
