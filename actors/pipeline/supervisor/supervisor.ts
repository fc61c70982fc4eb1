/**
 * The supervisor: an actor that injects micro-batches, enforces `pipeline_limit`, triggers the
 * all-reduce and closes the step.
 *
 * [Note: credits] A micro-batch in flight holds activations on every worker, so only the number in
 * flight bounds memory (AxoNN, section III-C). The supervisor starts a step with as many Inject as
 * the schedule allows and sends one more for each Credit that comes back. Nothing else ever waits:
 * a send never blocks, so no cycle of full mailboxes can form.
 *
 * [Note: the commit of a step] No worker touches a weight before every copy of every stage has
 * voted: "my gradients are finite, and so small that no sum of copies can overflow". So a step is
 * taken in all buckets of all workers or in none, and nothing is ever undone. (AxoNN's own code
 * looks for an overflow bucket by bucket, when earlier buckets have been stepped.)
 *
 * @module
 */

import type { StageMemory, StageState } from "../../../kernels/mod.ts";
import { openAnswers } from "./owed_replies.ts";
import { areFinite, clipFactor } from "../../run/engines/engine.ts";
import { openEvaluations } from "./evaluation.ts";
import { gather, type Take } from "./gather.ts";
import type {
  Deal,
  StepOutcome,
  StepRequest,
  SupervisorMessage,
  TracedAction,
  WorkerMessage,
} from "../protocol.ts";
import { type ActorFactory, type ActorRef, type ActorSpec, type Reply } from "../../runtime/mod.ts";
import { reportStall } from "./stall_report.ts";
import { joinStates, moved } from "../stage_states.ts";
import { WORKER, type WorkerInit } from "../worker/worker.ts";

/** Where workers run: beside the supervisor, each in a Deno worker, or each in a process. */
export type Isolation = "local" | "worker" | "process";

/** What the supervisor is made from. */
export interface SupervisorInit {
  readonly workers: readonly WorkerInit[];
  /** Where the workers run: beside the supervisor, or each in a worker or process of its own. */
  readonly isolate: Isolation;
  /** Limit of the JavaScript heap of each worker that is a process, in MiB; V8's unless given. */
  readonly heapLimitMb?: number | undefined;
  /** Micro-batches that may be in flight in each data-parallel replica. */
  readonly injectionLimit: number;
  /** Stages whose all-reduce starts while other stages still run backward. */
  readonly eagerStages: readonly number[];
  /** The most that the norm of all gradients may be; more is scaled down. */
  readonly clip?: number | undefined;
}

/** How the supervisor is made. */
export const SUPERVISOR: ActorSpec<SupervisorInit, SupervisorMessage> = {
  module: import.meta.url,
  export: "pipelineSupervisor",
};

/** The step under way. */
interface Step {
  readonly request: StepRequest;
  readonly deal: Deal;
  readonly reply: Reply;
  readonly losses: Float32Array[];
  readonly squares: Map<string, number>;
  /** Micro-batches that have entered, by data-parallel replica. */
  readonly injected: number[];
  /** Copies that have not voted, by stage. */
  readonly votesMissing: number[];
  readonly reducing: Set<number>;
  isSafe: boolean;
  isDecided: boolean;
  isCommitted: boolean;
  lossesMissing: number;
  sumsMissing: number;
  endsMissing: number;
}

/** What the supervisor lets tests and journals see of its state. */
export interface SupervisorView {
  /** Steps tried. */
  readonly round: number;
  readonly isInStep: boolean;
  /** Micro-batches of the step that have entered, by data-parallel replica. */
  readonly injected: readonly number[];
  readonly isCommitted: boolean;
}

