/**
 * Training under simulation: the real supervisor and workers, with stand-ins for the kernels.
 *
 * @module
 */

import type { Engine, EngineOptions } from "../run/engines/engine.ts";
import { openPipeline } from "../run/engines/pipeline.ts";
import { REFUSAL } from "../pipeline/message_guard.ts";
import type { StepOutcome, StepRequest } from "../pipeline/step.ts";
import { UPDATE_POLICIES } from "../pipeline/update_policy.ts";
import { WorkerLostError } from "../run/recovery/retries.ts";
import { openSerialOf } from "../run/engines/serial_of.ts";
import type { Scenario, World } from "../simulation/mod.ts";
import { hashWeights } from "../checkpoints/tensors/weights_hash.ts";
import { addInvariants } from "./invariants.ts";
import {
  assertSerial,
  type PreparedRehearsal,
  prepareRehearsal,
  type RehearsalPlan,
} from "./plan.ts";

/** How a rehearsal ended. */
export interface Rehearsed {
  /** Hash of all weights after the last step. */
  readonly weightsHash?: string;
  /** Why there are none: which worker was lost, at what. */
  readonly lost?: string;
}

/** Takes steps, and tells which changed weights: those that were committed, or without flushes all. */
async function perform(
  requests: readonly StepRequest[],
  engine: Engine,
  { schedule }: EngineOptions,
  pauseEvery = Infinity,
) {
  const { isFlushed } = UPDATE_POLICIES[schedule.updates];
  const begun: Promise<StepOutcome>[] = [], taken: StepRequest[] = [];
  for (const request of requests) {
    const ending = engine.step(request);
    // Where the engine runs ahead a step may end with those that follow: a failure is met at the end.
    ending.catch(() => {});
    begun.push(ending);
    if (engine.ahead === undefined) await ending;
    if (request.step % pauseEvery > 0) continue;
    await engine.drain?.();
    await engine.evaluate(request.microBatches.slice(0, 1));
  }
  await engine.drain?.();
  for (const [i, ending] of begun.entries()) {
    if ((await ending).isCommitted || !isFlushed) taken.push(requests[i]!);
  }
  const { weights } = await engine.save();
  return { taken, weightsHash: hashWeights(weights) };
}

/** What every order must come to: the hash of all weights after the serial loop. */
export async function rehearseSerially(plan: RehearsalPlan): Promise<string> {
  const { options, requests } = recall(plan), engine = await openSerialOf(options);
  return (await perform(requests, engine, options, plan.pauseEvery)).weightsHash;
}

/** A plan that is ready, and what the serial loop makes of the steps that were taken. */
interface Recalled extends PreparedRehearsal {
  readonly expected: Map<string, Promise<string>>;
}

/** Nearly every run is of the plan of the one before. */
const recalled = new WeakMap<RehearsalPlan, Recalled>();

const recall = (plan: RehearsalPlan): Recalled =>
  recalled.getOrInsertComputed(plan, () => ({ ...prepareRehearsal(plan), expected: new Map() }));

async function expectedHash(
  { options, expected }: Recalled,
  taken: readonly StepRequest[],
  pauseEvery: number | undefined,
): Promise<string> {
  const serial = async () => {
    const engine = await openSerialOf(options);
    return (await perform(taken, engine, options, pauseEvery)).weightsHash;
  };
  return await expected.getOrInsertComputed(taken.map(({ step }) => step).join(), serial);
}

/**
 * The scenario of a rehearsal, whose configuration is its plan: makes the workers in plain order,
 * then takes the steps, watched by {@linkcode addInvariants}. The weights must come out as those of
 * the serial loop, bit for bit.
 *
 * @throws {WorkerLostError} (and so fails the run) when a worker is lost, unless the plan allows it.
 *
 * @example Any order of messages gives the weights of the serial loop
 * ```ts
 * import assert from "node:assert/strict";
 * import { pos, simulate } from "@troupe/troupe/testing";
 * import { rehearsal, rehearseSerially } from "@troupe/troupe/actors";
 *
 * const plan = { schedule: "chimera", workers: 2, microBatches: 4 };
 * const { value } = await simulate({ seed: 1, strategy: pos(), configuration: plan }, rehearsal);
 * assert.equal(value?.weightsHash, await rehearseSerially(plan));
 * ```
 */
export const rehearsal: Scenario<Rehearsed, RehearsalPlan> = async (
  world: World<RehearsalPlan>,
): Promise<Rehearsed> => {
  const plan = world.configuration, prepared = recall(plan), { options, requests } = prepared;
  try {
    const opening = openPipeline({ ...options, system: world.system }, "local");
    // A failure is met when the engine is wanted.
    opening.catch(() => {});
    await world.settle();
    const engine = await opening;
    addInvariants(world, options);
    const { taken, weightsHash } = await perform(requests, engine, options, plan.pauseEvery);
    const expected = await expectedHash(prepared, taken, plan.pauseEvery);
    assertSerial(weightsHash, expected);
    return { weightsHash };
  } catch (error) {
    if (plan.mayLose && isLoss(error)) return { lost: error.message };
    throw error;
  }
};

/** Whether a worker is lost; one that refused a message has met a bug, whatever else was injected. */
function isLoss(error: unknown): error is WorkerLostError {
  return error instanceof WorkerLostError && !error.message.includes(REFUSAL);
}
