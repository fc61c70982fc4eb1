/**
 * The handlers of the supervisor for an empty pipe (start, evaluate, save) and for lost workers.
 *
 * @module
 */

import type { Batch } from "../../kernels/mod.ts";
import type { ActorRef, Context, Handlers, Message } from "../runtime/mod.ts";
import type { SupervisorMessage, WorkerLost, WorkerReport } from "./protocol.ts";
import { joinStates, moved } from "./stage_copies.ts";
import {
  broadcast,
  currentActivity,
  entryOf,
  Evaluation,
  gather,
  holderOf,
  lossOf,
  outcomeOf,
  type Supervisor,
} from "./supervisor_state.ts";

/** The lane of orders to workers. */
const CONTROL = { lane: "control" } as const;

/** The longest time for an answer in the control lane, in milliseconds. */
const REPORT_TIMEOUT_MS = 1000;

/**
 * Asks every worker for the input that it waits for.
 *
 * @param when The stalled activity: `step 4`.
 * @param stallMs The time without progress.
 */
async function reportStall<M extends Message>(
  ctx: Context<M>,
  workers: readonly ActorRef<{ readonly type: "Report" }>[],
  when: string,
  stallMs: number,
): Promise<WorkerLost> {
  const timeoutMs = Math.min(REPORT_TIMEOUT_MS, stallMs);
  const options = { ...CONTROL, timeoutMs };
  const reports = await Promise.all(
    workers.map((worker) =>
      ctx.ask<{ readonly type: "Report" }, WorkerReport>(worker, { type: "Report" }, options)
        .catch(() => undefined)
    ),
  );
  const lines = reports.map((report, w) =>
    !report
      ? `${workers[w]!.id} does not answer`
      : `${workers[w]!.id} waits for ${report.waitsFor}, with [${report.ready}] ready`
  );
  const wedged = reports.findIndex((report) => !report), isWedged = wedged >= 0;
  const message = `${when} stalled for ${stallMs} ms: ${lines.join("; ")}`;
  return { worker: workers[Math.max(0, wedged)]!.id, kind: "exit", message, isWedged };
}

/** The handlers of lost workers. */
export function workerDownHandlers(
  supervisor: Supervisor,
): Partial<Handlers<SupervisorMessage>> {
  const { ctx, workers, replies } = supervisor;
  return {
    async Stalled({ forMs }) {
      const lost = await reportStall(ctx, workers, currentActivity(supervisor), forMs);
      supervisor.state = "lost";
      replies.failAll(lost);
    },
    WorkerDown({ down }) {
      const { steps, state, gone } = supervisor;
      const when = steps.length > 0 ? currentActivity(supervisor) : undefined;
      const lost = lossOf(down, when, supervisor.excluded);
      gone.add(workers.findIndex(({ id }) => id === down.ref.id));
      if (lost.kind === "exit" && canFreeze(supervisor)) {
        if (state === "frozen") return loseFrozen(supervisor, lost);
        if (state !== "freezing") return freeze(supervisor, lost);
        return supervisor.takeFrozen!(-1);
      }
      supervisor.state = "lost";
      replies.failAll(lost);
    },
    Frozen: ({ worker }) => supervisor.takeFrozen!(worker),
  };
}

/** Returns whether the survivors of a lost worker hold every stage and can be frozen. */
function canFreeze(supervisor: Supervisor): boolean {
  const { init, state } = supervisor;
  if (!init.freezes || state === "starting") return false;
  return init.workers[0]!.copies.every((_, s) => holderOf(supervisor, s) !== undefined);
}

/**
 * Freezes the survivors, then answers all questions with the loss. If the step was committed, each of
 * them has ended it, so its outcome is known.
 */
function freeze(supervisor: Supervisor, lost: WorkerLost): void {
  const { ctx, workers, gone, replies, held } = supervisor, frozen = new Set<number>();
  supervisor.state = "freezing";
  // Answers to earlier questions may come after the loss of their workers.
  supervisor.takeFetched = supervisor.takeDigests = () => {};
  supervisor.takeFrozen = (worker) => {
    frozen.add(worker);
    if (workers.some((_, w) => !gone.has(w) && !frozen.has(w))) return;
    supervisor.state = "frozen";
    const step = supervisor.steps.find(({ isCommitted }) => isCommitted);
    const remains = {
      workers: workers.length - gone.size,
      ...step && { committed: outcomeOf(step, held) },
    };
    replies.failAll({ ...lost, remains, isInStep: supervisor.steps.length > 0 });
  };
  for (const [w, worker] of workers.entries()) {
    if (!gone.has(w)) ctx.send(worker, { type: "Freeze" }, CONTROL);
  }
}

