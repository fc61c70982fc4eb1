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
import { stateShapes } from "./held_by_stages.ts";
import { parameterNames } from "./stage_parameters.ts";

/** What each worker writes that holds the first copy of a stage: the other copies are equal. */
export function shardOrders(
  options: Pick<EngineOptions, "model" | "schedule" | "replicas" | "stage" | "isRehearsed">,
  folder: string,
): { readonly worker: number; readonly order: ShardOrder }[] {
  const { model, schedule, replicas } = options;
  const owners = copiesOf(schedule, replicas).map(([first]) => first!.worker);
  // Aliases of ties are no parameters of the model: checkpoints hold them under one name.
  const known = new Map(model.parameters.map((parameter) => [parameter.name, parameter]));
  const held = new Map<number, Map<string, number>>();
  for (const [stage, program] of cutIntoStages(model, schedule.stages).entries()) {
    const worker = owners[stage]!, stages = held.get(worker) ?? new Map<string, number>();
    for (const name of parameterNames(program)) if (known.has(name)) stages.set(name, stage);
    held.set(worker, stages);
  }
  return Array.from(held, ([worker, stages], i) => {
    const shapes = stateShapes([...stages.keys()].map((name) => known.get(name)!), options);
    return { worker, order: { folder, nth: i + 1, count: held.size, shapes, stages } };
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
