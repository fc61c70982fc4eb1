/**
 * Counts the states of AxoNN's Algorithm 2, as actors without numbers, by exhaustive search.
 *
 * @module
 */

import assert from "node:assert/strict";
import { dfs } from "../../../actors/simulation/strategies.ts";
import { explore } from "../../../actors/simulation/explore.ts";
import type { World } from "../../../actors/simulation/run.ts";
import { type Any, type AnyActor, type AnyRef, specOf } from "./players.ts";

/** Stages, micro-batches, and the most micro-batches in flight. */
export type Pipeline = Readonly<Record<"stages" | "microBatches" | "limit", number>>;

/** The neighbour that a result goes to. */
function wires(ctx: Parameters<AnyActor>[0]) {
  let before: AnyRef, after: AnyRef;
  return {
    Wire: (message: { before: AnyRef; after: AnyRef }) => void ({ before, after } = message),
    send: (what: "F" | "B") => ctx.send(what === "F" ? after : before, { type: what }),
  };
}

/** Model B: a message is handled to completion in one step. */
const ATOMIC = specOf(import.meta.url, "atomicStage");

export const atomicStage: AnyActor = (ctx, { stage, stages, microBatches, limit }) => {
  const { Wire, send } = wires(ctx);
  let remaining = microBatches;
  const inject = () => {
    remaining--;
    send("F");
  };
  ctx.expose(() => remaining);
  return {
    Wire,
    Inject() {
      for (let n = 0; n < limit; n++) inject();
    },
    F: () => send(stage === stages - 1 ? "B" : "F"),
    B() {
      if (stage > 0) send("B");
      else if (remaining > 0) inject();
    },
  };
};

/** Model A: to take a message and to send its result are two steps. */
const TWO_STEP = specOf(import.meta.url, "twoStepStage");

export const twoStepStage: AnyActor = (ctx, { stage, stages, microBatches, limit }) => {
  const { Wire, send } = wires(ctx);
  let remaining = microBatches, underWay = 0;
  // The control lane goes first, so nothing comes between a message and its result.
  const next = (message: Any) => ctx.send(ctx.self, message, { lane: "control" });
  const injectMore = () => {
    if (stage === 0 && remaining > 0 && underWay < limit) next({ type: "Inject" });
  };
  ctx.expose(() => [remaining, underWay]);
  return {
    Wire,
    Inject() {
      remaining--;
      underWay++;
      next({ type: "Send", what: "F" });
    },
    Send({ what }) {
      send(what);
      injectMore();
    },
    F: () => next({ type: "Send", what: stage === stages - 1 ? "B" : "F" }),
    B() {
      if (stage > 0) return next({ type: "Send", what: "B" });
      underWay--;
      injectMore();
    },
  };
};

const BY_ARRIVAL = "one mailbox in order of arrival";

/** The models whose numbers of states are known. */
export const MODELS = {
  twoStepByArrival: { name: `A, ${BY_ARRIVAL}`, model: TWO_STEP, isBySender: false },
  atomicByArrival: { name: `B, ${BY_ARRIVAL}`, model: ATOMIC, isBySender: false },
  atomicBySender: { name: "B, one queue for each edge", model: ATOMIC, isBySender: true },
} as const;

type Counted = typeof MODELS[keyof typeof MODELS];

/** One micro-batch in flight per stage, and two per stage in all. */
export const pipelineOf = (n: number): Pipeline => ({ stages: n, microBatches: 2 * n, limit: n });

/** Sets up a pipeline of one of the models and starts it. */
async function playPipeline({ system, settle, idle }: World<unknown>, model: Any, init: Pipeline) {
  const stages = [...Array(init.stages).keys()].map((stage) =>
    system.spawn<Any, Any>(model, { ...init, stage }, { id: `stage-${stage}` })
  );
  for (const [stage, ref] of stages.entries()) {
    system.send(ref, { type: "Wire", before: stages[stage - 1], after: stages[stage + 1] });
  }
  await settle();
  system.send(stages[0]!, { type: "Inject" }, { lane: "control" });
  // The first state of model B has the first micro-batches under way.
  if (model === ATOMIC) await settle(1);
  await idle();
}

/** Distinct states of a model, and the runs in which they were found. */
export async function countStates({ model, isBySender }: Counted, pipeline: Pipeline) {
  const strategy = dfs(), offers = isBySender ? "by-sender" : "by-arrival";
  const options = { strategy, offers, runs: Infinity, isRepeated: false, digests: false } as const;
  const { failed, runs } = await explore(options, (world) => playPipeline(world, model, pipeline));
  assert.equal(failed, undefined);
  return { states: strategy.states, runs };
}
