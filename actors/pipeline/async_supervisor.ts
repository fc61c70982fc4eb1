/**
 * The supervisor of a run without flushes: it keeps the pipe full over the ends of steps, and lets
 * it run empty when asked to.
 *
 * [Note: no commit] Stages step their optimizers one by one while others still compute, so there is
 * no moment at which they could agree on a step. A loss or gradient that is not finite is told in
 * the outcome of its step, when it has reached weights already.
 *
 * @module
 */

import type { Batch, StageMemory, StageState } from "../../kernels/mod.ts";
import type { AsyncSupervisorMessage, AsyncWorkerMessage, UpdateTerms } from "./async_protocol.ts";
import { ASYNC_WORKER, type AsyncWorkerInit } from "./async_worker.ts";
import { openAnswers } from "./supervisor/owed_replies.ts";
import { areFinite } from "../run/engines/engine.ts";
import { openEvaluations } from "./supervisor/evaluation.ts";
import { gather, type Take } from "./supervisor/gather.ts";
import type { StepOutcome, TracedAction } from "./protocol.ts";
import { reportStall } from "./supervisor/stall_report.ts";
import { joinStates, moved } from "./stage_states.ts";
import type { Isolation } from "./supervisor/supervisor.ts";
import type { ActorFactory, ActorRef, ActorSpec, Reply } from "../runtime/mod.ts";

/** What the supervisor is made from. */
export interface AsyncSupervisorInit {
  readonly workers: readonly AsyncWorkerInit[];
  /** Where the workers run: beside the supervisor, or each in a Deno worker of its own. */
  readonly isolate: Isolation;
  /** Limit of the JavaScript heap of each worker that is a process, in MiB; V8's unless given. */
  readonly heapLimitMb?: number | undefined;
}

/** How the supervisor is made. */
export const ASYNC_SUPERVISOR: ActorSpec<AsyncSupervisorInit, AsyncSupervisorMessage> = {
  module: import.meta.url,
  export: "asyncSupervisor",
};

/** A step under way. */
interface Step {
  readonly step: number;
  readonly microBatches: readonly Batch[];
  readonly terms: readonly UpdateTerms[];
  readonly reply: Reply;
  /** Its first micro-batch, counted since the pipe was empty. */
  readonly first: number;
  readonly losses: Float32Array[];
  /** Sums of squares after each micro-batch that an update follows, of all stages. */
  readonly squares: Map<number, Map<string, number>>;
  readonly traces: TracedAction[][];
  lossesMissing: number;
  updatesMissing: number;
}