/** Makes the supervisor and its workers. Handled messages: {@linkcode SupervisorMessage}. */
export const pipelineSupervisor: ActorFactory<SupervisorInit, SupervisorMessage> = (ctx, init) => {
  const workers: ActorRef<WorkerMessage>[] = init.workers.map((worker) =>
    ctx.spawn(WORKER, worker, {
      id: `worker-${worker.worker}`,
      isolate: init.isolate,
      ...init.isolate === "process" && init.heapLimitMb && { memoryLimitMb: init.heapLimitMb },
      capacity: mailboxBound(worker, init.injectionLimit),
    })
  );
  for (const worker of workers) ctx.watch(worker, (down) => ({ type: "WorkerDown", down }));
  const { copies } = init.workers[0]!;
  const peakActivations = workers.map(() => 0), weights = workers.map(() => 0);
  const memory: StageMemory[] = [];
  const traces: (readonly TracedAction[])[] = workers.map(() => []);
  let step: Step | undefined, round = 0;

  const entryOf = (replica: number, pipe: number) =>
    workers[copies[0]!.find((copy) => copy.replica === replica && copy.pipe === pipe)!.worker]!;

  const inject = (current: Step, replica: number) => {
    const { first, pipeOf } = current.deal.shares[replica]!;
    const microBatch = current.injected[replica]!;
    if (microBatch === pipeOf.length) return;
    current.injected[replica]!++;
    const fields = current.request.microBatches[first + microBatch]!;
    const message = { type: "Inject", microBatch, fields, isEvaluation: false } as const;
    ctx.send(entryOf(replica, pipeOf[microBatch]!), message);
  };

  const evaluations = openEvaluations(
    init.injectionLimit,
    (microBatch, fields) =>
      ctx.send(entryOf(0, 0), { type: "Inject", microBatch, fields, isEvaluation: true }),
  );

  const begin = (request: StepRequest, deal: Deal) => {
    round++;
    step = {
      request,
      deal,
      reply: answers.owe(),
      losses: [],
      squares: new Map(),
      injected: deal.shares.map(() => 0),
      votesMissing: copies.map(({ length }) => length),
      reducing: new Set(),
      isSafe: true,
      isDecided: false,
      isCommitted: false,
      lossesMissing: request.microBatches.length,
      sumsMissing: workers.length,
      endsMissing: workers.length,
    };
    const lossScale = request.lossScale / request.predictions;
    for (const [w, worker] of workers.entries()) {
      const share = deal.shares[init.workers[w]!.replica]!, policy = deal.policies?.[w];
      const message = { type: "Begin", round, share, policy, lossScale } as const;
      ctx.send(worker, message, { lane: "control" });
    }
    for (const replica of deal.shares.keys()) {
      for (let i = 0; i < init.injectionLimit; i++) inject(step, replica);
    }
  };

  const tellAll = (message: WorkerMessage) => {
    for (const worker of workers) ctx.send(worker, message, { lane: "control" });
  };

  /** Starts the all-reduce of those stages whose time has come. */
  const reduceWhatIsReady = (current: Step) => {
    const isEnd = current.votesMissing.every((missing) => missing === 0);
    const stages = [...copies.keys()].filter((stage) =>
      current.votesMissing[stage] === 0 && !current.reducing.has(stage) &&
      (isEnd || init.eagerStages.includes(stage))
    );
    if (stages.length === 0) return;
    for (const stage of stages) current.reducing.add(stage);
    tellAll({ type: "Reduce", stages });
  };

  /** Commits or aborts, once, when all that this depends on is known. */
  const decide = (current: Step) => {
    const { request: { lossScale, update, learningRate } } = current;
    if (current.isDecided || current.lossesMissing > 0) return;
    if (current.votesMissing.some((missing) => missing > 0)) return;
    if (!current.isSafe || !areFinite(current.losses, [])) {
      current.isDecided = true;
      return tellAll({ type: "Abort" });
    }
    reduceWhatIsReady(current);
    if (init.clip !== undefined && current.sumsMissing > 0) return;
    current.isDecided = true;
    current.isCommitted = true;
    const gradientScale = clipFactor(init.clip, current.squares, lossScale) / lossScale;
    tellAll({ type: "Commit", update, learningRate, gradientScale });
  };

  const end = (current: Step) => {
    const { losses, squares, isCommitted, request: { lossScale } } = current;
    step = undefined;
    const unscaled = [...squares].map(([name, sum]) => [name, sum / lossScale ** 2] as const);
    const outcome: StepOutcome = {
      losses,
      updates: isCommitted ? [new Map(unscaled)] : [],
      isCommitted,
      peakActivations,
      weights,
      memory,
      traces,
    };
    current.reply(outcome);
  };

  const answers = openAnswers(ctx);
  const stepUnderWay = () => step && `step ${step.request.step}`;

  const running = (): Step => {
    if (!step) throw new Error("Cannot handle a worker's message: a step must be under way");
    return step;
  };
  /** What is under way where it is no step, and who takes what comes of it. */
  let pause = "the start", takeReady: Take<undefined> = () => {};
  let takeState: Take<StageState> = () => {};
  const assertIdle = (what: string) => {
    if (!step && !evaluations.isRunning) return;
    throw new Error(`Cannot begin ${what}: the step or evaluation under way must have ended`);
  };

  ctx.expose((): SupervisorView => ({
    round,
    isInStep: step !== undefined,
    injected: step?.injected ?? [],
    isCommitted: step?.isCommitted ?? false,
  }));
  return {
    Start() {
      const reply = answers.owe();
      takeReady = gather([...workers.keys()], () => reply(undefined));
      tellAll({ type: "Connect", supervisor: ctx.self, workers });
    },
    Ready: ({ worker }) => takeReady(worker, undefined),
    RunStep({ request, deal }) {
      assertIdle(`step ${request.step}`);
      begin(request, deal);
    },
    Evaluate({ microBatches }) {
      assertIdle(pause = "an evaluation");
      evaluations.begin(microBatches, answers.owe());
    },
    Save() {
      assertIdle(pause = "a save");
      const reply = answers.owe();
      // Copies of a stage are equal: the first of each has it all.
      const first = [...new Set(copies.map(([copy]) => copy!.worker))].sort((a, b) => a - b);
      takeState = gather(first, (parts) => {
        const state = joinStates(parts);
        reply(state, moved(state));
      });
      for (const worker of first) ctx.send(workers[worker]!, { type: "Save" }, { lane: "control" });
    },
    Saved: ({ worker, state }) => takeState(worker, state),
    Loss({ microBatch, losses }) {
      if (evaluations.isRunning) return evaluations.add(microBatch, losses);
      const current = running();
      current.losses[microBatch] = losses;
      current.lossesMissing--;
      decide(current);
    },
    Credit({ replica }) {
      inject(running(), replica);
    },
    GradientsReady({ stage, isSafe }) {
      const current = running();
      current.votesMissing[stage]!--;
      current.isSafe &&= isSafe;
      if (init.eagerStages.includes(stage) && current.isSafe) reduceWhatIsReady(current);
      decide(current);
    },
    Reduced({ squares }) {
      const current = running();
      for (const [name, sum] of squares) current.squares.set(name, sum);
      current.sumsMissing--;
      decide(current);
    },
    StepDone({ worker, peakActivations: peak, weights: held, memory: bytes, trace }) {
      const current = running();
      traces[worker] = trace;
      memory[worker] = bytes;
      peakActivations[worker] = peak;
      weights[worker] = held;
      if (--current.endsMissing === 0) end(current);
    },
    async Stalled({ forMs }) {
      answers.giveUp(await reportStall(ctx, workers, stepUnderWay() ?? pause, forMs));
    },
    WorkerDown: ({ down }) => answers.lose(down, stepUnderWay()),
  };
};

/** Messages that a copy may have waiting from each other copy: two phases of the chunks under way
 * and of the one after. */
const PARTS_PER_COPY = 8;

/**
 * The most messages that can wait for a worker: for each of its stages and micro-batches in flight
 * an Inject, an Activation and the two halves of a Gradient, the parts of the all-reduce, and
 * those that it sends to itself.
 */
function mailboxBound({ held, copies }: WorkerInit, injectionLimit: number): number {
  return held.length * (4 * injectionLimit + PARTS_PER_COPY * copies[0]!.length + 2) + 8;
}
