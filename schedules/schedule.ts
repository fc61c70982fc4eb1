/** The schedule: which worker holds which stages, and what each of them does in one step. */

import type { ActionList } from "./actions/action_list.ts";
import type { Costs } from "./execution/costs.ts";
import type { ListPolicy } from "./policies/list_policies.ts";
import type { MailboxOrder, StepPolicy } from "./policies/policy.ts";

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
  /** When the weights change. */
  readonly updates: WeightUpdates;
  /** For each worker, the versions of its weights that it keeps; 1 unless updates are early. */
  readonly weightVersions: readonly number[];
  /** A new policy for a worker, good for one optimizer step. */
  policy(worker: number): StepPolicy;
}

/** How a Chimera pipeline serves more micro-batches than workers (section 3.5). */
export type ChimeraScale = "direct" | "doubling" | "halving";

/** What a schedule is asked for; each schedule reads those that it knows. */
export interface ScheduleOptions {
  /** Workers of one pipeline. */
  readonly workers: number;
  /** Micro-batches of one optimizer step. */
  readonly microBatches: number;
  /** Message-driven: micro-batches in flight at a time; the number of workers unless given. */
  readonly pipelineLimit?: number | undefined;
  /** Message-driven: which message goes first; `fifo` unless given. */
  readonly order?: MailboxOrder | undefined;
  /** Interleaved and looped: stages on each worker; 2 unless given. */
  readonly chunks?: number | undefined;
  /** Hanayo: waves; 1 unless given. */
  readonly waves?: number | undefined;
  /** Chimera: the number of down pipes, which is also that of the up pipes; 1 unless given. */
  readonly pipelines?: number | undefined;
  /** Chimera: the way to serve more micro-batches than workers; `direct` unless given. */
  readonly scale?: ChimeraScale | undefined;
  /** Search: what to plan for; tF = tI = tW = 1 and no time for messages unless given. */
  readonly costs?: Costs | undefined;
  /**
   * The most activations of a worker, in 1/P of a micro-batch's. Search: P unless given. The elastic
   * policy: what the list itself needs unless given.
   */
  readonly activationLimit?: number | undefined;
  /** Search: the most weights of a worker, in 1/P of the model; 1 unless given. */
  readonly weightLimit?: number | undefined;
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
