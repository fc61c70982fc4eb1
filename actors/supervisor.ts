/**
 * The supervisor: an actor that injects micro-batches, enforces `pipeline_limit` and closes the
 * step.
 *
 * [Note: credits] A micro-batch in flight holds activations on every worker, so only the number in
 * flight bounds memory (AxoNN, section 4.1). The supervisor starts a step with as many Inject as
 * the schedule allows and sends one more for each Credit that comes back. Nothing else ever waits:
 * a send never blocks, so no cycle of full mailboxes can form.
 *
 * [Note: the commit of a step] No worker touches a weight before every worker has all its
 * gradients and all of them, and all losses, are finite. So a step is taken by all or by none.
 *
 * @module
 */

import type { Batch, StageState } from "../kernels/mod.ts";
import type { StepOutcome, SupervisorMessage, WorkerMessage } from "./protocol.ts";
import type { ActorFactory, ActorRef, ActorSpec } from "./runtime/mod.ts";
import { WORKER, type WorkerInit } from "./worker.ts";

/** What the supervisor is made from. */
export interface SupervisorInit {
  readonly workers: readonly WorkerInit[];
  /** Where the workers run: beside the supervisor, or each in a Deno worker of its own. */
  readonly isolate: "local" | "worker";
  /** Micro-batches that may be in flight. */
  readonly injectionLimit: number;
}

/** How the supervisor is made. */
export const SUPERVISOR: ActorSpec<SupervisorInit, SupervisorMessage> = {
  module: import.meta.url,
  export: "pipelineSupervisor",
};

/** A worker that has not compiled its stages, or copied its weights, by then will not. */
const ANSWER_TIMEOUT_MS = 300_000;

/**
 * The most messages that can wait for a worker: for each of its stages and micro-batches in flight
 * an Inject, an Activation and a Gradient, and beside them one Dispatch and one Connect.
 */
function mailboxBound({ stages }: WorkerInit, injectionLimit: number): number {
  return 3 * stages.length * injectionLimit + 2;
}

/** The step or evaluation under way. */
interface Round {
  readonly microBatches: readonly Batch[];
  readonly isEvaluation: boolean;
  readonly step: number;
  readonly learningRate: number;
  readonly reply: (value: unknown) => void;
  readonly losses: Float32Array[];
  readonly squares: Map<string, number>;
  injected: number;
  lossesMissing: number;
  gradientsMissing: number;
  stepsMissing: number;
}

/** Makes the supervisor and its workers. Handled messages: {@linkcode SupervisorMessage}. */
export const pipelineSupervisor: ActorFactory<SupervisorInit, SupervisorMessage> = (ctx, init) => {
  const workers: ActorRef<WorkerMessage>[] = init.workers.map((worker) =>
    ctx.spawn(WORKER, worker, {
      id: `worker-${worker.worker}`,
      isolate: init.isolate,
      capacity: mailboxBound(worker, init.injectionLimit),
    })
  );
  const entry =
    workers[init.workers[0]!.placement.findIndex((held) => held.some(({ stage }) => stage === 0))]!;
  for (const worker of workers) ctx.watch(worker, (down) => ({ type: "WorkerDown", down }));
  const peakActivations = workers.map(() => 0);
  let round: Round | undefined;

  const begin = (
    kind: Pick<Round, "microBatches" | "isEvaluation" | "step" | "learningRate">,
    workersInRound: number,
  ) => {
    if (round) {
      throw new Error(`Cannot begin step ${kind.step}: step ${round.step} must have ended`);
    }
    round = {
      ...kind,
      reply: ctx.deferReply(),
      losses: [],
      squares: new Map(),
      injected: 0,
      lossesMissing: kind.microBatches.length,
      gradientsMissing: workersInRound,
      stepsMissing: workersInRound,
    };
    const limit = Math.min(init.injectionLimit, kind.microBatches.length);
    while (round.injected < limit) inject(round);
  };

  const inject = (current: Round) => {
    const microBatch = current.injected++;
    const fields = current.microBatches[microBatch]!, { isEvaluation } = current;
    ctx.send(entry, { type: "Inject", microBatch, fields, isEvaluation });
  };

  const end = (current: Round, value: unknown) => {
    round = undefined;
    current.reply(value);
  };

  const outcome = (current: Round, isCommitted: boolean): StepOutcome => ({
    losses: current.losses,
    squares: current.squares,
    isCommitted,
    peakActivations,
  });

  const commitWhenComplete = (current: Round) => {
    if (current.lossesMissing > 0 || current.gradientsMissing > 0) return;
    const numbers = [
      ...current.losses.flatMap((losses) => [...losses]),
      ...current.squares.values(),
    ];
    if (!numbers.every(Number.isFinite)) return end(current, outcome(current, false));
    const { step, learningRate } = current;
    for (const worker of workers) {
      ctx.send(worker, { type: "Optimize", step, learningRate }, { lane: "control" });
    }
  };

  const running = (): Round => {
    if (!round) throw new Error("Cannot handle a worker's message: a step must be under way");
    return round;
  };

  return {
    async Start() {
      const message = { type: "Connect", supervisor: ctx.self, workers } as const;
      const options = { timeoutMs: ANSWER_TIMEOUT_MS };
      await Promise.all(workers.map((worker) => ctx.ask(worker, message, options)));
      ctx.reply(undefined);
    },
    RunStep({ step, microBatches, learningRate }) {
      begin({ step, microBatches, learningRate, isEvaluation: false }, workers.length);
    },
    Evaluate({ microBatches }) {
      begin({ step: 0, microBatches, learningRate: 0, isEvaluation: true }, 0);
    },
    async Save() {
      const weights = new Map<string, Float32Array>(), moments = new Map<string, Float32Array>();
      for (const worker of workers) {
        const part = await ctx.ask<WorkerMessage, StageState>(worker, {
          type: "Save",
        }, { lane: "control", timeoutMs: ANSWER_TIMEOUT_MS });
        for (const [name, values] of part.weights) weights.set(name, values);
        for (const [name, values] of part.moments) moments.set(name, values);
      }
      const arrays = [...weights.values(), ...moments.values()];
      ctx.reply({ weights, moments } satisfies StageState, {
        transfer: arrays.map(({ buffer }) => buffer as ArrayBuffer),
      });
    },
    Loss({ microBatch, losses }) {
      const current = running();
      current.losses[microBatch] = losses;
      current.lossesMissing--;
      if (!current.isEvaluation) return commitWhenComplete(current);
      if (current.injected < current.microBatches.length) inject(current);
      if (current.lossesMissing === 0) end(current, current.losses);
    },
    Credit() {
      const current = running();
      if (current.injected < current.microBatches.length) inject(current);
    },
    GradientsReady({ squares }) {
      const current = running();
      for (const [name, sum] of squares) current.squares.set(name, sum);
      current.gradientsMissing--;
      commitWhenComplete(current);
    },
    StepDone({ worker, peakActivations: peak }) {
      const current = running();
      peakActivations[worker] = peak;
      if (--current.stepsMissing === 0) end(current, outcome(current, true));
    },
    WorkerDown({ down: { ref, reason } }) {
      const when = round && !round.isEvaluation ? ` in step ${round.step}` : "";
      if (reason === "stopped") {
        throw new Error(`${ref.id} stopped${when}, but must run to the end`);
      }
      const doing = reason.handling ? ` while handling ${reason.handling}` : "";
      throw new Error(`${reason.actor} failed${when}${doing}: ${reason.error.message}`);
    },
  };
};
