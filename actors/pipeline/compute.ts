/**
 * The actions of a worker (F, R, B, I and W of its stages), and the evaluation of a micro-batch.
 *
 * [Note: arrays are used again] The array that brought an activation has the size of the gradient
 * that is sent back, so it carries it; the array that brought a gradient is kept for the next
 * activation. In a steady state no array of a chain is allocated.
 *
 * @module
 */

import { sliceBatch } from "../../kernels/internal.ts";
import { type Action, formatAction } from "../../schedules/mod.ts";
import { cutInto, endsBackward, parts, takeOffers } from "../../schedules/internal.ts";
import { digestOfValues } from "../gradients/commit.ts";
import type { Handlers } from "../runtime/mod.ts";
import { type Arrival, cut, mapValues } from "./links.ts";
import { sourceCount } from "./layout.ts";
import type { WorkerMessage } from "./protocol.ts";
import type { OpenCopy } from "./stage_copies.ts";
import {
  findStep,
  measure,
  runReadyActions,
  send,
  sendActivation,
  sendGradient,
  slicingOf,
  stepOf,
  type Worker,
} from "./worker_state.ts";

/** Steps the weights of a worker. */
export interface WeightUpdater {
  /** The age in updates of the weights that the forward of a micro-batch reads; 0 for the newest. */
  ageOf(microBatch: number): number;
  /**
   * Handles the end of a backward, after which the gradients of a copy contain those of a
   * micro-batch.
   */
  afterBackward(copy: OpenCopy, microBatch: number): Promise<void>;
  /** The handlers of messages about steps, from Begin to the end of a step. */
  readonly handlers: Partial<Handlers<WorkerMessage>>;
}

/** Takes an input of an action, and offers the action to the policy if it was the last one. */
export function arrive(worker: Worker, action: Action, arrival: Arrival): void {
  const readiness = findStep(worker, action.microBatch)?.readiness;
  if (!readiness) return void worker.early.push([action, arrival]);
  worker.arrivals.keep(action, arrival);
  readiness.arrive(action);
  readiness.offer(action, worker.ready);
  runReadyActions(worker);
}

/** Lets micro-batches enter the pipeline, up to the limit in flight. */
function enter(worker: Worker): void {
  const { activity, entering, init } = worker, slicing = slicingOf(init);
  while (entering.length > 0 && worker.inFlight < init.pipelineLimit) {
    const { microBatch, fields } = entering.shift()!, at = activity.arrival();
    worker.inFlight++;
    for (const part of slicing ? cutInto(slicing.slices) : [undefined]) {
      const action: Action = { kind: "F", stage: 0, microBatch, ...part && { part } };
      const own = part ? sliceBatch(fields, slicing!, part.index) : fields;
      arrive(worker, action, { fields: own, at });
    }
  }
}

/**
 * Runs the action that the policy has picked. An overlap F&B is one action of a list; on one device
 * its parts run one after the other, as do the two forwards of a doubled one.
 */
function runAction(worker: Worker, updater: WeightUpdater, action: Action): Promise<void> {
  const { activity, arrivals, ready } = worker, waiting = ready.length;
  const run = async () => {
    for (const part of parts(action)) await runPart(worker, updater, part);
  };
  return activity.run(formatAction(action), run, () => {
    const arrived = arrivals.takeLatest();
    return arrived === undefined ? { waiting } : { waiting, arrived };
  });
}

async function runPart(worker: Worker, updater: WeightUpdater, part: Action): Promise<void> {
  const { copies, init, ready } = worker, { kind, stage, microBatch } = part;
  const step = stepOf(worker, microBatch), { first, share, readiness } = step;
  const copy = copies.of(stage, share.pipeOf[microBatch - first]!);
  if (kind === "F") await forward(worker, copy, part, updater.ageOf(microBatch));
  else if (kind === "R") await copies.recompute(copy, part);
  else await backward(worker, copy, part);
  for (const next of readiness.complete(part)) {
    // Other stages wait for the message, even on this worker.
    if (next.stage === stage) readiness.offer(next, ready);
  }
  if ((kind !== "B" && kind !== "W") || !endsBackward(part, slicingOf(init)?.slices)) return;
  if (stage === 0 && step.credits-- > 0) send(worker, { type: "Credit", replica: init.replica });
  await updater.afterBackward(copy, microBatch);
  if (stage > 0) return;
  worker.inFlight--;
  enter(worker);
}

