/**
 * The schedule: the stages of each worker, and the actions of each worker in one step. Of a schedule
 * from action lists, the lists determine the placement.
 */

import { ActionList, KIND, partsOf } from "./action_list.ts";
import { assertInput, refusal } from "./errors.ts";
import { listPolicies, type ListPolicy, type StepPolicy } from "./policies.ts";
import { checkEdges, type SkipEdge } from "./skip_edges.ts";
import type { Action } from "./action.ts";

/**
 * Converts skip edges between equal parts of a model to skip edges between the stages of a cut: a
 * value is made in the last stage of its part, and used in the first stages of the parts that use it.
 *
 * @param stages The stages of the cut, a multiple of the parts.
 * @throws {RangeError} if it is not a multiple, or an edge is not usable.
 *
 * @example Two stages for each part
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 *
 * const edges = edgesOfParts([{ from: 0, to: [2, 3] }], { parts: 4, stages: 8 });
 * deepStrictEqual(edges, [{ from: 1, to: [4, 6] }]);
 * ```
 */
export function edgesOfParts(
  edges: readonly SkipEdge[],
  { parts, stages }: { readonly parts: number; readonly stages: number },
): SkipEdge[] {
  checkEdges(edges, parts);
  const each = stages / parts;
  const cannot = `use skip edges between ${parts} parts of the model`;
  assertInput(Number.isInteger(each), cannot, "the stages must be a multiple of them", stages);
  return edges.map((edge) => ({
    ...edge,
    from: (edge.from + 1) * each - 1,
    to: edge.to.map((part) => part * each),
  }));
}

/** The schedule with the skip edges between P equal parts of the model, if there are any. */
export function withPartEdges(
  schedule: Schedule,
  { edges, workers }: {
    readonly edges?: readonly SkipEdge[] | undefined;
    readonly workers: number;
  },
): Schedule {
  if (edges === undefined) return schedule;
  return withEdges(schedule, edgesOfParts(edges, { parts: workers, stages: schedule.stages }));
}

/** One stage of one pipeline, as a worker holds it. */
export interface PlacedStage {
  /** The stage of the model, from 0. */
  readonly stage: number;
  /** The copy of the pipeline, from 0; Chimera's down pipes come before its up pipes. */
  readonly pipeline: number;
}

/**
 * The time at which weights change: after the step (`flush`), after every backward of a micro-batch
 * while older versions are kept (`every-backward`, PipeDream), or after the step while the previous
 * version is kept (`double-buffered`, PipeDream-2BW).
 */
export type WeightUpdates = "flush" | "every-backward" | "double-buffered";

/** Bounds of the peak number of micro-batches that a worker holds in each of its stages. */
export interface PeakBounds {
  /** The peak if messages are as late as possible. */
  readonly least: number;
  /** The peak if messages are as early as possible. */
  readonly most: number;
  /** The most in all its stages together. Default: the sum. */
  readonly together?: number;
}

/**
 * A schedule: plain data except for `policy`, and the same on every worker for the same name and
 * options.
 */
export interface Schedule {
  /** The name by which it was made. */
  readonly name: string;
  /** The number of workers, which all pipelines share. */
  readonly workers: number;
  /** The number of stages that one copy of the model is cut into. */
  readonly stages: number;
  /** The micro-batches of one optimizer step, all pipelines together. */
  readonly microBatches: number;
  /** The slices that each micro-batch's sequence is cut into. Default 1. */
  readonly slices?: number;
  /** Values that go beyond the next stage. Default: none. */
  readonly edges?: readonly SkipEdge[];
  /** For each worker, its stages by ascending pipeline and stage. */
  readonly placement: readonly (readonly PlacedStage[])[];
  /** For each micro-batch, the pipeline that computes it. */
  readonly pipelineOf: readonly number[];
  /** For each worker, its actions in order; absent if the order depends on messages. */
  readonly lists?: readonly ActionList[];
  /** The policy that follows the lists. Default: strictly in order. */
  readonly listPolicy?: ListPolicy;
  /** Limit of micro-batches in flight. */
  readonly injectionLimit: number;
  /** For each worker without a list, bounds of its peak. Default: up to `injectionLimit`. */
  readonly peaks?: readonly PeakBounds[];
  /**
   * Without lists: the most micro-batches of a stage whose I has run and whose W has not; absent if
   * backwards are whole.
   */
  readonly weightBacklog?: number;
  /** `bytes` if limits count the bytes of micro-batches, in those of the largest. */
  readonly limitBy?: "bytes";
  /** The time at which weights change. */
  readonly updates: WeightUpdates;
  /** For each worker, the versions of its weights that it keeps; 1 unless updates are early. */
  readonly weightVersions: readonly number[];
  /** Makes a policy for a worker and one optimizer step. */
  policy(worker: number): StepPolicy;
}

