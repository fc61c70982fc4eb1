/**
 * The actions of a worker: F, R, B, I and W of its stages, and the evaluation of a micro-batch.
 *
 * [Note: buffers go to and fro] The array that brought an activation has the size of the gradient
 * that goes back, so it carries it; the array that brought a gradient is kept for the next
 * activation. In a steady state no array of a chain is allocated.
 *
 * @module
 */

import { sliceBatch } from "../../kernels/mod.ts";
import { type Action, formatAction, parts, takeOffers } from "../../schedules/mod.ts";
import type { Handlers } from "../runtime/mod.ts";
import type { Arrival } from "./arrivals.ts";
import { messagesOf } from "./layout.ts";
import { cut, mapPassed } from "./links.ts";
import type { WorkerMessage } from "./protocol.ts";
import type { OpenCopy } from "./stage_copies.ts";
import {
  dispatch,
  measure,
  routed,
  sendActivation,
  sendGradient,
  slicingOf,
  stepOf,
  tell,
  type Worker,
} from "./worker_state.ts";

/** When the weights of a worker step. */
export interface WeightUpdater {
  /** Which weights the forward of a micro-batch reads: 0 for the newest, 1 for those before. */
  ageOf(microBatch: number): number;
  /**
   * The gradients of a micro-batch have been added to those of a copy.
   *
   * @param part how much of the micro-batch.
   */
  afterBackward(copy: OpenCopy, microBatch: number, part: 1 | 0.5): Promise<void>;
  /** The messages about steps, from Begin to their end. */
  readonly handlers: Partial<Handlers<WorkerMessage>>;
}

/** An input of an action arrives; of what other stages send there may be several messages. */
function arrive(worker: Worker, action: Action, arrival: Arrival, messages = 1): void {
  worker.arrivals.add(action, arrival, messages);
  dispatch(worker);
}

/**
 * How many messages of other stages an action waits for: of all copies of a stage as many. The step
 * of the micro-batch may not have begun.
 */
function messagesFor({ copies }: Worker, { kind, stage }: Action): number {
  const copy = copies.all.find((one) => one.stage === stage)!;
  return messagesOf(routed(copy), kind === "F" ? "F" : "B");
}

/**
 * Runs what the policy has picked. An overlap F&B is one action of its list; on one device its parts
 * run in turn, and so do the two forwards of a doubled one.
 */
function runAction(worker: Worker, updater: WeightUpdater, action: Action): Promise<void> {
  const { activity, arrivals } = worker, waiting = arrivals.ready.length;
  const run = async () => {
    for (const part of parts(action)) {
      await KINDS[part.kind](worker, updater, part);
    }
  };
  return activity.run(formatAction(action), run, () => {
    const arrived = arrivals.takeLatest();
    return arrived === undefined ? { waiting } : { waiting, arrived };
  });
}

/** What runs an action of each kind. */
const KINDS = { F: forward, R: recompute, B: backward, I: backward, W: backward };

function copyOf(worker: Worker, { stage, microBatch }: Action): OpenCopy {
  const { first, share } = stepOf(worker, microBatch);
  return worker.copies.of(stage, share.pipeOf[microBatch - first]!);
}

async function forward(worker: Worker, updater: WeightUpdater, action: Action): Promise<void> {
  const { arrivals, copies, init } = worker, { stage, microBatch, slice } = action;
  const copy = copyOf(worker, action), step = stepOf(worker, microBatch);
  const { round, first, share } = step, globalId = share.first + microBatch - first;
  const { tensor, fields } = arrivals.takeForward(action);
  const into = copy.kernels.isLast ? undefined : arrivals.takeBuffer(stage);
  const age = updater.ageOf(microBatch);
  const dropout = step.dropout && { ...step.dropout, microBatch: globalId };
  const run = copies.forward(copy, action, tensor, fields, into, age, dropout);
  const { output, isLoss } = await run;
  measure(worker);
  if (tensor) arrivals.keepReturn(action, tensor);
  const part = partOf(action), again: Action = { kind: "R", stage, microBatch, ...part };
  if (worker.recomputations.has(formatAction(again))) arrive(worker, again, { fields: {} });
  if (!isLoss) return sendActivation(worker, copy, action, output, fields, false);
  const losses = output as Float32Array;
  tell(worker, { type: "Loss", round, microBatch: globalId, ...part, losses });
  // Backwards of slices begin with the last one.
  if (slice !== undefined && slice < slicingOf(init)!.slices - 1) return;
  arrive(worker, { kind: "B", stage, microBatch, ...part }, { fields: {} });
}

/** R, for which nothing has to come. */
async function recompute(worker: Worker, _updater: WeightUpdater, action: Action): Promise<void> {
  worker.arrivals.takeForward(action);
  await worker.copies.recompute(copyOf(worker, action), action);
}