async function forward(worker: Worker, copy: OpenCopy, action: Action, age: number): Promise<void> {
  const { arrivals, copies } = worker, { stage, microBatch, part } = action;
  const step = stepOf(worker, microBatch), { round, first, share } = step;
  const globalId = share.first + microBatch - first;
  const { tensor, fields } = arrivals.takeForward(action);
  const into = copy.kernels.isLast ? undefined : arrivals.takeBuffer(stage);
  const dropout = step.dropout && { ...step.dropout, microBatch: globalId };
  const given = { input: tensor, fields, into, age, dropout };
  const { output, isLoss } = await copies.forward(copy, action, given);
  measure(worker);
  // Another micro-batch of a stage runs again in each step.
  const { mode, every = 1 } = worker.init.verification ?? {};
  if (mode === "actions" && !part && (round + stage + microBatch) % every === 0) {
    const first = digestOfValues(output);
    copies.drop(copy, microBatch);
    const again = await copies.forward(copy, action, given);
    if (digestOfValues(again.output) !== first) {
      const what = `the forward of stage ${stage} had another result when it ran again`;
      worker.doubts.push({ what, worker: worker.init.worker });
    }
  }
  if (tensor) arrivals.keepReturn(action, tensor);
  if (!isLoss) return sendActivation(worker, copy, action, output, fields, false);
  const losses = output as Float32Array;
  const loss = { type: "Loss", round, microBatch: globalId, ...part && { part }, losses } as const;
  // A black box names the first message with a value that is not finite, so such a loss does not wait.
  if (losses.every(Number.isFinite)) worker.unsent.push(loss);
  else send(worker, loss);
}

async function backward(worker: Worker, copy: OpenCopy, action: Action): Promise<void> {
  const { arrivals, copies } = worker, { kind, stage, microBatch, part } = action;
  const { first, lossScales } = stepOf(worker, microBatch);
  const isOwn = kind === "W" || copy.kernels.isLast;
  const gradient = isOwn ? undefined : arrivals.takeGradient(action);
  // An array of a whole micro-batch carries no gradient of a part of its samples.
  const isWhole = !part || slicingOf(worker.init) !== undefined;
  const into = kind === "W" || !isWhole ? undefined : arrivals.takeReturn(action);
  const lossScale = lossScales[microBatch - first]!;
  const dx = await copies.backward(copy, action, { gradient, lossScale, into });
  if (gradient && isWhole) arrivals.keepBuffer(stage, gradient);
  if (stage > 0 && kind !== "W") sendGradient(worker, copy, action, dx ?? {});
}

/** Runs only a forward, immediately: policies do not order evaluations. */
async function evaluate(
  worker: Worker,
  stage: number,
  microBatch: number,
  arrival: Arrival,
): Promise<void> {
  const { ctx, copies, arrivals, state } = worker;
  if (state !== "idle") {
    throw new Error(`Cannot evaluate: the worker must be idle, received it while ${state}`);
  }
  const copy = copies.of(stage, 0), messages = sourceCount(copy);
  const all = arrivals.gather(`${stage}/${microBatch}`, arrival, messages);
  if (!all) return;
  const { tensor: input, fields } = all, age = worker.init.stage.average ? -1 : 0;
  const { output, isLoss } = await ctx.busy(() =>
    copies.forward(copy, { microBatch }, { input, fields, age })
  );
  copies.drop(copy, microBatch);
  if (!isLoss) return sendActivation(worker, copy, { microBatch }, output, fields, true);
  send(worker, { type: "Loss", microBatch, losses: output as Float32Array });
}

/** The handlers of inputs of actions, and of Dispatch, which picks an action. */
export function inputHandlers(
  worker: Worker,
  updater: WeightUpdater,
): Partial<Handlers<WorkerMessage>> {
  const { activity, init: { halves, edges } } = worker;
  return {
    Inject(message) {
      const { microBatch, fields, isEvaluation } = message;
      if (isEvaluation) return evaluate(worker, 0, microBatch, { fields });
      worker.entering.push(message);
      enter(worker);
    },
    Activation({ stage, microBatch, part, tensor, fields, isEvaluation }) {
      if (isEvaluation) return evaluate(worker, stage, microBatch, { tensor, fields });
      const action: Action = { kind: "F", stage, microBatch, ...part && { part } };
      arrive(worker, action, { tensor, fields, at: activity.arrival() });
    },
    Gradient({ stage, microBatch, tensor, part }) {
      const at = activity.arrival();
      const action: Action = { kind: "B", stage, microBatch, ...part && { part } };
      if (halves === 1 || part || !edges) {
        return arrive(worker, action, { tensor, fields: {}, at });
      }
      // Other stages may send parts: a whole gradient waits in parts, too.
      for (const part of cutInto(halves)) {
        const own = mapValues(tensor, (array) => cut(array, part.index, part.count));
        arrive(worker, { ...action, part }, { tensor: own, fields: {}, at });
      }
    },
    async Dispatch() {
      const { ready } = worker;
      worker.isDispatching = false;
      const action = worker.policy!.next(ready);
      if (!action) return;
      takeOffers(ready, action);
      await runAction(worker, updater, action);
      runReadyActions(worker);
    },
  };
}