/** A schedule whose order is known: every list is there. */
export type ListedSchedule = Schedule & { readonly lists: readonly ActionList[] };

/**
 * The same schedule with skip edges: its forwards wait for the values that their stages use, its
 * backwards for the gradient from the next stage that uses a value. The order of the actions of each
 * worker does not change; waits, memory and messages increase.
 *
 * @param edges Skip edges between stages, in any order; without the edges of the chain.
 * @throws {RangeError} if a stage does not exist, or a value goes to an earlier stage: the text names
 * the circle of actions that would wait for each other.
 *
 * @example A value that two later stages use
 * ```ts
 * import { strictEqual, throws } from "node:assert/strict";
 * import { analyze, createSchedule } from "@troupe/troupe/schedules";
 *
 * const chain = createSchedule("1f1b", { workers: 4, microBatches: 8 });
 * const schedule = withEdges(chain, [{ from: 0, to: [2, 3] }]);
 * strictEqual(analyze(schedule).makespan, 33);
 * strictEqual(analyze(schedule, { skip: 5 }).makespan, 64);
 * throws(() => withEdges(chain, [{ from: 2, to: [1] }]), {
 *   message: "Cannot use the skip edge 2>1: its value must go to a later stage, received a " +
 *     "circle: 1F0 waits for 2F0, 2F0 waits for 1F0",
 * });
 * ```
 */
export function withEdges(schedule: ListedSchedule, edges: readonly SkipEdge[]): ListedSchedule;
/** The same for a schedule without lists. */
export function withEdges(schedule: Schedule, edges: readonly SkipEdge[]): Schedule;
export function withEdges(schedule: Schedule, edges: readonly SkipEdge[]): Schedule {
  checkEdges(edges, schedule.stages);
  const { edges: _, ...chain } = schedule;
  return Object.freeze({ ...chain, ...edges.length > 0 && { edges } });
}

/**
 * The number of workers of one pipeline: P in "1/P of the model".
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { createSchedule, pipelineWorkers } from "@troupe/troupe/schedules";
 *
 * strictEqual(pipelineWorkers(createSchedule("1f1b", { workers: 4, microBatches: 4 })), 4);
 * ```
 */
export function pipelineWorkers(schedule: Schedule): number {
  return schedule.placement.filter((held) => held.some(({ pipeline }) => pipeline === 0)).length;
}

/**
 * Converts a number of activations in micro-batches of 1/P of the model to whole activations of
 * (stage, micro-batch).
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { createSchedule } from "@troupe/troupe/schedules";
 *
 * const schedule = createSchedule("interleaved", { workers: 2, microBatches: 2, chunks: 2 });
 * strictEqual(activationParts(schedule, 1.5), 3);
 * ```
 */
export function activationParts(schedule: Schedule, activations: number): number {
  const share = pipelineWorkers(schedule) / schedule.stages;
  return Math.floor(activations / share + 1e-9); // shares such as 1/3 are not exact
}

