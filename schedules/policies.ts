/** Dispatch policies: action lists, and readiness with a list or an order as its hint. */

import { type Action, endsBackward, formatAction, parts } from "./action.ts";
import { ActionList, activationChanges, KIND, peakOf } from "./action_list.ts";
import { assertInput, refusal } from "./errors.ts";

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
  return parts(action).every((part) => offersOf(ready, part).length > 0);
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
    const offers = offersOf(ready, part);
    if (offers.length === 0) {
      const received = `[${ready.map(formatAction).join(", ")}]`, must = "must be offered";
      throw refusal(`run ${formatAction(action)}`, `${formatAction(part)} ${must}`, received);
    }
    for (const offer of offers) {
      const isKept = offer.part === undefined && !endsBackward(part);
      if (!isKept) ready.splice(ready.indexOf(offer), 1);
    }
  }
}

/** The offer of a part or of the whole, or those of all parts of a whole backward; none if one lacks. */
function offersOf(ready: readonly Action[], wanted: Action): readonly Action[] {
  const { part } = wanted;
  const own = ready.find((offer) =>
    isOf(offer, wanted) && (offer.part === undefined || offer.part.index === part?.index)
  );
  if (own !== undefined) return [own];
  const found = part === undefined ? ready.filter((offer) => isOf(offer, wanted)) : [];
  return found.length === found[0]?.part?.count ? found : [];
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
 * from `ready`.
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
  /** Maximum number of (stage, micro-batch) activations at a time. Default: the peak of the list. */
  readonly activationLimit?: number | undefined;
  /**
   * K: whole backwards of the list run as I, and their W when nothing else can, with at most K
   * micro-batches of a stage between them; as the list says unless given.
   */
  readonly weightBacklog?: number | undefined;
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
export function elasticPolicy(hint: ActionList, options: ElasticOptions = {}): StepPolicy {
  const { weightBacklog } = options,
    list = weightBacklog ? ActionList.from([...hint].flatMap(splitBackward)) : hint;
  const needed = peakOf(list), { activationLimit = needed } = options;
  const must = `activationLimit must be at least ${needed}, what the list itself needs`;
  assertInput(activationLimit >= needed, "make an elastic policy", must, activationLimit);
  const limit = activationLimit * list.slices, changes = activationChanges(list);
  const actions = [...list], memory = actions.map((_, index) => memoryOf(list, changes, index));
  const lanes = openLanes(list), isGiven = new Uint8Array(list.length);
  const owed = new Map<number, number>();
  let head = 0, live = 0;

  /** Returns true if an action should let others go first: a W, or an I beyond the backlog. */
  const waits = ({ kind, stage, overlap }: Action): boolean => {
    if (!weightBacklog || overlap !== undefined) return false;
    return kind === "W" || kind === "I" && (owed.get(stage) ?? 0) >= weightBacklog;
  };
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
    for (const { kind, stage } of parts(actions[index]!)) {
      const change = kind === "I" ? 1 : kind === "W" ? -1 : 0;
      if (change !== 0) owed.set(stage, (owed.get(stage) ?? 0) + change);
    }
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
      if (isOffered(ready, action) && !waits(action)) return give(head);
      const fronts = lanes.fronts().filter((i) => isOffered(ready, actions[i]!) && fits(i));
      const next = fronts.find((i) => !waits(actions[i]!)) ??
        fronts.find((i) => actions[i]!.kind === "W");
      return next === undefined ? undefined : give(next);
    },
    done: list.length === 0,
    waitsFor: actions[head],
  };
  return policy;
}