/** Answers a question to frozen workers of which one is lost; the others still hold every stage. */
function loseFrozen({ workers, gone, steps, replies }: Supervisor, lost: WorkerLost): void {
  const isInStep = steps.some(({ isCommitted }) => !isCommitted);
  replies.failAll({ ...lost, remains: { workers: workers.length - gone.size }, isInStep });
}

/** Evaluates micro-batches, which enter the first pipeline of the first replica. */
function evaluate(supervisor: Supervisor, microBatches: readonly Batch[]): void {
  const { ctx, init, replies } = supervisor, reply = replies.defer();
  supervisor.state = "evaluating";
  supervisor.pause = "an evaluation";
  const inject = (microBatch: number, fields: Batch) => {
    const message = { type: "Inject", microBatch, fields, isEvaluation: true } as const;
    ctx.send(entryOf(supervisor, 0, 0), message);
  };
  supervisor.evaluation = new Evaluation(microBatches, init.injectionLimit, inject, (losses) => {
    supervisor.state = "idle";
    reply(losses);
  });
}

/** The handlers of questions while the pipe is empty. */
export function controlHandlers(
  supervisor: Supervisor,
): Partial<Handlers<SupervisorMessage>> {
  const { ctx, init, workers, replies } = supervisor;
  const goIdle = () => void (supervisor.state = "idle");
  return {
    Start() {
      const reply = replies.defer();
      supervisor.takeReady = gather([...workers.keys()], () => {
        goIdle();
        reply(undefined);
      });
      broadcast(supervisor, { type: "Connect", supervisor: ctx.self, workers });
    },
    Ready: ({ worker }) => supervisor.takeReady!(worker, undefined),
    Evaluate: ({ microBatches }) => evaluate(supervisor, microBatches),
    Save() {
      const reply = replies.defer();
      supervisor.state = "saving";
      supervisor.pause = "a save";
      // Copies of a stage are equal: the first one is enough.
      const { copies } = init.workers[0]!;
      const first = [...new Set(copies.map(([copy]) => copy!.worker))].sort((a, b) => a - b);
      supervisor.takeState = gather(first, (parts) => {
        const state = joinStates(parts);
        goIdle();
        reply(state, moved(state));
      });
      for (const worker of first) ctx.send(workers[worker]!, { type: "Save" }, CONTROL);
    },
    Saved: ({ worker, state }) => supervisor.takeState!(worker, state),
    Fetch(message) {
      const isFrozen = supervisor.state === "frozen";
      const reply = replies.defer(isFrozen);
      if (!isFrozen) supervisor.state = "saving";
      supervisor.pause = "a save";
      const nth = ++supervisor.fetches;
      supervisor.takeFetched = (values, answered) => {
        if (answered !== nth) return;
        if (!isFrozen) goIdle();
        reply(values, { transfer: [values.buffer] });
      };
      ctx.send(workers[holderOf(supervisor, message.stage)!]!, { ...message, nth }, CONTROL);
    },
    Fetched: ({ values, nth }) => supervisor.takeFetched!(values, nth),
    Write({ orders, step }) {
      const reply = replies.defer();
      supervisor.state = "saving";
      supervisor.pause = "a checkpoint";
      supervisor.takeWritten = gather(orders.map(({ worker }) => worker), (outcomes) => {
        goIdle();
        reply(outcomes);
      });
      for (const { worker, order } of orders) {
        ctx.send(workers[worker]!, { type: "Write", order, step }, CONTROL);
      }
    },
    Written: ({ worker, outcome }) => supervisor.takeWritten!(worker, outcome),
  };
}

/** The handlers of questions about results: digests of all copies, and the end of a worker. */
export function verifyHandlers(supervisor: Supervisor): Partial<Handlers<SupervisorMessage>> {
  const { ctx, workers, replies } = supervisor;
  return {
    Compare() {
      const isFrozen = supervisor.state === "frozen", reply = replies.defer(isFrozen);
      if (!isFrozen) supervisor.state = "saving";
      supervisor.pause = "a comparison";
      const alive = [...workers.keys()].filter((worker) => !supervisor.gone.has(worker));
      supervisor.takeDigests = gather(alive, (digests) => {
        if (!isFrozen) supervisor.state = "idle";
        reply(digests.flat());
      });
      for (const worker of alive) ctx.send(workers[worker]!, { type: "Digest" }, CONTROL);
    },
    Digested: ({ worker, digests }) => supervisor.takeDigests!(worker, digests),
    Exclude({ worker, why }) {
      replies.defer();
      supervisor.excluded = why;
      ctx.stop(workers[worker]!);
    },
  };
}
