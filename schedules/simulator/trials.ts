/**
 * Trials of schedules by simulation in scenarios, the ways in which times of actions, workers and
 * micro-batches vary, and a choice among them.
 */

import {
  type MicroBatchLoad,
  modelOfCosts,
  type StageModel,
  type StepModel,
  uniform,
} from "./model.ts";
import { activationChanges, KIND } from "../action_list.ts";
import { messageDriven } from "../built_in/message_driven.ts";
import { createSchedule } from "../built_in/registry.ts";
import type { Cost, Costs } from "../costs.ts";
import type { ScheduleOptions } from "../define.ts";
import { assertInput, ifServed, refusal } from "../errors.ts";
import { MAILBOX_ORDERS, type MailboxOrder } from "../policies.ts";
import {
  edgesOfParts,
  type ListedSchedule,
  pipelineWorkers,
  type Schedule,
  withEdges,
  withPolicy,
} from "../schedule.ts";
import type { SkipEdge } from "../skip_edges.ts";
import { simulateStep } from "./simulate.ts";

/** A way in which times vary, with the amounts of its law. */
export interface Scenario {
  /** The law and its amounts as text, such as `uniform:0.1`. */
  readonly text: string;
  readonly law: keyof typeof SCENARIO_LAWS;
  readonly amounts: readonly number[];
}

/** The laws: the amounts that each takes, the values that these may have, and what it varies. */
export const SCENARIO_LAWS = {
  none: { amounts: 0, most: 0, help: "" },
  uniform: { amounts: 1, most: 1, help: ":A (each F, I and W times a number from 1 - A to 1 + A)" },
  above: {
    amounts: 1,
    most: Infinity,
    help: ":A (each F, I and W times a number from 1 to 1 + A)",
  },
  lognormal: {
    amounts: 1,
    most: Infinity,
    help: ":S (each F, I and W times e^(S z), z from the standard normal distribution)",
  },
  slow: {
    amounts: 1,
    most: Infinity,
    help: ":T (one worker, in each draw the next one, takes T times as long)",
  },
  stages: { amounts: 1, most: 1, help: ":A (each stage times a number from 1 - A to 1 + A)" },
  multimodal: {
    amounts: 2,
    most: Infinity,
    help: ":PxT (of the micro-batches a share P has T times the work, messages and bytes)",
  },
  lengths: {
    amounts: 1,
    most: Infinity,
    help: ":R (lengths L log-uniform from 1/sqrt(R) to sqrt(R): W, messages and bytes times L, " +
      "F times 3/4 L + 1/4 L^2, I times 1/2 L + 1/2 L^2)",
  },
} as const;

/** Reads a scenario such as `none`, `lognormal:0.3` or `multimodal:0.2x3`; undefined if invalid. */
export function readScenario(text: string): Scenario | undefined {
  const [name = "", given] = text.split(":"), amounts = given?.split("x").map(Number) ?? [];
  if (!Object.hasOwn(SCENARIO_LAWS, name)) return undefined;
  const law = name as Scenario["law"], { amounts: count, most } = SCENARIO_LAWS[law];
  const isUsable = (amount: number) => amount > 0 && amount <= most && Number.isFinite(amount);
  if (amounts.length !== count || !amounts.every(isUsable)) return undefined;
  if (law === "multimodal" && amounts[0]! > 1 || law === "stages" && amounts[0] === 1) {
    return undefined;
  }
  return { text, law, amounts };
}

/** A step with the variation of a scenario in one draw. */
export function withScenario(model: StepModel, scenario: Scenario, seed: number): StepModel {
  const { law, amounts: [amount = 0] } = scenario, { workers } = model.schedule;
  const { slowdowns = new Array<number>(workers).fill(1) } = model;
  switch (law) {
    case "none":
      return model;
    case "uniform":
    case "above":
    case "lognormal":
      return { ...model, jitter: { law: law === "uniform" ? "around" : law, amount, seed } };
    case "slow":
      return {
        ...model,
        slowdowns: slowdowns.map((s, w) => w === seed % workers ? s * amount : s),
      };
    case "stages": {
      const stages = model.stages.map((one, stage) => {
        const draw = uniform(seed, 1, { kind: "F", microBatch: 0 }, stage);
        return timesFactor(one, 1 + amount * (2 * draw - 1));
      });
      return { ...model, stages };
    }
    case "multimodal":
    case "lengths":
      return { ...model, loads: loadsOf(scenario, model.schedule.microBatches, seed) };
  }
}