/** B; or I, after which W is ready, which nothing waits for but the end of the step. */
async function backward(worker: Worker, updater: WeightUpdater, action: Action): Promise<void> {
  const { arrivals, copies, init } = worker, { kind, stage, microBatch, half, slice } = action;
  const copy = copyOf(worker, action), { first, lossScales } = stepOf(worker, microBatch);
  const gradient = kind === "W" ? undefined : arrivals.takeGradient(action);
  if (kind === "W") arrivals.takeForward(action);
  const into = kind === "W" || half !== undefined ? undefined : arrivals.takeReturn(action);
  const lossScale = lossScales[microBatch - first]!;
  const dx = await copies.backward(copy, action, gradient, lossScale, into);
  if (gradient && half === undefined) arrivals.keepBuffer(stage, gradient);
  if (stage > 0 && kind !== "W") {
    sendGradient(worker, copy, { microBatch, ...partOf(action) }, dx ?? {});
  }
  // On the last stage nobody else brings a gradient: the slice before is next.
  if (kind !== "W" && copy.kernels.isLast && slice) {
    arrive(worker, { kind: "B", stage, microBatch, slice: slice - 1 }, { fields: {} });
  }
  if (kind === "I") {
    return arrive(worker, { kind: "W", stage, microBatch, ...partOf(action) }, { fields: {} });
  }
  // Of slices the first is the last to run backward.
  if (slice) return;
  if (stage === 0 && half !== 0) tell(worker, { type: "Credit", replica: init.replica });
  await updater.afterBackward(copy, microBatch, half === undefined ? 1 : 0.5);
}

/** Which part of its micro-batch an action is of, where it is not of all. */
const partOf = ({ half, slice }: Action): Pick<Action, "half" | "slice"> => ({
  ...half !== undefined && { half },
  ...slice !== undefined && { slice },
});

/** Forward only: runs at once, since no policy orders evaluations. */
export async function evaluate(
  worker: Worker,
  stage: number,
  microBatch: number,
  arrival: Arrival,
): Promise<void> {
  const { ctx, copies, arrivals, state } = worker;
  if (state !== "idle") {
    throw new Error(`Cannot evaluate: the worker must be idle, received it while ${state}`);
  }
  const copy = copies.of(stage, 0), messages = messagesOf(routed(copy), "F");
  const all = arrivals.gather(`evaluation ${stage}/${microBatch}`, arrival, messages);
  if (!all) return;
  const { tensor, fields } = all;
  const { output, isLoss } = await ctx.busy(() =>
    copies.forward(copy, { microBatch }, tensor, fields, undefined, 0)
  );
  copies.drop(copy, microBatch);
  if (!isLoss) return sendActivation(worker, copy, { microBatch }, output, fields, true);
  tell(worker, { type: "Loss", microBatch, losses: output as Float32Array });
}

/** Inputs of actions, and Dispatch, which picks one. */
export function inputHandlers(
  worker: Worker,
  updater: WeightUpdater,
): Partial<Handlers<WorkerMessage>> {
  const { activity, init: { halves } } = worker, slicing = slicingOf(worker.init);
  return {
    Inject({ microBatch, fields, isEvaluation }) {
      if (isEvaluation) return evaluate(worker, 0, microBatch, { fields });
      const action = { kind: "F", stage: 0, microBatch } as const, at = activity.arrival();
      if (!slicing) return arrive(worker, action, { fields, at });
      for (let slice = 0; slice < slicing.slices; slice++) {
        arrive(worker, { ...action, slice }, { fields: sliceBatch(fields, slicing, slice), at });
      }
    },
    Activation({ stage, microBatch, slice, tensor, fields, isEvaluation }) {
      if (isEvaluation) return evaluate(worker, stage, microBatch, { tensor, fields });
      const action = { kind: "F", stage, microBatch, ...slice !== undefined && { slice } } as const;
      const arrival = { tensor, fields, at: activity.arrival() };
      arrive(worker, action, arrival, messagesFor(worker, action));
    },
    Gradient({ stage, microBatch, tensor, half, slice }) {
      const part = { ...half !== undefined && { half }, ...slice !== undefined && { slice } };
      const action = { kind: "B", stage, microBatch, ...part } as const, fields = {};
      const messages = messagesFor(worker, action), at = activity.arrival();
      if (messages === 1 || halves === 1 || half !== undefined) {
        return arrive(worker, action, { tensor, fields, at }, messages);
      }
      // Others may bring halves of theirs: what is whole waits as two halves, too.
      for (const half of [0, 1] as const) {
        const own = mapPassed(tensor, (array) => cut(array, half, 2));
        arrive(worker, { ...action, half }, { tensor: own, fields, at }, messages);
      }
    },
    async Dispatch() {
      const { arrivals: { ready } } = worker;
      worker.isDispatching = false;
      const action = worker.policy!.next(ready);
      if (!action) return;
      takeOffers(ready, action);
      await runAction(worker, updater, action);
      dispatch(worker);
    },
  };
}
