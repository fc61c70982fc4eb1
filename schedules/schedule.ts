/** The schedule: which worker holds which stages, and what each of them does in one step. */

import type { ActionList } from "./action_list.ts";
import { listPolicies, type ListPolicy, type StepPolicy } from "./policies.ts";
import { checkEdges, type SkipEdge } from "./skip_edges.ts";

/**
 * Skip edges between equal parts of a model as those between the stages of a cut of it: a value is
 * made in the last stage of its part, and used in the first stages of theirs.
 *
 * @param stages of the cut, a multiple of the parts.
 * @throws {RangeError} if they are not, or an edge is not usable.
 *
 * @example Two stages for each part
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { edgesOfParts } from "@troupe/troupe/schedules";
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
  if (!Number.isInteger(each)) {
    throw new RangeError(
      `Cannot use skip edges between ${parts} parts of the model: the stages must be a multiple of ` +
        `them, received ${stages}`,
    );
  }
  return edges.map((edge) => ({
    ...edge,
    from: (edge.from + 1) * each - 1,
    to: edge.to.map((part) => part * each),
  }));
}

/** One stage of one replica of the pipeline, as a worker holds it. */
export interface PlacedStage {
  /** The stage of the model, from 0. */
  readonly stage: number;
  /** The replica of the pipeline, from 0; Chimera's down pipes come before its up pipes. */
  readonly replica: number;
}

/**
 * When the weights change: after the step (`flush`), after every backward of a micro-batch while
 * older versions are kept (`every-backward`, PipeDream), or after the step while the version
 * before is kept (`double-buffered`, PipeDream-2BW).
 */
export type WeightUpdates = "flush" | "every-backward" | "double-buffered";

/** Micro-batches that a worker holds in each of its stages when it holds most. */
export interface PeakBounds {
  /** However late messages come, so many. */
  readonly least: number;
  /** However early they come, no more. */
  readonly most: number;
}

/**
 * A schedule: plain data but for `policy`, the same on every worker that asks for it with the same
 * name and options.
 */
export interface Schedule {
  /** The name it was asked for by. */
  readonly name: string;
  /** The number of workers, over which all replicas of the pipeline are laid. */
  readonly workers: number;
  /** The number of stages that one copy of the model is cut into. */
  readonly stages: number;
  /** The micro-batches of one optimizer step, all replicas of the pipeline together. */
  readonly microBatches: number;
  /** The slices that each micro-batch's sequence is cut into; 1 unless given. */
  readonly slices?: number;
  /** The values that stages use beyond what the stage before hands them; none unless given. */
  readonly edges?: readonly SkipEdge[];
  /** For each worker, the stages that it holds, by ascending replica and stage. */
  readonly placement: readonly (readonly PlacedStage[])[];
  /** For each micro-batch, the replica of the pipeline that computes it. */
  readonly replicaOf: readonly number[];
  /** For each worker, what it does in order; absent where messages decide. */
  readonly lists?: readonly ActionList[];
  /** How the lists are followed: to the letter unless given. */
  readonly listPolicy?: ListPolicy;
  /** The micro-batches that the supervisor may have in flight at a time. */
  readonly injectionLimit: number;
  /** For each worker what it holds where messages decide; up to `injectionLimit` where not given. */
  readonly peaks?: readonly PeakBounds[];
  /** When the weights change. */
  readonly updates: WeightUpdates;
  /** For each worker, the versions of its weights that it keeps; 1 unless updates are early. */
  readonly weightVersions: readonly number[];
  /** A new policy for a worker, good for one optimizer step. */
  policy(worker: number): StepPolicy;
}

/** A schedule whose order is known: every list is there. */
export type ListedSchedule = Schedule & { readonly lists: readonly ActionList[] };

/**
 * The same schedule with skip edges: its forwards wait for the values that their stages use, its
 * backwards for the gradient from the next stage that uses a value. What each worker does in which
 * order stays as it is; what it waits for, holds and sends is more.
 *
 * @param edges between stages, in any order; those of the chain are not among them.
 * @throws {RangeError} if the schedule has no such stages, or a value goes to an earlier one: the text
 * names the circle of actions that would wait for each other.
 *
 * @example A value that two later stages use
 * ```ts
 * import { strictEqual, throws } from "node:assert/strict";
 * import { analyze, createSchedule, withEdges } from "@troupe/troupe/schedules";
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
/** The same of a schedule whose order may be left to messages. */
export function withEdges(schedule: Schedule, edges: readonly SkipEdge[]): Schedule;
export function withEdges(schedule: Schedule, edges: readonly SkipEdge[]): Schedule {
  checkEdges(edges, schedule.stages);
  const { edges: _, ...chain } = schedule;
  return Object.freeze({ ...chain, ...edges.length > 0 && { edges } });
}

/**
 * The number of workers that one pipeline is laid over: P in "1/P of the model".
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
  return schedule.placement.filter((held) => held.some(({ replica }) => replica === 0)).length;
}

/**
 * A number of activations in micro-batches of 1/P of the model as whole ones of (stage,
 * micro-batch).
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { activationParts, createSchedule } from "@troupe/troupe/schedules";
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
 * The worker of each stage of each replica, at index `replica * stages + stage`.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { createSchedule, hostTable } from "@troupe/troupe/schedules";
 *
 * const schedule = createSchedule("1f1b", { workers: 3, microBatches: 4 });
 * deepStrictEqual([...hostTable(schedule)], [0, 1, 2]);
 * ```
 */
export function hostTable(schedule: Schedule): Int32Array {
  const copies = schedule.placement.reduce((sum, held) => sum + held.length, 0);
  const hosts = new Int32Array(copies);
  schedule.placement.forEach((held, worker) => {
    for (const { stage, replica } of held) hosts[replica * schedule.stages + stage] = worker;
  });
  return hosts;
}

/**
 * The same schedule with its lists followed in another way.
 *
 * @param activationLimit Elastic: the most activations of a worker, in micro-batches of 1/P of the
 * model as in {@linkcode Analysis.peakActivations}; for each worker what its list needs unless
 * given, and never less than that.
 * @throws {RangeError} if the schedule has no lists, or if the limit is no positive number.
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
): Schedule {
  const { lists } = schedule;
  if (lists === undefined) {
    throw new RangeError(
      `Cannot use the policy ${name}: the schedule must have lists, received ${schedule.name}`,
    );
  }
  if (activationLimit === undefined) return followedBy({ ...schedule, lists }, { name });
  if (!(activationLimit > 0)) {
    throw new RangeError(
      `Cannot use the policy ${name}: activationLimit must be a number above 0, ` +
        `received ${activationLimit}`,
    );
  }
  const limit = activationParts(schedule, activationLimit);
  return followedBy({ ...schedule, lists }, { name, activationLimit: limit });
}

/** The schedule with its lists followed by a policy. */
export function followedBy(
  schedule: ListedSchedule,
  listPolicy: ListPolicy,
): Schedule {
  return Object.freeze({
    ...schedule,
    listPolicy,
    policy: listPolicies(schedule.lists, listPolicy),
  });
}