/** Returns I and W instead of a whole backward, and any other action as it is. */
export function splitBackward(action: Action): Action[] {
  const { kind, part, overlap } = action;
  if (kind !== "B" || part !== undefined || overlap !== undefined) return [action];
  return [{ ...action, kind: "I" }, { ...action, kind: "W" }];
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

/** Lanes of each kind of action: 0 forwards, 1 gradients of inputs, 2 gradients of weights, 3 R. */
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

/**
 * A policy that follows lists, as plain data. An elastic one has at least the peak of a list as its
 * limit of activations.
 */
export interface ListPolicy extends ElasticOptions {
  /**
   * Only the head ({@linkcode listPolicy}), or a later action if the head is not ready
   * ({@linkcode elasticPolicy}).
   */
  readonly name: "list" | "elastic";
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
  { name, activationLimit = 0, weightBacklog }: ListPolicy,
): StepPolicy {
  if (name === "list") return listPolicy(list);
  return elasticPolicy(list, {
    activationLimit: Math.max(activationLimit, peakOf(list)),
    weightBacklog,
  });
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
  const isWorker = Number.isInteger(worker) && worker >= 0 && worker < workers;
  assertInput(isWorker, "make a policy", `the worker must be from 0 to ${workers - 1}`, worker);
  return worker;
}

/** The hint of a message-driven worker: which of the actions that are ready runs first. */
export type MailboxOrder = "fifo" | "backward-first" | "bf" | "bfw";

/** All hints. */
export const MAILBOX_ORDERS: readonly MailboxOrder[] = ["fifo", "backward-first", "bf", "bfw"];

/** Returns true for the hints of AxoNN's policy, by which all backwards are whole. */
export const isByMessage = (order: MailboxOrder): boolean =>
  order === "fifo" || order === "backward-first";

/** A stage of a worker, with the next micro-batch of each kind; all before it have been returned. */
interface Progress {
  readonly stage: number;
  /** Later stages of the same worker. */
  readonly later: number;
  F: number;
  I: number;
  W: number;
}

/** Options of {@linkcode readinessPolicy}. */
export interface ReadinessOptions {
  /** The stages of the worker, ascending. */
  readonly held: readonly number[];
  /** All stages. */
  readonly stages: number;
  /** Micro-batches of the step. */
  readonly microBatches: number;
  /** Maximum activations of the worker, in units of one stage and the largest micro-batch. */
  readonly limit: number;
  /** The hint. */
  readonly order: MailboxOrder;
  /** Maximum number of micro-batches of a stage whose I has run and whose W has not. Default 0. */
  readonly weightBacklog?: number;
  /** The activations of each micro-batch, as a part of the largest one's. Default 1. */
  readonly sizes?: readonly number[] | undefined;
}

/**
 * Runs what is ready, without a list: at most `limit` activations, each stage and kind in ascending
 * order of micro-batches. `order` is the hint that chooses among several actions that may run:
 *
 * - `fifo` and `backward-first`: AxoNN's policy (Singh and Bhatele 2022, section III-C, Algorithm 2).
 *   The first to arrive, or a backward before a forward; the last stage runs its backward directly
 *   after its forward, and the first stage begins with its first `limit` forwards.
 * - `bf` and `bfw`: RRFP's hints (arXiv 2605.18750). A backward, then a forward; and for `bfw` a
 *   backward for the input, then a forward, with backwards for the weights in the time between. At
 *   most `weightBacklog` micro-batches of a stage wait for their W; 0 runs whole backwards.
 *
 * Neither a clock nor (except for `fifo`) the order of arrival decides.
 *
 * [Note: readiness ends every step] Take the oldest micro-batch whose I of stage 0 has not run. All
 * before it owe only W, which may always run. A forward leaves room for one activation of each later
 * stage of its worker, so what later micro-batches hold never keeps the next action of this one from
 * running.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { B, F, I, readinessPolicy, W } from "@troupe/troupe/schedules";
 *
 * const options = { held: [1], stages: 4, microBatches: 8, limit: 4 };
 * const fifo = readinessPolicy({ ...options, order: "fifo" });
 * deepStrictEqual(fifo.next([F(1, 0), B(1, 0)]), F(1, 0));
 * const split = readinessPolicy({ ...options, order: "bfw", weightBacklog: 2 });
 * split.next([F(1, 0)]);
 * deepStrictEqual(split.next([F(1, 1), B(1, 0)]), I(1, 0));
 * deepStrictEqual(split.next([F(1, 1), W(1, 0)]), F(1, 1));
 * deepStrictEqual(split.next([W(1, 0)]), W(1, 0));
 * ```
 */
export function readinessPolicy(
  { held, stages, microBatches, limit, order, weightBacklog = 0, sizes }: ReadinessOptions,
): StepPolicy {
  const own = held.map((stage, i): Progress => (
    { stage, later: held.length - 1 - i, F: 0, I: 0, W: 0 }
  ));
  const sizeOf = (microBatch: number) => sizes?.[microBatch] ?? 1;
  let live = 0, last: Action["kind"] | undefined;
  const find = (ready: readonly Action[], kind: "F" | "B", { stage, F, I }: Progress) =>
    ready.findIndex((one) =>
      one.kind === kind && one.stage === stage && one.microBatch === (kind === "F" ? F : I)
    );
  const fits = ({ F, later }: Progress) => live + sizeOf(F) + later <= limit + 1e-9;
  /** The stage whose micro-batch of a kind is the lowest, then the later one. */
  const lowest = (some: readonly Progress[], kind: "I" | "W") =>
    some.reduce<Progress | undefined>((a, b) => a && a[kind] < b[kind] ? a : b, undefined);
  const byMessage = (ready: readonly Action[], forward?: Progress, backward?: Progress) => {
    if (!forward || !backward) return forward ? "F" : backward && "B";
    const { stage, F } = forward, isLast = stage === stages - 1;
    if (stage === 0 && !isLast && F < limit) return "F";
    if (isLast || order === "backward-first") return "B";
    return find(ready, "B", backward) < find(ready, "F", forward) ? "B" : "F";
  };
  /** The kind of the next action and its stage. */
  const pick = (ready: readonly Action[]): readonly [Action["kind"], Progress] | undefined => {
    const forward = own.findLast((one) => fits(one) && find(ready, "F", one) >= 0);
    const offered = own.filter((one) => find(ready, "B", one) >= 0);
    const isSplit = weightBacklog > 0;
    const may = offered.filter(({ I, W }) => !isSplit || I - W < weightBacklog);
    const backward = lowest(may, "I"), full = lowest(offered, "I");
    const owed = lowest(own.filter(({ I, W }) => W < I), "W");
    if (isByMessage(order)) {
      const kind = byMessage(ready, forward, backward);
      return kind && [kind, kind === "F" ? forward! : backward!];
    }
    const isFull = own.length === 1 && own[0]!.F < microBatches && !fits(own[0]!);
    if (owed && isFull) return ["W", owed];
    if (last === "I" && forward) return ["F", forward];
    if (backward) return [isSplit ? "I" : "B", backward];
    if (full) return ["W", full];
    if (forward) return ["F", forward];
    return owed && ["W", owed];
  };
  const policy = {
    next(ready: readonly Action[]): Action | undefined {
      const [kind, one] = pick(ready) ?? [];
      if (kind === undefined || one === undefined) return undefined;
      const microBatch = kind === "B" ? one.I++ : one[kind as "F" | "I" | "W"]++;
      if (kind === "B") one.W++;
      if (kind !== "I") live += (kind === "F" ? 1 : -1) * sizeOf(microBatch);
      last = kind;
      policy.done = own.every(({ W }) => W === microBatches);
      return { kind, stage: one.stage, microBatch };
    },
    done: microBatches === 0,
    waitsFor: undefined,
  };
  return policy;
}
