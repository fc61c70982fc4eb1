/**
 * The real training actors, each with a bug that was planted in it.
 *
 * @module
 */

import { pipelineSupervisor, SUPERVISOR } from "../../../actors/pipeline/supervisor/supervisor.ts";
import type { SupervisorInit } from "../../../actors/pipeline/supervisor/supervisor_init.ts";
import { pipelineWorker, type WorkerView } from "../../../actors/pipeline/worker/worker.ts";
import type { WorkerInit } from "../../../actors/pipeline/worker/worker_init.ts";
import type { SupervisorMessage, WorkerMessage } from "../../../actors/pipeline/protocol.ts";
import { StandIn } from "../../../actors/pipeline/stand_in.ts";
import type { ActorFactory, Context, Message, System } from "../../../actors/runtime/mod.ts";

type Worker = ActorFactory<WorkerInit, WorkerMessage>;
type Supervisor = ActorFactory<SupervisorInit, SupervisorMessage>;

/** What can be planted. */
export type Bug =
  | "arrivalOrder"
  | "earlyStep"
  | "doubleStep"
  | "doubleCredit"
  | "driftingCopy"
  | "newestWeights";

/** Adds the parts of a chunk in the order in which they arrive: the k-th to come stands k-th. */
export const arrivalOrder: Worker = async (ctx, init) => {
  const handlers = await pipelineWorker(ctx, init), come = new Map<string, number>();
  const { ReducePart } = handlers;
  return {
    ...handlers,
    ReducePart(message) {
      const { round, stage, rank, part } = message, size = init.copies[stage]!.length;
      if (part.phase !== "scatter") return ReducePart(message);
      const key = [round, stage, rank, part.chunk].join(), nth = come.get(key) ?? 0;
      come.set(key, nth + 1);
      const others = Array.from({ length: size }, (_, other) => other).filter((o) => o !== rank);
      return ReducePart({ ...message, part: { ...part, from: others[nth]! } });
    },
  };
};

/** Steps as soon as it has sums, without waiting for the votes of the other stages. */
export const earlyStep: Worker = async (ctx, init) => {
  const handlers = await pipelineWorker(ctx, init);
  let hasBegun = false;
  return {
    ...handlers,
    Begin(message) {
      hasBegun = false;
      return handlers.Begin(message);
    },
    async Reduce(message) {
      await handlers.Reduce(message);
      if (hasBegun) return;
      hasBegun = true;
      await handlers.Commit({ type: "Commit", update: 1, learningRate: 1, gradientScale: 1 });
    },
    Commit() {},
  };
};

/** A worker whose messages go through `send`. */
function sending(
  change: (message: Message) => readonly Message[],
): Worker {
  return (ctx, init) => {
    const send: Context<WorkerMessage>["send"] = (to, message, options) => {
      for (const one of change(message)) ctx.send(to, one as typeof message, options);
    };
    return pipelineWorker({ ...ctx, send }, init);
  };
}

/** Asks twice for each bucket to be stepped. */
export const doubleStep: Worker = sending((message) =>
  message.type === "StepBucket" ? [message, message] : [message]
);

/** Gives each credit twice. */
export const doubleCredit: Worker = sending((message) =>
  message.type === "Credit" ? [message, message] : [message]
);

/** Takes its steps, but the weights of all copies of a stage but the first drift away. */
export const driftingCopy: Worker = async (ctx, init) => {
  let view: () => WorkerView;
  const expose = (read: () => unknown) => {
    view = read as typeof view;
    ctx.expose(read);
  };
  const handlers = await pipelineWorker({ ...ctx, expose }, init);
  return {
    ...handlers,
    async StepBucket(message) {
      await handlers.StepBucket(message);
      for (const { rank, kernels } of view().copies) {
        if (rank > 0 && kernels instanceof StandIn) (kernels.weights as Float32Array)[0]! += 1;
      }
    },
  };
};

/** Computes with the newest weights where those before them are asked for. */
export const newestWeights: Worker = async (ctx, init) => {
  const handlers = await pipelineWorker(ctx, init);
  return {
    ...handlers,
    Begin: (message) =>
      handlers.Begin({ ...message, updates: { ...message.updates!, version: undefined } }),
  };
};

/** Makes the supervisor, and workers with a bug. */
function supervising(bug: Bug): Supervisor {
  return (ctx, init) => {
    const spawn: typeof ctx.spawn = (spec, init, options) =>
      ctx.spawn({ ...spec, module: import.meta.url, export: bug }, init, options);
    return pipelineSupervisor({ ...ctx, spawn }, init);
  };
}

export const supervisingArrivalOrder = supervising("arrivalOrder");
export const supervisingEarlyStep = supervising("earlyStep");
export const supervisingDoubleStep = supervising("doubleStep");
export const supervisingDoubleCredit = supervising("doubleCredit");
export const supervisingDriftingCopy = supervising("driftingCopy");
export const supervisingNewestWeights = supervising("newestWeights");

/** A system whose pipeline has a bug. */
export function withBug(system: System, bug: Bug): System {
  const name = `supervising${bug[0]!.toUpperCase()}${bug.slice(1)}`;
  return {
    ...system,
    spawn(spec, init, options) {
      const isIt = spec.export === SUPERVISOR.export;
      const planted = { module: import.meta.url, export: name };
      return system.spawn(isIt ? planted : spec, init, options);
    },
  };
}
