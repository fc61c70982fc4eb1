/**
 * The states of AxoNN's Algorithm 2, by exhaustive search.
 *
 * @module
 */

import assert from "node:assert/strict";
import { dfs, explore } from "../../../actors/simulation/mod.ts";
import { ATOMIC, type Pipeline, playPipeline, TWO_STEP } from "./axonn_models.ts";

/** A model, and what may be handled next in it. */
export interface Counted {
  readonly name: string;
  readonly model: Parameters<typeof playPipeline>[1];
  readonly offers: "by-sender" | "by-arrival";
}

/** The models whose numbers of states are known. */
export const MODELS = {
  twoStepByArrival: {
    name: "A, one mailbox in order of arrival",
    model: TWO_STEP,
    offers: "by-arrival",
  },
  atomicByArrival: {
    name: "B, one mailbox in order of arrival",
    model: ATOMIC,
    offers: "by-arrival",
  },
  atomicBySender: { name: "B, one queue for each edge", model: ATOMIC, offers: "by-sender" },
} as const satisfies Readonly<Record<string, Counted>>;

/** So many stages, twice as many micro-batches, and as many of these under way as stages. */
export const pipelineOf = (stages: number): Pipeline => ({
  stages,
  microBatches: 2 * stages,
  limit: stages,
});

/** Distinct states of a model, and the runs in which they were found. */
export async function countStates(
  { model, offers }: Counted,
  pipeline: Pipeline,
): Promise<{ readonly states: number; readonly runs: number }> {
  const strategy = dfs();
  const { failed, runs } = await explore(
    { strategy, offers, runs: Infinity, isRepeated: false, digests: false },
    (world) => playPipeline(world, model, pipeline),
  );
  assert.equal(failed, undefined);
  return { states: strategy.states, runs };
}