/** Makes the supervisor and its workers. Handled messages: {@linkcode AsyncSupervisorMessage}. */
export const asyncSupervisor: ActorFactory<AsyncSupervisorInit, AsyncSupervisorMessage> = (
  ctx,
  init,
) => {
  // Worker 0 holds D micro-batches; one more waits there, so that it need not wait for its credit.
  const limit = init.workers.length + 1;
  const workers: ActorRef<AsyncWorkerMessage>[] = init.workers.map((worker) =>
    ctx.spawn(ASYNC_WORKER, worker, {
      id: `worker-${worker.worker}`,
      isolate: init.isolate,
      ...init.isolate === "process" && init.heapLimitMb && { memoryLimitMb: init.heapLimitMb },
      // An Inject, an Activation, a Gradient for each micro-batch in flight; two to itself.
      capacity: 3 * limit + 2,
    })
  );
  for (const worker of workers) ctx.watch(worker, (down) => ({ type: "WorkerDown", down }));
  const peakActivations = workers.map(() => 0), weights = workers.map(() => 1);
  const memory: StageMemory[] = [];
  /** The steps under way, the oldest first. */
  let steps: Step[] = [];
  /** Micro-batches since the pipe was empty: how many there are, have entered, have left. */
  let known = 0, injected = 0, left = 0;
  let drain: { readonly reply: Reply; missing: number } | undefined;

  const answers = openAnswers(ctx);
  const stepUnderWay = () => steps[0] && `step ${steps[0].step}`;
  /** What is under way where it is no step, and who takes what comes of it. */
  let pause = "the start", takeReady: Take<undefined> = () => {};
  let takeState: Take<StageState> = () => {};
  const tellAll = (message: AsyncWorkerMessage) => {
    for (const worker of workers) ctx.send(worker, message, { lane: "control" });
  };

  const stepOf = (microBatch: number): Step => {
    const step = steps.findLast(({ first }) => first <= microBatch);
    if (step) return step;
    throw new Error(`Cannot find micro-batch ${microBatch}: its step must be under way`);
  };
  const inject = () => {
    while (injected < known && injected - left < limit) {
      const microBatch = injected++, { first, microBatches, terms } = stepOf(microBatch);
      const fields = microBatches[microBatch - first]!;
      const message = { type: "Inject", microBatch, fields, terms: terms[microBatch - first]! };
      ctx.send(workers[0]!, message as AsyncWorkerMessage);
    }
  };
  const evaluations = openEvaluations(
    limit,
    (microBatch, fields) => ctx.send(workers[0]!, { type: "Inject", microBatch, fields }),
  );

  /** Answers for a step that has all its losses and updates. */
  const settle = (step: Step) => {
    if (step.lossesMissing > 0 || step.updatesMissing > 0) return;
    const { losses, squares, traces } = step;
    steps = steps.filter((one) => one !== step);
    const updates = [...squares].sort(([a], [b]) => a - b).map(([, sums]) => sums);
    const isCommitted = areFinite(losses, updates), held = { peakActivations, weights, memory };
    step.reply({ losses, updates, isCommitted, ...held, traces } satisfies StepOutcome);
  };
  const assertEmpty = (what: string) => {
    if (known === 0 && !evaluations.isRunning) return;
    throw new Error(`Cannot begin ${what}: the pipe must be empty`);
  };

  return {
    Start() {
      const reply = answers.owe();
      takeReady = gather([...workers.keys()], () => reply(undefined));
      tellAll({ type: "Connect", supervisor: ctx.self, workers });
    },
    Ready: ({ worker }) => takeReady(worker, undefined),
    RunStep({ step, microBatches, terms }) {
      steps.push({
        step,
        microBatches,
        terms,
        reply: answers.owe(),
        first: known,
        losses: [],
        squares: new Map(),
        traces: workers.map(() => []),
        lossesMissing: microBatches.length,
        updatesMissing: workers.length * terms.filter(({ update }) => update).length,
      });
      known += microBatches.length;
      inject();
    },
    Drain() {
      const reply = answers.owe();
      if (known === 0) return reply(undefined);
      drain = { reply, missing: workers.length };
      tellAll({ type: "Drain", end: known });
    },
    Evaluate({ microBatches }) {
      assertEmpty(pause = "an evaluation");
      evaluations.begin(microBatches, answers.owe());
    },
    Save() {
      assertEmpty(pause = "a save");
      const reply = answers.owe();
      takeState = gather([...workers.keys()], (parts) => {
        const state = joinStates(parts);
        reply(state, moved(state));
      });
      tellAll({ type: "Save" });
    },
    Saved: ({ worker, state }) => takeState(worker, state),
    Loss({ microBatch, losses }) {
      if (evaluations.isRunning) return evaluations.add(microBatch, losses);
      const step = stepOf(microBatch);
      step.losses[microBatch - step.first] = losses;
      step.lossesMissing--;
      settle(step);
    },
    Credit() {
      left++;
      inject();
    },
    Updated({ worker, microBatch, squares, trace, ...held }) {
      const step = stepOf(microBatch), sums = step.squares.get(microBatch) ?? new Map();
      step.squares.set(microBatch, sums);
      for (const [name, sum] of squares) sums.set(name, sum);
      step.traces[worker]!.push(...trace);
      peakActivations[worker] = held.peakActivations;
      weights[worker] = held.weights;
      memory[worker] = held.memory;
      step.updatesMissing--;
      settle(step);
    },
    Drained() {
      if (--drain!.missing > 0) return;
      known = injected = left = 0;
      drain!.reply(undefined);
      drain = undefined;
    },
    async Stalled({ forMs }) {
      answers.giveUp(await reportStall(ctx, workers, stepUnderWay() ?? pause, forMs));
    },
    WorkerDown: ({ down }) => answers.lose(down, stepUnderWay()),
  };
};
