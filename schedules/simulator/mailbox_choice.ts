/** Message-driven: which limit and order suit a pipeline where times vary, found by simulation. */

import { messageDriven } from "../built_in/message_driven.ts";
import { oneFOneB } from "../built_in/one_f_one_b.ts";
import type { Costs } from "../costs.ts";
import type { ScheduleOptions } from "../define.ts";
import type { MailboxOrder } from "../policies.ts";
import { type Schedule, withEdges } from "../schedule.ts";
import type { SkipEdge } from "../skip_edges.ts";
import { modelOfCosts } from "./model.ts";
import { simulateStep } from "./simulate.ts";

/** Options of a message-driven schedule, of which some are left to {@linkcode chooseMailbox}. */
export type AskedMailbox<O = ScheduleOptions> = Omit<O, "pipelineLimit" | "order"> & {
  /** Micro-batches in flight at a time. */
  readonly pipelineLimit?: number | "auto" | undefined;
  /** Which message goes first. */
  readonly order?: MailboxOrder | "auto" | undefined;
};

/** How times vary. */
export interface Conditions {
  /** What actions and messages take when they take least. */
  readonly costs?: Costs | undefined;
  /** Skip edges between the stages, of which each worker has one; none unless given. */
  readonly edges?: readonly SkipEdge[] | undefined;
  /** Each action takes up to so much longer, a fraction: its time times a draw from 1 to 1 + jitter. */
  readonly jitter?: number | undefined;
  /** A worker all of whose actions take so many times as long. */
  readonly slowWorker?: { readonly worker: number; readonly factor: number } | undefined;
  /** Steps that are simulated of each, with other draws; the same draws for all. */
  readonly draws?: number | undefined;
}

/** A schedule under varying times. */
export interface Trial {
  /** What was simulated. */
  readonly schedule: Schedule;
  /** Message-driven: micro-batches in flight; absent for 1F1B. */
  readonly pipelineLimit?: number;
  /** Message-driven: which message goes first; absent for 1F1B. */
  readonly order?: MailboxOrder;
  /** Steps simulated. */
  readonly count: number;
  /** The mean time of a step. */
  readonly mean: number;
  /** The shortest step. */
  readonly least: number;
  /** The longest step. */
  readonly most: number;
}

/**
 * What is assumed of a machine of which nothing else is known: actions take up to half as long
 * again, a message a fifth of a forward. (On a machine that never varies 1F1B would do.)
 */
export const ASSUMED: { readonly jitter: number; readonly send: number } = {
  jitter: 0.5,
  send: 0.2,
};

/** Steps simulated of each limit and order, unless they are so large that fewer must do. */
const DRAWS = 32;

/** Actions simulated in all, at most, where each limit and order is simulated at least once. */
const ACTIONS_MAX = 2 ** 20;

/** A smaller limit holds less: it is taken where the mean step is at most so much longer. */
const WORTH = 0.01;

const ORDERS: readonly MailboxOrder[] = ["fifo", "backward-first"];

/**
 * Simulates steps of 1F1B and of message-driven scheduling with several limits and both orders, all
 * with the same draws: limits of 1, 1 1/4, 1 1/2, 1 3/4 and 2 times the workers, at most
 * `activationLimit` and the micro-batches; those that are given, and not `auto`, stay.
 *
 * @throws {RangeError} if an option or a condition is not usable.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { tryMailboxes } from "@troupe/troupe/schedules";
 *
 * const trials = tryMailboxes({ workers: 2, microBatches: 8, pipelineLimit: 2, order: "fifo" });
 * strictEqual(trials.length, 2); // 1F1B, and what was given
 * ```
 */
export function tryMailboxes(
  asked: AskedMailbox,
  { costs = {}, edges = [], jitter = ASSUMED.jitter, slowWorker, draws }: Conditions = {},
): Trial[] {
  const { workers, microBatches, activationLimit } = asked;
  const limits = limitsOf(asked), orders = isChosen(asked.order) ? ORDERS : [asked.order];
  const tried = limits.length * orders.length + 1;
  const actions = 2 * workers * microBatches * tried;
  const count = draws ?? Math.max(1, Math.min(DRAWS, Math.floor(ACTIONS_MAX / actions)));
  const size = { workers, microBatches }, sent = { send: ASSUMED.send, ...costs };
  const slowdowns = slowdownsOf(workers, slowWorker);
  const trial = (chain: Schedule) => {
    const schedule = withEdges(chain, edges);
    const model = { ...modelOfCosts(schedule, sent), slowdowns };
    const times = Array.from({ length: count }, (_, seed) => {
      const law = { law: "above", amount: jitter, seed } as const;
      return simulateStep({ ...model, jitter: law }).makespanMs;
    });
    const mean = times.reduce((sum, time) => sum + time, 0) / count;
    return { schedule, count, mean, least: Math.min(...times), most: Math.max(...times) };
  };
  return [
    trial(oneFOneB.create(size)),
    ...limits.flatMap((pipelineLimit) =>
      orders.map((order) => ({
        pipelineLimit,
        order,
        ...trial(messageDriven.create({ ...size, pipelineLimit, order, activationLimit })),
      }))
    ),
  ];
}

/** `auto` where it is not given, too, but for an order that is. */
function isChosen<T>(value: T | "auto" | undefined): value is "auto" | undefined {
  return value === undefined || value === "auto";
}

function limitsOf(
  { workers, microBatches, pipelineLimit, activationLimit = Infinity }: AskedMailbox,
): number[] {
  if (!isChosen(pipelineLimit)) return [pipelineLimit];
  const most = Math.max(1, Math.floor(Math.min(microBatches, activationLimit)));
  const limits = [4, 5, 6, 7, 8].map((quarters) => Math.ceil(workers * quarters / 4));
  return [...new Set(limits.map((limit) => Math.min(limit, most)))];
}

function slowdownsOf(workers: number, slow: Conditions["slowWorker"]): number[] {
  const slowdowns = new Array<number>(workers).fill(1);
  if (slow === undefined) return slowdowns;
  const { worker, factor } = slow;
  if (worker >= 0 && worker < workers) {
    slowdowns[worker] = factor;
    return slowdowns;
  }
  throw new RangeError(
    `Cannot simulate a slow worker: it must be from 0 to ${workers - 1}, received ${worker}`,
  );
}

/**
 * Of trials, the limit and the order to use: those of the smallest limit whose mean step is within
 * 1 % of the shortest mean. It depends on nothing but the trials, so every rank chooses the same.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { chooseMailbox, tryMailboxes } from "@troupe/troupe/schedules";
 *
 * const { pipelineLimit, order } = chooseMailbox(tryMailboxes({ workers: 8, microBatches: 32 }));
 * deepStrictEqual([pipelineLimit, order], [16, "fifo"]);
 * ```
 */
export function chooseMailbox(trials: readonly Trial[]): Required<Trial> {
  const mailboxes = trials.filter((one): one is Required<Trial> => one.order !== undefined);
  const best = Math.min(...mailboxes.map(({ mean }) => mean));
  const near = mailboxes.filter(({ mean }) => mean <= best * (1 + WORTH));
  return near.reduce((chosen, one) =>
    one.pipelineLimit < chosen.pipelineLimit ||
      (one.pipelineLimit === chosen.pipelineLimit && one.mean < chosen.mean)
      ? one
      : chosen
  );
}
