/** Costs of the actions of a schedule: durations for each stage, and times of messages. */

import { assertInput, refusal } from "./errors.ts";
import { pipelineWorkers, type Schedule } from "./schedule.ts";
import { type SkipRoute, skipRoutes } from "./skip_edges.ts";

/**
 * A cost for 1/P of the model (P workers of a pipeline), of which a stage takes its share; or, if
 * stages differ, a cost for each of any number of slices of the model, of which a stage takes the sum
 * over its slices.
 */
export type Cost = number | readonly number[];

/** Durations, all in one unit of the caller's choice. */
export interface Costs {
  /** A forward. Default 1. */
  readonly forward?: Cost | undefined;
  /** A full backward; unless given, the sum of its two parts, or 2. */
  readonly backward?: Cost | undefined;
  /** The backward for the input. Default: half of the full backward. */
  readonly input?: Cost | undefined;
  /** The backward for the weights. Default: the rest of the full backward. */
  readonly weight?: Cost | undefined;
  /** A recomputation. Default: that of a forward. */
  readonly recompute?: Cost | undefined;
  /** A forward and a full backward that overlap. Default: the sum of both. */
  readonly overlap?: number | undefined;
  /**
   * A message between two workers, which keeps neither of them busy; 0 unless given. An array
   * has the time from each slice of the model to the next.
   */
  readonly send?: Cost | undefined;
  /**
   * A value or its gradient between two workers over a skip edge: of all edges, or of each in their
   * order. Unless given, that of the message from the stage that makes the value to the next stage.
   */
  readonly skip?: number | readonly number[] | undefined;
}

/** Far above any cost, and low enough that sums stay finite. */
const COST_MAX = 1e18;

/** The operation in refusals of costs. */
const USE = "use these costs";

/**
 * Computes the durations of each stage of a schedule.
 *
 * @throws {RangeError} if a cost is negative or not finite, if the parts of a backward do not add
 * up to the whole, or if the model is cut into slices that the stages cannot share.
 *
 * @example A stage is half of a worker's share if each worker holds two
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { createSchedule } from "@troupe/troupe/schedules";
 *
 * const schedule = createSchedule("gpipe", { workers: 2, microBatches: 2 });
 * const { durations } = stageTimes(schedule, { forward: [1, 2, 3, 4] });
 * deepStrictEqual([...durations[0] ?? []], [3, 7]);
 * ```
 */
export function stageTimes(schedule: Schedule, costs: Costs = {}) {
  const share = (name: string, cost: Cost) => stageShares(schedule, name, cost);
  const forward = share("forward", costs.forward ?? 1);
  const recompute = share("recompute", costs.recompute ?? costs.forward ?? 1);
  const { backward, input, weight } = backwardParts(costs, share);
  const scale = pipelineWorkers(schedule) / schedule.stages;
  if (costs.overlap !== undefined) checkCost("overlap", costs.overlap);
  return {
    /** For each kind of action (F, B, I, W, R) and each stage, the time of a whole micro-batch. */
    durations: [forward, backward, input, weight, recompute],
    /** The time of a forward and a backward that overlap; undefined for the sum of both. */
    overlap: costs.overlap === undefined ? undefined : costs.overlap * scale,
    /**
     * The time of a message from each stage to the next, and back; after these, of a message over each
     * skip route.
     */
    send: withSkips(schedule, sendTimes(schedule, costs.send ?? 0), costs.skip),
  };
}

/** The durations of each stage of one schedule. */
export type StageTimes = ReturnType<typeof stageTimes>;

/** Computes those of a full backward and its two parts that are not given. */
function backwardParts(
  costs: Costs,
  share: (name: string, cost: Cost) => Float64Array,
): { backward: Float64Array; input: Float64Array; weight: Float64Array } {
  const given = (name: "backward" | "input" | "weight") =>
    costs[name] === undefined ? undefined : share(name, costs[name]);
  const whole = given("backward");
  let input = given("input"), weight = given("weight");
  if (whole === undefined) {
    input ??= share("input", 1);
    weight ??= share("weight", 1);
    return { backward: input.map((time, s) => time + weight![s]!), input, weight };
  }
  input ??= whole.map((time, s) => weight === undefined ? time / 2 : time - weight[s]!);
  weight ??= whole.map((time, s) => time - input![s]!);
  for (let s = 0; s < whole.length; s++) {
    const [b, i, w] = [whole[s]!, input[s]!, weight[s]!];
    const isSum = i >= 0 && w >= 0 && Math.abs(b - i - w) <= 1e-9 * b;
    const received = `${b}, ${i} and ${w} for stage ${s}`;
    assertInput(isSum, USE, "backward must be the sum of input and weight", received);
  }
  return { backward: whole, input, weight };
}

/** The share of each stage in a cost of the model. */
export function stageShares(schedule: Schedule, name: string, cost: Cost): Float64Array {
  const { stages } = schedule;
  if (typeof cost === "number") {
    checkCost(name, cost);
    return new Float64Array(stages).fill(cost * pipelineWorkers(schedule) / stages);
  }
  const slices = slicesOfStage(schedule, name, cost), shares = new Float64Array(stages);
  cost.forEach((time, slice) => shares[Math.floor(slice / slices)]! += time);
  return shares;
}

function sendTimes(schedule: Schedule, cost: Cost): Float64Array {
  const { stages } = schedule;
  if (typeof cost === "number") {
    checkCost("send", cost);
    return new Float64Array(stages).fill(cost);
  }
  const slices = slicesOfStage(schedule, "send", cost);
  return Float64Array.from({ length: stages }, (_, s) => cost[(s + 1) * slices - 1] ?? 0);
}

/** Adds the times of skip routes: values that travel together arrive with the last of them. */
function withSkips(schedule: Schedule, send: Float64Array, skip: Costs["skip"]): Float64Array {
  const times = skipTimes(schedule, send, skip);
  if (times.length === 0) return send;
  const routes = skipRoutes(schedule.stages, schedule.edges);
  return Float64Array.of(...send, ...routes.map((route) => latest(route, times)));
}

/** The time of a route: that of its slowest value. */
export function latest({ edges }: SkipRoute, times: readonly number[]): number {
  return edges.reduce((most, edge) => Math.max(most, times[edge] ?? 0), 0);
}

/** The time of a message over each skip edge; empty for a chain. */
export function skipTimes(
  { name, edges }: Schedule,
  send: Float64Array,
  skip: Costs["skip"],
): number[] {
  if (edges === undefined) return [];
  const given = typeof skip === "object" ? skip : edges.map(({ from }) => skip ?? send[from]!);
  for (const time of given) checkCost("skip", time);
  const must = `skip must be of the ${edges.length} skip edges of ${name}`;
  assertInput(given.length === edges.length, USE, must, given.length);
  return [...given];
}

function slicesOfStage(schedule: Schedule, name: string, cost: readonly number[]): number {
  for (const time of cost) checkCost(name, time);
  const slices = cost.length / schedule.stages;
  if (Number.isInteger(slices) && slices > 0) return slices;
  const of = `the ${schedule.stages} stages of ${schedule.name}`;
  throw refusal(USE, `the length of ${name} must be a multiple of ${of}`, cost.length);
}

function checkCost(name: string, cost: number): void {
  const isCost = cost >= 0 && cost <= COST_MAX;
  assertInput(isCost, USE, `${name} must be a number from 0 to ${COST_MAX}`, cost);
}
