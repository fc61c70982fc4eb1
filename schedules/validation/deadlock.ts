/** Finds the circle of workers that wait for each other. */

import { type Action, type ActionKind, formatAction, parts } from "../actions/action.ts";
import type { ActionList } from "../actions/action_list.ts";
import { type AwaitedInput, execute, type Execution } from "../execution/execute.ts";
import type { ListedSchedule } from "../schedule.ts";
import { hostTable } from "../stages.ts";
import type { Violation } from "./violation.ts";

/** A worker that cannot go on. */
interface Wait {
  readonly worker: number;
  /** What it would do next. */
  readonly head: Action;
  /** What its head waits for. */
  readonly awaited: AwaitedInput;
  /** The worker on whose list that is. */
  readonly from: number;
}

/**
 * Runs a schedule on paper; where it stops before its end, reports the circle of actions that wait
 * for each other, worker by worker. The schedule must be complete: an action that no list has is
 * not a deadlock.
 *
 * @example Two workers, each of which waits for what the other does later
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { B, defineSchedule, F, findDeadlock, withLists } from "@troupe/troupe/schedules";
 *
 * const wrong = defineSchedule({
 *   name: "wrong",
 *   summary: "worker 0 wants a gradient before it sends the activation that leads to another",
 *   place: () => ({ stages: 2, workerOf: (stage) => stage }),
 *   order: (worker) =>
 *     worker === 0 ? [F(0, 0), B(0, 0), F(0, 1), B(0, 1)] : [F(1, 0), F(1, 1), B(1, 0), B(1, 1)],
 * });
 * const [violation] = findDeadlock(withLists(wrong.create({ workers: 2, microBatches: 2 })));
 * strictEqual(
 *   violation?.message,
 *   "worker 0 waits at 0B0 for 1B0, which worker 1 runs after 1F1; " +
 *     "worker 1 waits at 1F1 for 0F1, which worker 0 runs after 0B0",
 * );
 * ```
 */
export function findDeadlock(schedule: ListedSchedule): Violation[] {
  const execution = execute(schedule);
  const stuck = schedule.lists.findIndex((list, w) => (execution.ran[w] as number) < list.length);
  if (stuck < 0) return [];
  const circle = findCircle(schedule, execution, stuck);
  const message = circle.map((wait, i) => {
    const next = circle[(i + 1) % circle.length] as Wait;
    return `worker ${wait.worker} waits at ${formatAction(wait.head)} for ${
      reachOf(schedule, wait, next)
    }`;
  }).join("; ");
  return [{ reason: "deadlock", worker: circle[0]?.worker ?? stuck, message }];
}

function findCircle(schedule: ListedSchedule, execution: Execution, stuck: number): Wait[] {
  const hosts = hostTable(schedule);
  const chain: Wait[] = [];
  const seen = new Map<number, number>();
  let worker = stuck;
  while (!seen.has(worker)) {
    seen.set(worker, chain.length);
    const index = execution.ran[worker] as number;
    const head = schedule.lists[worker]?.at(index) as Action;
    const awaited = execution.lastInput(worker, index) as AwaitedInput;
    const replica = schedule.replicaOf[awaited.microBatch] as number;
    const from = hosts[replica * schedule.stages + awaited.stage] as number;
    chain.push({ worker, head, awaited, from });
    worker = from;
  }
  return chain.slice(seen.get(worker));
}

/** What a worker waits for, and what keeps the other worker from it. */
function reachOf(schedule: ListedSchedule, wait: Wait, next: Wait): string {
  const part = partFor(schedule.lists[wait.from] as ActionList, wait.awaited);
  const over = isOfChain(wait) ? "" : " over a skip edge";
  const isNext = parts(next.head).some((one) => formatAction(one) === part);
  if (!isNext) {
    return `${part}${over}, which worker ${wait.from} runs after ${formatAction(next.head)}`;
  }
  return wait.from === wait.worker
    ? `${part}, which is a part of it`
    : `${part} of worker ${wait.from}${over}`;
}

/** Whether an action waits for its own stage, or for the one before it on its way. */
function isOfChain({ head, awaited }: Wait): boolean {
  const by = awaited.kind === "F" ? 1 : -1;
  return parts(head).some(({ stage }) => stage === awaited.stage || stage === awaited.stage + by);
}

/** The name of what gives an input; a backward may be split or halved there. */
function partFor(list: ActionList, input: AwaitedInput): string {
  for (const action of list) {
    const found = parts(action).find((part) =>
      part.stage === input.stage && part.microBatch === input.microBatch &&
      part.slice === input.slice && gives(part.kind) === gives(input.kind)
    );
    if (found !== undefined) return formatAction(found);
  }
  return formatAction(input);
}

/** What an action gives to others; W nothing. */
const gives = (kind: ActionKind) =>
  ({ F: "output", R: "recomputed", I: "gradient", B: "gradient", W: undefined })[kind];