/** The times of the actions of a stage. */
const ACTION_TIMES = ["forwardMs", "backwardMs", "inputMs", "weightMs", "recomputeMs"] as const;

/** A stage whose actions take a factor of their times. */
function timesFactor(stage: StageModel, factor: number): StageModel {
  const times = ACTION_TIMES.map((name) => [name, stage[name] && stage[name] * factor]);
  return { ...stage, ...Object.fromEntries(times) };
}

/** The loads of micro-batches in one draw of a scenario; undefined if all are equal. */
export function loadsOf(
  { law, amounts: [amount = 0, factor = 1] }: Scenario,
  microBatches: number,
  seed: number,
): MicroBatchLoad[] | undefined {
  if (law !== "multimodal" && law !== "lengths") return undefined;
  return Array.from({ length: microBatches }, (_, microBatch) => {
    const draw = uniform(seed, 1, { kind: "F", microBatch }, 0);
    if (law === "multimodal") return alike(draw < amount ? factor : 1);
    const length = amount ** (draw - 0.5), square = length ** 2;
    return {
      ...alike(length),
      F: 0.75 * length + 0.25 * square,
      I: 0.5 * length + 0.5 * square,
    };
  });
}

const alike = (load: number): MicroBatchLoad => ({
  F: load,
  I: load,
  W: load,
  send: load,
  bytes: load,
});

/** A schedule to try: a message-driven one, or one with lists. */
export interface Candidate {
  /** Its name in reports. */
  readonly name: string;
  /** A message-driven candidate: its options. */
  readonly options?: Omit<ScheduleOptions, "workers" | "microBatches"> | undefined;
  /** Another candidate: the name of the schedule. */
  readonly listed?: string | undefined;
  /** True if a later action of the list runs when the next one is not ready. */
  readonly isElastic?: boolean | undefined;
}

/** The conditions of trials. */
export interface TrialOptions {
  /** The times of actions without variation. */
  readonly costs?: Costs | undefined;
  /** The times of messages, each of them with each scenario; that of the costs, or 0.2, unless given. */
  readonly sends?: readonly Cost[] | undefined;
  /** Skip edges between P equal parts of the model. Default: none. */
  readonly edges?: readonly SkipEdge[] | undefined;
  /** Scenarios such as `uniform:0.1`; `above:0.5` unless given. */
  readonly scenarios?: readonly string[] | undefined;
  /** A worker with all of its actions slowed down by a factor. */
  readonly slowWorker?: { readonly worker: number; readonly factor: number } | undefined;
  /** Steps to simulate for each candidate, with different draws; the same draws for all of them. */
  readonly draws?: number | undefined;
  /** The seed of the first draw. Default 0. */
  readonly seed?: number | undefined;
}

/** A schedule in one scenario. */
export interface Trial extends Candidate {
  /** The schedule, for the last draw. */
  readonly schedule: Schedule;
  /** The scenario. */
  readonly scenario: string;
  /** The time of a message. */
  readonly send: Cost;
  /** The number of simulated steps. */
  readonly count: number;
  /** The mean time of a step. */
  readonly mean: number;
  /** The shortest step. */
  readonly least: number;
  /** The longest step. */
  readonly most: number;
  /** Speed relative to 1F1B on the same draw, over all draws. */
  readonly speedup: { readonly mean: number; readonly deviation: number; readonly least: number };
  /** The most activations that a worker held in a draw, in those of 1/P of the largest micro-batch. */
  readonly peakActivations: number;
  /** The most micro-batches of a stage between I and W in a draw. */
  readonly peakBacklog: number;
  /** The sum for a worker: what I keeps for W is about half of what F keeps, in sets for each stage. */
  readonly memory: number;
}

/** Assumptions about an unknown machine: actions take up to 1.5 times their least time. */
export const ASSUMED: { readonly jitter: number; readonly send: number } = {
  jitter: 0.5,
  send: 0.2,
};