/**
 * The worker of each stage of each pipeline, at index `pipeline * stages + stage`.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { createSchedule } from "@troupe/troupe/schedules";
 *
 * const schedule = createSchedule("1f1b", { workers: 3, microBatches: 4 });
 * deepStrictEqual([...hostTable(schedule)], [0, 1, 2]);
 * ```
 */
export function hostTable(schedule: Schedule): Int32Array {
  const hosts = new Int32Array(schedule.placement.reduce((sum, held) => sum + held.length, 0));
  schedule.placement.forEach((held, worker) => {
    for (const { stage, pipeline } of held) hosts[pipeline * schedule.stages + stage] = worker;
  });
  return hosts;
}

/**
 * The same schedule with another policy for its lists.
 *
 * @param activationLimit Elastic: the most activations of a worker, in micro-batches of 1/P of the
 * model as in {@linkcode Analysis.peakActivations}; at least, and unless given, the peak of its list.
 * @param weightBacklog Elastic: the most micro-batches of a stage whose I has run and whose W has not;
 * whole backwards of the list are then split. As the list says unless given.
 * @throws {RangeError} if the schedule has no lists, the limit is not a positive number, or the
 * backlog is not a whole number from 0.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { B, createSchedule, F, withPolicy } from "@troupe/troupe/schedules";
 *
 * const schedule = createSchedule("gpipe", { workers: 1, microBatches: 2 });
 * const policy = withPolicy(schedule, "elastic").policy(0);
 * policy.next([F(0, 0), F(0, 1)]);
 * deepStrictEqual(policy.next([B(0, 0)]), B(0, 0)); // F(0, 1) comes first, but is not here
 * ```
 */
export function withPolicy(
  schedule: Schedule,
  name: ListPolicy["name"],
  activationLimit?: number,
  weightBacklog?: number,
): Schedule {
  const { lists } = schedule, cannot = `use the policy ${name}`;
  if (!lists) throw refusal(cannot, "the schedule must have lists", schedule.name);
  const isCount = Number.isSafeInteger(weightBacklog) && weightBacklog! >= 0;
  const count = "weightBacklog must be a whole number from 0";
  assertInput(weightBacklog === undefined || isCount, cannot, count, weightBacklog);
  const must = "activationLimit must be a number above 0";
  assertInput(activationLimit === undefined || activationLimit > 0, cannot, must, activationLimit);
  return followedBy({ ...schedule, lists }, {
    name,
    ...weightBacklog !== undefined && { weightBacklog },
    ...activationLimit !== undefined &&
      { activationLimit: activationParts(schedule, activationLimit) },
  });
}

/** Returns true if workers run backwards for the input and for the weights as two actions. */
export function splitsBackward({ lists = [], listPolicy, weightBacklog }: Schedule): boolean {
  if ((listPolicy?.weightBacklog ?? weightBacklog ?? 0) > 0) return true;
  return lists.some((list) => !partsOf(list, KIND.W).next().done);
}

/** Returns the schedule with a policy for its lists. */
export function followedBy(schedule: ListedSchedule, listPolicy: ListPolicy): Schedule {
  const policy = listPolicies(schedule.lists, listPolicy);
  return Object.freeze({ ...schedule, listPolicy, policy });
}

/**
 * Makes a schedule from the lists of its workers, such as those of a CSV file. The placement is
 * that of the forwards: micro-batches that take the same path through the workers share a pipeline,
 * numbered by its first micro-batch. `validate` checks that it can run.
 *
 * @throws {RangeError} if a stage of a micro-batch has no forward, or more than one, so that its worker
 * is unknown.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { parseCsv, scheduleFromLists } from "@troupe/troupe/schedules";
 *
 * const schedule = scheduleFromLists("mine", parseCsv("0F0,1F1,1B1,0B0\n1F0,1B0,0F1,0B1\n"));
 * deepStrictEqual(schedule.pipelineOf, [0, 1]);
 * deepStrictEqual(schedule.placement[0], [{ stage: 0, pipeline: 0 }, { stage: 1, pipeline: 1 }]);
 * ```
 */
