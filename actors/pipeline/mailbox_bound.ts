/**
 * How many messages can wait for a worker: its mailbox holds so many, and one more is a broken
 * invariant that ends the run.
 *
 * @module
 */

import { CHUNKS_UNDER_WAY } from "../commit/gradient_sync.ts";
import type { Slicing, StageProgram } from "../../kernels/mod.ts";
import { UPDATE_POLICIES } from "./update_policy.ts";
import type { WorkerInit } from "./worker/worker_init.ts";

/** What a bound follows from, beside the worker itself. */
export interface InFlightOptions {
  /** Micro-batches that may be in flight in each data-parallel replica. */
  readonly injectionLimit: number;
  /** Stages whose all-reduce starts while other stages still run backward. */
  readonly eagerStages: readonly number[];
}

/**
 * The most messages that can wait for a worker, in both lanes.
 *
 * - A micro-batch in flight is one message somewhere: an Inject or Activation on its way forward, a
 *   Gradient on its way back, or the two halves of one, or one for each slice of its sequences. In an
 *   evaluation it is one, too. Beside it may wait what other stages send by name to those held here.
 * - For each stage copy held here, parts of all-reduces. In any algorithm a rank gets at most one
 *   part of each phase from each other rank, or as many from its neighbour, for each chunk:
 *   2(p − 1). No rank starts a chunk before that which lies {@linkcode CHUNKS_UNDER_WAY} behind it is
 *   complete there, for which this copy must have taken as many parts as may then come of the new
 *   one. Beside them, the gradients of what is tied to its parameters. Of a step that was aborted while
 *   stages reduced early, as many may still wait.
 * - Orders of the supervisor: with a flush the Begin of a step, its Reduce for each early stage and
 *   for the rest, and its Commit or Abort; without, a Begin for each micro-batch in flight, as a
 *   step begins with its first, and a Drain. Connect and Save come while nothing else is asked.
 * - A Dispatch or StepBucket to itself, a LinkDue, a Report.
 *
 * Where no stage reduces early, no part comes before the last backward of all workers.
 *
 * @example A worker of 1F1B holds at most what is in flight, and a few messages more
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const copies = [[{ stage: 0, rank: 0, replica: 0, pipe: 0, worker: 0 }]];
 * const worker = { held: [{ copy: copies[0]![0]! }], copies, ties: [[]], halves: 1 } as const;
 * const options = { injectionLimit: 4, eagerStages: [] };
 * assert.equal(mailboxBound({ ...worker, updates: "flush" }, options), 4 + 1 + 2);
 * assert.equal(mailboxBound({ ...worker, updates: "every-backward" }, options), 4 + 5 + 2);
 * ```
 */
export function mailboxBound(
  { held, copies, ties, halves, slicing, updates, link }: BoundedWorker,
  { injectionLimit, eagerStages }: InFlightOptions,
): number {
  const { isFlushed } = UPDATE_POLICIES[updates], early = eagerStages.length;
  const begins = isFlushed ? 1 : injectionLimit;
  const more = held.reduce((sum, { program: { skips = [] } = {} }) => sum + 2 * skips.length, 0);
  const runs = slicing?.slices ?? halves, computing = runs * injectionLimit * (1 + more) + begins;
  const parts = held.reduce((sum, { copy: { stage } }) => {
    const chunkParts = 2 * (copies[stage]!.length - 1);
    const others = ties[stage]!.reduce((count, { members }) => count + members.length - 1, 0);
    return sum + CHUNKS_UNDER_WAY * chunkParts + others;
  }, 0);
  const ending = isFlushed ? (early > 0 ? 2 : 1) * parts + early + 2 : 1;
  const own = 2 + (link ? 1 : 0);
  return own + (isFlushed && early === 0 ? Math.max(computing, ending) : computing + ending);
}

/** What of a worker its bound follows from. */
export type BoundedWorker =
  & Pick<WorkerInit, "copies" | "ties" | "halves" | "updates" | "link">
  & {
    readonly held: readonly (
      & Pick<WorkerInit["held"][number], "copy">
      & { readonly program?: Pick<StageProgram, "skips"> }
    )[];
    /** How sequences are cut, where they are. */
    readonly slicing?: Slicing | undefined;
  };