/** Values kept by I for W, relative to the values kept by F: 0.4 to 0.7 for blocks of GPT-2. */
const FOR_WEIGHTS = 0.5;

/** Steps simulated for each candidate, unless large steps require fewer. */
const DRAWS = 32;

/** The most actions simulated in all, with at least one step for each candidate. */
const ACTIONS_MAX = 2 ** 20;

/** The fraction by which the mean step may be longer with a smaller limit, which holds less. */
const WORTH = 0.01;

/**
 * Reads a candidate: `fifo`, `backward-first`, `bf` or `bfw`, with `:M` for a limit of activations
 * (`1.5D` is 1.5 times the workers); `bf` and `bfw` with `-v` for two stages on each worker, `bfw` with
 * `:M:K` for one of the backlog; or the name of a schedule with lists, with `:elastic` for later actions early. Undefined if it is
 * none of them.
 */
export function readCandidate(
  name: string,
  workers: number,
  shared: Pick<ScheduleOptions, "limitBy" | "weightBacklog"> = {},
): Candidate | undefined {
  const [first = "", ...more] = name.split(":");
  const [, order, v] = /^(fifo|backward-first|bf|bfw)(-v)?$/.exec(first) ?? [];
  if (order === undefined) {
    const isElastic = more[0] === "elastic";
    return more.length > Number(isElastic) ? undefined : { name, listed: first, isElastic };
  }
  const isSplit = order === "bfw", isReady = isSplit || order === "bf";
  const isRead = more.length <= (isSplit ? 2 : 1) && (isReady || v === undefined);
  if (!isRead || !more.every((one) => /^\d{1,9}(\.\d+)?D?$/.test(one))) return undefined;
  const numbers = more.map((one) => one.endsWith("D") ? workers * parseFloat(one) : Number(one));
  const [limit, weightBacklog = shared.weightBacklog] = numbers;
  const limits = isReady
    ? { activationLimit: limit, limitBy: shared.limitBy, ...v && { chunks: 2 } }
    : { pipelineLimit: limit };
  const options = { order: order as MailboxOrder, ...limits, ...isSplit && { weightBacklog } };
  return { name, options };
}

/** Makes the schedule of a candidate. */
function scheduleOf(
  { listed, options, isElastic }: Candidate,
  size: Pick<ScheduleOptions, "workers" | "microBatches">,
  sizes: readonly number[] | undefined,
): Schedule {
  if (listed === undefined) return messageDriven.create({ ...size, ...options, sizes });
  const made = createSchedule(listed, size), must = `it must have ${size.workers} workers`;
  assertInput(made.workers === size.workers, `try ${listed}`, must, made.workers);
  return isElastic ? withPolicy(made, "elastic") : made;
}

/**
 * Simulates steps of 1F1B and of candidates in each scenario with each time of messages, all with the
 * same draws.
 *
 * @returns for each scenario and time of messages 1F1B, then the candidates.
 * @throws {RangeError} if an option or a scenario is not usable.
 *
 * @example
 * ```ts
 * import { ok } from "node:assert/strict";
 * import { tryCandidates } from "@troupe/troupe/schedules";
 *
 * const candidates = [{ name: "bfw", options: { order: "bfw" } }] as const;
 * const size = { workers: 4, microBatches: 16 };
 * const [, bfw] = tryCandidates(candidates, size, { scenarios: ["lognormal:0.3"] });
 * ok(bfw!.speedup.least > 1 && bfw!.peakActivations <= 4 && bfw!.peakBacklog <= 2);
 * ```
 */
