/** A path through the actions of a schedule: how often each stage and edge is on it. */

import { type ActionList, KIND, KINDS } from "../actions/action_list.ts";
import type { AwaitedInput, Execution } from "../execution/execute.ts";
import type { ListedSchedule } from "../schedule.ts";

/**
 * A path of actions each of which waits for the one before, whatever they take: no step is shorter
 * than the sum of what is on it.
 */
export interface PathLoad {
  /** For each kind of action (F, B, I, W, R) and each stage, how many whole micro-batches. */
  readonly actions: readonly Float64Array[];
  /** For each stage, how many messages between it and the next one go from worker to worker. */
  readonly messages: Float64Array;
}

/** The actions of a schedule by what they compute. */
export type ActionIndex = ReadonlyMap<
  string,
  readonly (readonly [worker: number, index: number])[]
>;

const keyOf = (kind: string, stage: number, microBatch: number, slice: number) =>
  `${stage}${kind}${microBatch}s${slice}`;

/** Finds the actions of a schedule by what they compute. */
export function indexActions({ lists }: ListedSchedule): ActionIndex {
  const found = new Map<string, (readonly [number, number])[]>();
  for (const [worker, list] of lists.entries()) {
    for (let index = 0; index < list.length; index++) {
      for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
        const [kind, stage] = [KINDS[list.kindAt(part)]!, list.stageAt(part)];
        const key = keyOf(kind, stage, list.microBatchAt(part), list.sliceAt(part));
        found.set(key, [...found.get(key) ?? [], [worker, index]]);
      }
    }
  }
  return found;
}

/** The path that decided when the last action of an execution ended. */
export function criticalPath(
  schedule: ListedSchedule,
  { timeline: { starts, ends, makespan }, lastInput }: Execution,
  actions: ActionIndex,
): PathLoad {
  const { lists, stages, slices = 1 } = schedule;
  const load = KINDS.map(() => new Float64Array(stages)), messages = new Float64Array(stages);
  let worker = ends.findIndex((own) => own.at(-1) === makespan);
  let index = (lists[worker]?.length ?? 0) - 1;
  while (index >= 0) {
    addAction(load, lists[worker]!, index, slices);
    const start = starts[worker]![index]!;
    if (start === 0) break;
    if (index > 0 && ends[worker]![index - 1] === start) {
      index--;
      continue;
    }
    const { kind, stage, microBatch, slice = 0, time } = lastInput(worker, index)!;
    const from = actions.get(keyOf(kind, stage, microBatch, slice))!;
    // Of two halves the one that was there last.
    const [giver, given] = from.reduce((a, b) =>
      Math.abs(time - ends[b[0]]![b[1]]!) < Math.abs(time - ends[a[0]]![a[1]]!) ? b : a
    );
    // What a way over a skip edge takes is of this cut alone: of others the path has its actions.
    const isOfChain = waitsFor(lists[worker]!, index, { kind, stage, microBatch });
    if (giver !== worker && isOfChain) messages[kind === "F" ? stage : stage - 1]! += 1 / slices;
    [worker, index] = [giver, given];
  }
  return { actions: load, messages };
}

/** Whether an action waits for the neighbour that gives an input, by the chain. */
function waitsFor(
  list: ActionList,
  index: number,
  { kind, stage, microBatch }: Pick<AwaitedInput, "kind" | "stage" | "microBatch">,
): boolean {
  const isForward = kind === "F", next = isForward ? stage + 1 : stage - 1;
  for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
    const isNext = list.stageAt(part) === next && list.microBatchAt(part) === microBatch;
    if (isNext && (list.kindAt(part) === KIND.F) === isForward) return true;
  }
  return false;
}

function addAction(
  load: readonly Float64Array[],
  list: ActionList,
  index: number,
  slices: number,
): void {
  for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
    const share = list.halfAt(part) === 0 ? 1 / slices : 0.5;
    load[list.kindAt(part)]![list.stageAt(part)]! += share;
  }
}

/** Two paths are the same where they have the same on them. */
export const pathKey = ({ actions, messages }: PathLoad): string =>
  [...actions, messages].map((one) => one.join()).join(";");
