/**
 * What the supervisor knows, and how micro-batches get in.
 *
 * [Note: credits] A micro-batch in flight holds activations on every worker, so only the number in
 * flight bounds memory (AxoNN, section III-C). The supervisor sends as many Inject as the schedule
 * allows and one more for each Credit that comes back. Nothing else ever waits: a send never blocks,
 * so no cycle of full mailboxes can form.
 *
 * @module
 */

import type { StageState } from "../../../kernels/mod.ts";
import type { ActorRef, Context } from "../../runtime/mod.ts";
import type { SupervisorMessage, WorkerMessage, WriteOutcome } from "../protocol.ts";
import type { Evaluations } from "./evaluation.ts";
import type { Take } from "./gather.ts";
import type { OwedReplies } from "./owed_replies.ts";
import type { Held, StepRecord } from "./step_record.ts";
import type { SupervisorInit } from "./supervisor_init.ts";
import type { SupervisorState } from "./supervisor_states.ts";

/** For each data-parallel replica, micro-batches since the pipe was empty. */
export interface Flow {
  /** Those of the steps that were asked for. */
  readonly known: number[];
  /** Those that have entered. */
  readonly injected: number[];
  /** Those that have left. */
  readonly credited: number[];
}

/** What the supervisor knows. */
export interface Supervisor {
  readonly ctx: Context<SupervisorMessage>;
  readonly init: SupervisorInit;
  readonly workers: readonly ActorRef<WorkerMessage>[];
  readonly replies: OwedReplies;
  readonly evaluations: Evaluations;
  readonly held: Held;
  state: SupervisorState;
  /** What is under way where it is no step, for reports. */
  pause: string;
  /** Steps asked for. */
  round: number;
  /** The steps under way, the oldest first: one, but without flushes any number. */
  steps: StepRecord[];
  flow: Flow;
  /** Who takes what comes of each worker: that it is ready, its state or parts of it, its shard, that it is drained. */
  takeReady: Take<undefined>;
  takeState: Take<StageState>;
  takeFetched: (values: Float32Array<ArrayBuffer>) => void;
  takeWritten: Take<WriteOutcome>;
  drained: () => void;
}

/** Nothing is in the pipe. */
export function emptyFlow({ workers }: SupervisorInit): Flow {
  const zeros = () => new Array<number>(workers.at(-1)!.replica + 1).fill(0);
  return { known: zeros(), injected: zeros(), credited: zeros() };
}

/** Tells all workers. */
export function tellAll({ ctx, workers }: Supervisor, message: WorkerMessage): void {
  for (const worker of workers) ctx.send(worker, message, { lane: "control" });
}

/** The step of a round. */
export function stepOfRound({ steps }: Supervisor, round: number | undefined): StepRecord {
  const step = steps.find((one) => one.round === round);
  if (step) return step;
  throw new Error(`Cannot find round ${round}: its step must be under way`);
}

/** The step under way, for reports; else what is. */
export function underWay({ steps: [oldest], pause }: Supervisor): string {
  return oldest ? `step ${oldest.request.step}` : pause;
}

/** The worker where micro-batches of a pipeline enter. */
export function entryOf({ init, workers }: Supervisor, replica: number, pipe: number) {
  const [copies] = init.workers[0]!.copies;
  return workers[
    copies!.find((copy) => copy.replica === replica && copy.pipe === pipe)!.worker
  ]!;
}

/** Lets as many micro-batches of a data-parallel replica in as may be in flight. */
export function inject(supervisor: Supervisor, replica: number): void {
  const { ctx, init, flow: { injected, credited } } = supervisor;
  while (injected[replica]! - credited[replica]! < init.injectionLimit) {
    const next = injected[replica]!;
    const step = supervisor.steps.find(({ first, plan }) =>
      next < first[replica]! + plan.shares[replica]!.pipeOf.length
    );
    if (!step) return;
    if (!step.hasBegun) begin(supervisor, step);
    injected[replica]!++;
    const share = step.plan.shares[replica]!, index = next - step.first[replica]!;
    ctx.send(entryOf(supervisor, replica, share.pipeOf[index]!), {
      type: "Inject",
      microBatch: next,
      fields: step.request.microBatches[share.first + index]!,
      isEvaluation: false,
    });
  }
}

/** A micro-batch has left the pipe; another may enter. */
export function credit(supervisor: Supervisor, replica: number): void {
  supervisor.flow.credited[replica]!++;
  inject(supervisor, replica);
}

/** A step begins with its first micro-batch. */
function begin({ ctx, init, workers }: Supervisor, step: StepRecord): void {
  const { round, plan: { shares, policies, lossScales, updates, dropout } } = step;
  step.hasBegun = true;
  for (const [w, worker] of workers.entries()) {
    const share = shares[init.workers[w]!.replica]!, { first, pipeOf } = share;
    ctx.send(worker, {
      type: "Begin",
      round,
      share,
      policy: policies?.[w],
      lossScales: lossScales.slice(first, first + pipeOf.length),
      updates,
      ...dropout && { dropout },
    }, { lane: "control" });
  }
}
