/** Choice of the limit and order of a message-driven pipeline with varying times, by simulation. */

import { messageDriven } from "../built_in/message_driven.ts";
import { oneFOneB } from "../built_in/one_f_one_b.ts";
import type { Costs } from "../costs.ts";
import type { ScheduleOptions } from "../define.ts";
import type { MailboxOrder } from "../policies.ts";
import { type Schedule, withEdges } from "../schedule.ts";
import type { SkipEdge } from "../skip_edges.ts";
import { modelOfCosts } from "./model.ts";
import { simulateStep } from "./simulate.ts";

/** Options of a message-driven schedule, some of which {@linkcode chooseMailbox} may choose. */
export type AskedMailbox<O = ScheduleOptions> = Omit<O, "pipelineLimit" | "order"> & {
  /** Micro-batches in flight at a time. */
  readonly pipelineLimit?: number | "auto" | undefined;
  /** The message to handle first. */
  readonly order?: MailboxOrder | "auto" | undefined;
};

/** Variation of times. */
export interface TimeVariation {
  /** The shortest times of actions and messages. */
  readonly costs?: Costs | undefined;
  /** Skip edges between the stages, with one stage on each worker; none unless given. */
  readonly edges?: readonly SkipEdge[] | undefined;
  /** The variation of actions: each time is multiplied by a draw from 1 to 1 + jitter. */
  readonly jitter?: number | undefined;
  /** A worker with all of its actions slowed down by a factor. */
  readonly slowWorker?: { readonly worker: number; readonly factor: number } | undefined;
  /** Steps to simulate for each choice, with different draws; the same draws for all choices. */
  readonly draws?: number | undefined;
}

/** A schedule under varying times. */
export interface Trial {
  /** The simulated schedule. */
  readonly schedule: Schedule;
  /** Message-driven: micro-batches in flight; absent for 1F1B. */
  readonly pipelineLimit?: number;
  /** Message-driven: the message handled first; absent for 1F1B. */
  readonly order?: MailboxOrder;
  /** The number of simulated steps. */
  readonly count: number;
  /** The mean time of a step. */
  readonly mean: number;
  /** The shortest step. */
  readonly least: number;
  /** The longest step. */
  readonly most: number;
}

/**
 * Assumptions about an unknown machine: actions take up to 1.5 times their least time, a message a fifth of
 * a forward. (On a machine without variation 1F1B would suffice.)
 */
export const ASSUMED: { readonly jitter: number; readonly send: number } = {
  jitter: 0.5,
  send: 0.2,
};

/** Steps simulated for each limit and order, unless large steps require fewer. */
const DRAWS = 32;

/** The most actions simulated in all, with at least one step for each limit and order. */
const ACTIONS_MAX = 2 ** 20;

/** The fraction by which the mean step may be longer with a smaller limit, which holds less. */
const WORTH = 0.01;

const ORDERS: readonly MailboxOrder[] = ["fifo", "backward-first"];

/**
 * Simulates steps of 1F1B and of message-driven scheduling with several limits and both orders, all
 * with the same draws: limits of 1, 1 1/4, 1 1/2, 1 3/4 and 2 times the workers, at most
 * `activationLimit` and the micro-batches; a limit or order that is given and not `auto` stays.
 *
 * @throws {RangeError} if an option or a variation is not usable.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { tryMailboxes } from "@troupe/troupe/schedules";
 *
 * const trials = tryMailboxes({ workers: 2, microBatches: 8, pipelineLimit: 2, order: "fifo" });
 * strictEqual(trials.length, 2); // 1F1B, and the given one
 * ```
 */
export function tryMailboxes(
  asked: AskedMailbox,
  { costs = {}, edges = [], jitter = ASSUMED.jitter, slowWorker, draws }: TimeVariation = {},
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

/** Returns true if the value is `auto` or not given. */
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

function slowdownsOf(workers: number, slow: TimeVariation["slowWorker"]): number[] {
  const { worker, factor } = slow ?? { worker: 0, factor: 1 };
  if (worker >= 0 && worker < workers) return new Array(workers).fill(1).with(worker, factor);
  throw new RangeError(
    `Cannot simulate a slow worker: it must be from 0 to ${workers - 1}, received ${worker}`,
  );
}

/**
 * Chooses a limit and an order from trials: the smallest limit whose mean step is within 1 % of the
 * shortest mean. The result depends only on the trials, so every rank chooses the same.
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