export function scheduleFromLists(name: string, lists: readonly ActionList[]): ListedSchedule {
  const size = sizeOf(lists), { stages, microBatches, slices } = size;
  const pipelines = new Map<string, number>();
  const placement: PlacedStage[][] = lists.map(() => []);
  const pipelineOf = forwardHosts(name, lists, size).map((path) => {
    const key = path.join(), known = pipelines.get(key), pipeline = known ?? pipelines.size;
    if (known !== undefined) return known;
    pipelines.set(key, pipeline);
    path.forEach((worker, stage) => placement[worker]?.push({ stage, pipeline }));
    return pipeline;
  });
  return Object.freeze({
    name,
    workers: lists.length,
    stages,
    microBatches,
    ...slices > 1 && { slices },
    placement,
    pipelineOf,
    lists,
    injectionLimit: microBatches,
    updates: "flush" as const,
    weightVersions: lists.map(() => 1),
    policy: listPolicies(lists),
  });
}

function sizeOf(lists: readonly ActionList[]) {
  let stages = 0, microBatches = 0, slices = 1;
  for (const list of lists) {
    slices = Math.max(slices, list.slices);
    for (let part = 0; part < list.partCount; part++) {
      stages = Math.max(stages, list.stageAt(part) + 1);
      microBatches = Math.max(microBatches, list.microBatchAt(part) + 1);
    }
  }
  return { stages, microBatches, slices };
}

/**
 * A schedule with the placement of another and its own orders.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { B, createSchedule, F, withOrders } from "@troupe/troupe/schedules";
 *
 * const base = createSchedule("gpipe", { workers: 1, microBatches: 2 });
 * const mine = withOrders(base, "mine", [[F(0, 0), B(0, 0), F(0, 1), B(0, 1)]]);
 * strictEqual(String(mine.lists[0]), "0F0,0B0,0F1,0B1");
 * ```
 */
export function withOrders(
  base: Schedule,
  name: string,
  orders: readonly Iterable<Action>[],
): ListedSchedule {
  const lists = Object.freeze(orders.map((order) => ActionList.from(order)));
  const policy = listPolicies(lists, base.listPolicy);
  return Object.freeze({ ...base, name, lists, injectionLimit: base.microBatches, policy });
}

/** For each micro-batch, the worker of each stage. */
function forwardHosts(
  name: string,
  lists: readonly ActionList[],
  { stages, microBatches, slices }: ReturnType<typeof sizeOf>,
): Int32Array[] {
  let forwards = 0;
  for (const list of lists) for (const _ of partsOf(list, KIND.F)) forwards++;
  const cannot = `place the schedule ${name}`, all = stages * microBatches * slices;
  const of = `each of ${stages} stages${slices > 1 ? ` and ${slices} slices` : ""}`;
  const must = `each of ${microBatches} micro-batches must have a forward of ${of}, ${all} in all`;
  assertInput(forwards >= all, cannot, must, forwards);
  const hosts = Array.from({ length: microBatches }, () => new Int32Array(stages).fill(-1));
  const refuse = (stage: number, microBatch: number, received: string): never => {
    throw refusal(cannot, `${stage}F${microBatch} must be on exactly one list`, received);
  };
  lists.forEach((list, worker) => {
    for (const { stage, microBatch } of partsOf(list, KIND.F)) {
      const path = hosts[microBatch]!, known = path[stage]!;
      if (known >= 0 && (known !== worker || slices === 1)) {
        const twice = `it twice on the list of worker ${worker}`;
        const both = `it on the lists of workers ${known} and ${worker}`;
        refuse(stage, microBatch, known === worker ? twice : both);
      }
      path[stage] = worker;
    }
  });
  hosts.forEach((path, microBatch) => {
    const stage = path.indexOf(-1);
    if (stage >= 0) refuse(stage, microBatch, "none that has it");
  });
  return hosts;
}