export function tryCandidates(
  candidates: readonly Candidate[],
  { workers, microBatches }: Pick<ScheduleOptions, "workers" | "microBatches">,
  options: TrialOptions = {},
): Trial[] {
  const size = { workers, microBatches };
  const { costs = {}, sends = [costs.send ?? ASSUMED.send] } = options;
  const scenarios = (options.scenarios ?? [`above:${ASSUMED.jitter}`]).map(scenarioOf);
  const known = "1f1b", others = candidates.filter(({ name }) => name !== known);
  const all = [{ name: known, listed: known }, ...others];
  const actions = 2 * size.workers * size.microBatches * all.length;
  const most = Math.max(1, Math.min(DRAWS, Math.floor(ACTIONS_MAX / actions)));
  const { draws: count = most, seed = 0 } = options;
  return scenarios.flatMap((scenario) =>
    sends.flatMap((send) => {
      const conditions = { ...options, costs: { ...costs, send }, count, seed, scenario };
      const [known, ...others] = all.map((one) => tryOne(one, size, conditions));
      return [known!, ...others].map(({ times, ...trial }) => ({
        ...trial,
        scenario: scenario.text,
        send,
        speedup: spreadOf(times.map((time, i) => known!.times[i]! / time)),
      }));
    })
  );
}

function scenarioOf(text: string): Scenario {
  const scenario = readScenario(text);
  if (scenario) return scenario;
  throw refusal("try schedules", "a scenario must be a law and its amounts", text);
}

function tryOne(
  candidate: Candidate,
  size: Pick<ScheduleOptions, "workers" | "microBatches">,
  { costs, edges = [], count, seed, scenario, slowWorker }: TrialOptions & {
    readonly costs: Costs;
    readonly count: number;
    readonly seed: number;
    readonly scenario: Scenario;
  },
) {
  const times: number[] = [], peaks: ReturnType<typeof peaksOf>[] = [];
  let schedule: Schedule | undefined;
  for (let draw = seed; draw < seed + count; draw++) {
    const bytes = loadsOf(scenario, size.microBatches, draw)?.map((load) => load.bytes);
    const largest = Math.max(...bytes ?? [1]), sizes = bytes?.map((one) => one / largest);
    const chain = scheduleOf(candidate, size, sizes), { stages } = chain;
    schedule = withEdges(chain, edgesOfParts(edges, { parts: size.workers, stages }));
    const slowdowns = slowdownsOf(size.workers, slowWorker);
    const model = { ...modelOfCosts(schedule, costs), slowdowns };
    const step = simulateStep(withScenario(model, scenario, draw)), { makespanMs } = step;
    const isTime = makespanMs > 0 && makespanMs < Infinity;
    assertInput(isTime, "try schedules", "a step must take finite time, above 0", makespanMs);
    times.push(makespanMs);
    peaks.push(peaksOf(step.schedule, sizes));
  }
  const { mean } = spreadOf(times), least = Math.min(...times), most = Math.max(...times);
  const largest = (what: keyof typeof peaks[number]) => Math.max(...peaks.map((one) => one[what]));
  return {
    ...{ ...candidate, schedule: schedule!, times, count, mean, least, most },
    peakActivations: largest("activations"),
    peakBacklog: largest("backlog"),
    memory: largest("memory"),
  };
}

function spreadOf(values: readonly number[]) {
  const mean = values.reduce((sum, one) => sum + one, 0) / values.length;
  const variance = values.reduce((sum, one) => sum + (one - mean) ** 2, 0) / values.length;
  return { mean, deviation: Math.sqrt(variance), least: Math.min(...values) };
}

/** The most that a worker held in a step, of activations and between I and W. */
function peaksOf(schedule: ListedSchedule, sizes: readonly number[] | undefined) {
  const share = pipelineWorkers(schedule) / schedule.stages;
  let activations = 0, backlog = 0, memory = 0;
  for (const list of schedule.lists) {
    const changes = activationChanges(list), owed = new Map<number, number>();
    const mostOwed = new Map<number, number>();
    let live = 0, most = 0;
    for (let part = 0; part < list.partCount; part++) {
      const kind = list.kindAt(part), stage = list.stageAt(part);
      live += changes[part]! / list.slices * share * (sizes?.[list.microBatchAt(part)] ?? 1);
      most = Math.max(most, live);
      const change = kind === KIND.I ? 1 : kind === KIND.W ? -1 : 0;
      const left = (owed.get(stage) ?? 0) + change / list.slices;
      owed.set(stage, left);
      mostOwed.set(stage, Math.max(mostOwed.get(stage) ?? 0, left));
    }
    const sets = mostOwed.values().reduce((sum, one) => sum + one, 0);
    activations = Math.max(activations, most);
    backlog = Math.max(backlog, ...mostOwed.values());
    memory = Math.max(memory, most + FOR_WEIGHTS * share * sets);
  }
  return { activations, backlog, memory };
}

