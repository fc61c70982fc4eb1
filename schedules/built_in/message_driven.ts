/** Message-driven schedules: no fixed order, but limits of what is in flight and what is held. */

import {
  defineSchedule,
  linear,
  perWorker,
  requireOption,
  type ScheduleOptions,
  wave,
} from "../define.ts";
import { assertInput } from "../errors.ts";
import { isByMessage, MAILBOX_ORDERS, readinessPolicy } from "../policies.ts";

/** K unless given: more gains less than 1 %. */
const WEIGHT_BACKLOG = 2;

/**
 * Fills in missing options: BFW for two workers and more, with M = D and K = 2.
 *
 * @returns with the options M, the `limit` in activations of one stage and the largest micro-batch, K, the
 * `weightBacklog`, and the micro-batches in flight.
 */
function decide(options: ScheduleOptions) {
  const { workers, microBatches, chunks = 1, pipelineLimit, limitBy = "count" } = options;
  const { order = workers > 1 ? "bfw" : "fifo", activationLimit } = options;
  const { weightBacklog = order === "bfw" ? WEIGHT_BACKLOG : 0 } = options;
  const isSized = limitBy === "bytes", sizes = isSized ? options.sizes : undefined;
  const backlog = weightBacklog === "all" ? microBatches : weightBacklog;
  const shared = { order, chunks, weightBacklog: Math.min(backlog, microBatches), sizes };
  if (isByMessage(order)) {
    // While one worker computes a micro-batch, the inputs of the next one arrive.
    const given = pipelineLimit ?? Math.max(workers, 2);
    const flying = Math.min(given, Math.floor(activationLimit ?? Infinity));
    const inFlight = Math.min(flying, microBatches);
    return { ...shared, limit: inFlight * chunks, inFlight };
  }
  const most = Math.floor((activationLimit ?? pipelineLimit ?? workers) * chunks + 1e-9);
  const limit = isSized ? most : Math.min(most, microBatches * chunks);
  const inFlight = pipelineLimit ?? (isSized ? microBatches : limit);
  return { ...shared, limit, inFlight: Math.min(inFlight, microBatches) };
}

/** Refuses options that contradict each other. */
function checkOptions(options: ScheduleOptions): void {
  const { activationLimit = 1, chunks = 1, weightBacklog = 0, microBatches, sizes = [] } = options;
  const { order } = decide(options);
  const name = "message-driven";
  const check = (holds: boolean, must: string, received: unknown) =>
    assertInput(holds, `make the schedule ${name}`, must, received);
  check(activationLimit >= 1, "activationLimit must be at least 1", activationLimit);
  const orders = "order must be fifo, backward-first, bf or bfw";
  check(MAILBOX_ORDERS.includes(order), orders, `"${order}"`);
  requireOption(name, "chunks", chunks, chunks <= 2, "1, or 2 for a V");
  const isStraight = !isByMessage(order) || chunks === 1;
  check(isStraight, "chunks must be 1 with fifo and backward-first", chunks);
  const none = `weightBacklog must be 0 with ${order}, which runs whole backwards`;
  check(order === "bfw" || weightBacklog === 0, none, weightBacklog);
  const backlog = weightBacklog === "all" ? microBatches : weightBacklog;
  requireOption(name, "weightBacklog", backlog, backlog >= 0, "at least 0");
  const areAll = sizes.length === 0 || sizes.length === microBatches;
  check(areAll, `sizes must be one for each of ${microBatches} micro-batches`, sizes.length);
  const areShares = sizes.every((size) => size > 0 && size <= 1);
  check(areShares, "sizes must be above 0, at most 1", sizes);
}

/**
 * Message-driven scheduling: the supervisor injects micro-batches up to a limit and one more for each
 * that is done; every worker runs what is ready ({@linkcode readinessPolicy}). With `fifo` and
 * `backward-first` it is AxoNN's schedule (Singh and Bhatele 2022, "AxoNN: An asynchronous,
 * message-driven parallel framework for extreme-scale deep learning", section III-C, Algorithm 2),
 * with `bf` and `bfw` that of RRFP (arXiv 2605.18750). Two chunks make the V of ZB-V.
 */
export const messageDriven = defineSchedule({
  name: "message-driven",
  reads: [
    "pipelineLimit",
    "order",
    "activationLimit",
    "weightBacklog",
    "chunks",
    "limitBy",
    "sizes",
  ],
  summary: "AxoNN, RRFP: workers run what is ready, within limits",
  place(options) {
    checkOptions(options);
    return options.chunks === 2 ? wave(options) : linear(options);
  },
  injectionLimit: (options) => decide(options).inFlight,
  weightBacklog: (options) => decide(options).weightBacklog,
  limitBy: ({ limitBy }) => limitBy,
  // With fifo and backward-first the first worker starts with a forward of every micro-batch that may
  // be in flight. Else all of these may pass before the first backward comes back, or each may be
  // back before the next one comes. The last of a chain of workers has its backwards at once.
  peak(worker, options) {
    const { order, limit, chunks, inFlight, weightBacklog } = decide(options);
    const isLast = worker === options.workers - 1 && chunks === 1;
    const most = isLast ? Math.min(inFlight, limit, weightBacklog + 1) : Math.min(inFlight, limit);
    const least = worker === 0 && isByMessage(order) ? most : 1;
    return { least, most, ...chunks > 1 && { together: limit } };
  },
  policy(worker, options) {
    const { workers, microBatches, chunks = 1 } = options;
    const stages = workers * chunks;
    const held = perWorker(chunks, (turn) => turn === 0 ? worker : stages - 1 - worker);
    return readinessPolicy({ held, stages, microBatches, ...decide(options) });
  },
});
