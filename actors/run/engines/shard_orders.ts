/**
 * Who writes which part of a checkpoint.
 *
 * @module
 */

import { cutIntoStages } from "../../../kernels/mod.ts";
import type { ShardOrder, WrittenShard } from "../../checkpoints/shards.ts";
import { NonFiniteError } from "../../commit/non_finite.ts";
import { copiesOf } from "../../pipeline/layout.ts";
import type { WriteOutcome } from "../../pipeline/protocol.ts";
import type { EngineOptions } from "./engine.ts";
import { parameterNames } from "./stage_parameters.ts";

/** What each worker writes that holds the first copy of a stage: the other copies are equal. */
export function shardOrders(
  { model, schedule, replicas }: Pick<EngineOptions, "model" | "schedule" | "replicas">,
  folder: string,
): { readonly worker: number; readonly order: ShardOrder }[] {
  const owners = copiesOf(schedule, replicas).map(([first]) => first!.worker);
  // Aliases of ties are no parameters of the model: checkpoints hold them under one name.
  const shapes = new Map(model.parameters.map(({ name, shape }) => [name, shape]));
  const held = new Map<number, string[]>();
  for (const [stage, program] of cutIntoStages(model, schedule.stages).entries()) {
    const worker = owners[stage]!,
      names = parameterNames(program).filter((name) => shapes.has(name));
    held.set(worker, [...held.get(worker) ?? [], ...names]);
  }
  return Array.from(held, ([worker, names], i) => {
    const own = new Map(names.map((name) => [name, shapes.get(name)!]));
    return { worker, order: { folder, nth: i + 1, count: held.size, shapes: own } };
  });
}

/**
 * The shards, if all were written.
 *
 * @throws {NonFiniteError} when a worker has numbers that no checkpoint may keep.
 * @throws {Error} saying which file a worker could not write, and why.
 */
export function writtenShards(outcomes: readonly WriteOutcome[]): WrittenShard[] {
  return outcomes.map((outcome) => {
    if ("shard" in outcome) return outcome.shard;
    throw outcome.isNonFinite ? new NonFiniteError(outcome.problem) : new Error(outcome.problem);
  });
}