function slowdownsOf(workers: number, slow: TrialOptions["slowWorker"]): number[] {
  const { worker, factor } = slow ?? { worker: 0, factor: 1 };
  const isWorker = worker >= 0 && worker < workers, must = `it must be from 0 to ${workers - 1}`;
  assertInput(isWorker, "simulate a slow worker", must, worker);
  return new Array(workers).fill(1).with(worker, factor);
}

/** Options of a message-driven schedule, some of which are `auto`: chosen by trials. */
type AskedMailbox =
  & Omit<ScheduleOptions, "pipelineLimit" | "order">
  & {
    /** Micro-batches in flight at a time. */
    readonly pipelineLimit?: number | "auto" | undefined;
    /** The hint. */
    readonly order?: MailboxOrder | "auto" | undefined;
  };

/** Names of the candidates that `--schedule auto` compares with 1F1B. */
const SCHEDULES = "bfw bfw:1.5D bfw:2D zb-h1 zb-h2 bfw-v bfw-v:1.5D bfw-v:2D zb-v v-half v-min"
  .split(" ");

/** Returns the candidates for `--schedule auto` that serve these workers and micro-batches. */
export function scheduleCandidates(
  size: Pick<ScheduleOptions, "workers" | "microBatches">,
): Candidate[] {
  return SCHEDULES.map((name) => readCandidate(name, size.workers)!)
    .filter((one) => ifServed(() => scheduleOf(one, size, undefined)) !== undefined);
}

/**
 * The candidates for what is `auto`: limits of 1, 1 1/4, 1 1/2, 1 3/4 and 2 times the workers, at most
 * `activationLimit` and the micro-batches, and all orders that serve the other options.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 *
 * const size = { workers: 8, microBatches: 32 };
 * const asked = { ...size, pipelineLimit: "auto", order: "fifo" } as const;
 * const { options } = chooseTrial(tryCandidates(mailboxCandidates(asked), size));
 * deepStrictEqual(options?.pipelineLimit, 16);
 * ```
 */
export function mailboxCandidates(asked: AskedMailbox): Candidate[] {
  const { workers, microBatches, activationLimit, pipelineLimit = workers } = asked;
  const { order = workers > 1 ? "bfw" : "fifo" } = asked;
  const most = Math.max(1, Math.floor(Math.min(microBatches, activationLimit ?? Infinity)));
  const limits = pipelineLimit === "auto"
    ? [4, 5, 6, 7, 8].map((quarters) => Math.min(most, Math.ceil(workers * quarters / 4)))
    : [pipelineLimit];
  const { chunks, weightBacklog, limitBy } = asked;
  const others = { activationLimit, chunks, weightBacklog, limitBy };
  const serves = (order: MailboxOrder) =>
    ifServed(() => messageDriven.create({ workers, microBatches, ...others, order })) !== undefined;
  const isTried = (one: MailboxOrder) => one === "bfw" || serves(one);
  const orders = order === "auto" ? MAILBOX_ORDERS.filter(isTried) : [order];
  return [...new Set(limits)].flatMap((limit) =>
    orders.map((order) => ({
      name: `${order}:${limit}`,
      options: { pipelineLimit: limit, order, ...others },
    }))
  );
}

/**
 * Chooses a message-driven candidate from trials: the smallest limit whose mean step is within 1 % of
 * the shortest mean. The result depends only on the trials, so every rank chooses the same.
 */
export function chooseTrial(trials: readonly Trial[]): Trial {
  const free = trials.filter(({ options }) => options !== undefined);
  const best = Math.min(...free.map(({ mean }) => mean));
  const limitOf = ({ options }: Trial) => options?.pipelineLimit ?? 0;
  return free.filter(({ mean }) => mean <= best * (1 + WORTH)).reduce((chosen, one) =>
    limitOf(one) < limitOf(chosen) || limitOf(one) === limitOf(chosen) && one.mean < chosen.mean
      ? one
      : chosen
  );
}
