/**
 * AxoNN's Algorithm 2 as actors without numbers, in two granularities, to count its states.
 *
 * @module
 */

import type { ActorFactory, ActorRef, ActorSpec, Context } from "../../../actors/runtime/mod.ts";
import type { World } from "../../../actors/simulation/mod.ts";

/** Stages, micro-batches, and most of these under way. */
export interface Pipeline {
  readonly stages: number;
  readonly microBatches: number;
  readonly limit: number;
}

interface StageInit extends Pipeline {
  readonly stage: number;
}

export type StageMessage =
  | {
    readonly type: "Wire";
    readonly before: ActorRef<StageMessage> | undefined;
    readonly after: ActorRef<StageMessage> | undefined;
  }
  | { readonly type: "F" }
  | { readonly type: "B" }
  /** The next thing that the first stage does, before it takes another message. */
  | { readonly type: "Inject" }
  /** Model A: the next thing that a stage does. */
  | { readonly type: "Send"; readonly what: "F" | "B" };

type StageSpec = ActorSpec<StageInit, StageMessage>;

/** Model B: a message is handled to completion in one step. */
export const ATOMIC: StageSpec = { module: import.meta.url, export: "atomicStage" };

/** Model A: to take a message and to send its result are two steps. */
export const TWO_STEP: StageSpec = { module: import.meta.url, export: "twoStepStage" };

export const atomicStage: ActorFactory<StageInit, StageMessage> = (ctx, init) => {
  const neighbours = wires(ctx);
  let remaining = init.microBatches;
  const inject = () => {
    remaining--;
    neighbours.send("F");
  };
  ctx.expose(() => remaining);
  return {
    Wire: neighbours.set,
    Inject() {
      for (let n = 0; n < init.limit; n++) inject();
    },
    F: () => neighbours.send(init.stage === init.stages - 1 ? "B" : "F"),
    B() {
      if (init.stage > 0) neighbours.send("B");
      else if (remaining > 0) inject();
    },
    Send() {},
  };
};

export const twoStepStage: ActorFactory<StageInit, StageMessage> = (ctx, init) => {
  const neighbours = wires(ctx);
  let remaining = init.microBatches, underWay = 0;
  // The control lane goes first, so nothing comes between a message and its result.
  const next = (message: StageMessage) =>
    ctx.send(ctx.self as ActorRef<StageMessage>, message, { lane: "control" });
  const injectMore = () => {
    if (init.stage === 0 && remaining > 0 && underWay < init.limit) next({ type: "Inject" });
  };
  ctx.expose(() => [remaining, underWay]);
  return {
    Wire: neighbours.set,
    Inject() {
      remaining--;
      underWay++;
      next({ type: "Send", what: "F" });
    },
    Send({ what }) {
      neighbours.send(what);
      injectMore();
    },
    F: () => next({ type: "Send", what: init.stage === init.stages - 1 ? "B" : "F" }),
    B() {
      if (init.stage > 0) return next({ type: "Send", what: "B" });
      underWay--;
      injectMore();
    },
  };
};

/** The lines to the neighbours. */
function wires(ctx: Context<StageMessage>) {
  let before: ActorRef<StageMessage> | undefined, after: ActorRef<StageMessage> | undefined;
  return {
    set(message: Extract<StageMessage, { type: "Wire" }>) {
      ({ before, after } = message);
    },
    send: (what: "F" | "B") => ctx.send((what === "F" ? after : before)!, { type: what }),
  };
}

/** Sets up a pipeline of one of the models and starts it. */
export async function playPipeline(
  { system, settle, idle }: World<unknown>,
  spec: StageSpec,
  pipeline: Pipeline,
): Promise<void> {
  const stages = Array.from(
    { length: pipeline.stages },
    (_, stage) => system.spawn(spec, { ...pipeline, stage }, { id: `stage-${stage}` }),
  );
  for (const [stage, ref] of stages.entries()) {
    system.send(ref, { type: "Wire", before: stages[stage - 1], after: stages[stage + 1] });
  }
  await settle();
  system.send(stages[0]!, { type: "Inject" }, { lane: "control" });
  // The first state of model B has the first micro-batches under way.
  if (spec === ATOMIC) await settle(1);
  await idle();
}
