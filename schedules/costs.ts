/** What the actions of a schedule cost: durations for each stage, and the time of a message. */

import { pipelineWorkers, type Schedule } from "./schedule.ts";
import { type Way, waysOf } from "./skip_edges.ts";

/**
 * A cost for 1/P of the model (P workers of a pipeline), of which a stage takes its share; or, for
 * stages that are not alike, a cost for each of any number of slices of the model, of which a stage
 * takes the sum of its own.
 */
export type Cost = number | readonly number[];

/** Durations, all in one unit of the caller's choice. */
export interface Costs {
  /** A forward; 1 unless given. */
  readonly forward?: Cost | undefined;
  /** A full backward; the sum of its two parts where they are given, else 2. */
  readonly backward?: Cost | undefined;
  /** The backward for the input; half of the full backward unless given. */
  readonly input?: Cost | undefined;
  /** The backward for the weights; what is left of the full backward unless given. */
  readonly weight?: Cost | undefined;
  /** A recomputation; that of a forward unless given. */
  readonly recompute?: Cost | undefined;
  /** A forward and a full backward that overlap; the sum of both unless given. */
  readonly overlap?: number | undefined;
  /**
   * A message between two workers, which keeps neither of them busy; 0 unless given. An array
   * has the time from each slice of the model to the next.
   */
  readonly send?: Cost | undefined;
  /**
   * A value or its gradient between two workers over a skip edge: of all edges, or of each in their
   * order. As the message from the stage that makes it to the next one unless given.
   */
  readonly skip?: number | readonly number[] | undefined;
}

/** The durations of each stage of one schedule. */
export interface StageTimes {
  /** For each kind of action (F, B, I, W, R) and each stage, of a whole micro-batch. */
  readonly durations: readonly Float64Array[];
  /** What a forward and a backward take when they overlap; undefined for the sum of both. */
  readonly overlap: number | undefined;
  /**
   * The time of a message from each stage to the next, and back; behind them, of a message over each
   * way of the skip edges.
   */
  readonly send: Float64Array;
}

/**
 * Works out what each stage of a schedule costs.
 *
 * @throws {RangeError} if a cost is negative or not finite, if the parts of a backward do not add
 * up to the whole, or if the model is cut into slices that the stages cannot share.
 *
 * @example A stage is half of a worker's share where each worker holds two
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { createSchedule, stageTimes } from "@troupe/troupe/schedules";
 *
 * const schedule = createSchedule("gpipe", { workers: 2, microBatches: 2 });
 * const { durations } = stageTimes(schedule, { forward: [1, 2, 3, 4] });
 * deepStrictEqual([...durations[0] ?? []], [3, 7]);
 * ```
 */
export function stageTimes(schedule: Schedule, costs: Costs = {}): StageTimes {
  const share = (name: string, cost: Cost) => stageShares(schedule, name, cost);
  const forward = share("forward", costs.forward ?? 1);
  const recompute = costs.recompute === undefined ? forward : share("recompute", costs.recompute);
  const { backward, input, weight } = backwardParts(costs, share);
  const scale = pipelineWorkers(schedule) / schedule.stages;
  if (costs.overlap !== undefined) checkCost("overlap", costs.overlap);
  return {
    durations: [forward, backward, input, weight, recompute],
    overlap: costs.overlap === undefined ? undefined : costs.overlap * scale,
    send: withSkips(schedule, sendTimes(schedule, costs.send ?? 0), costs.skip),
  };
}

/** Of the whole backward and its two parts, works out those that were not given. */
function backwardParts(
  costs: Costs,
  share: (name: string, cost: Cost) => Float64Array,
): { backward: Float64Array; input: Float64Array; weight: Float64Array } {
  const given = (name: "backward" | "input" | "weight") =>
    costs[name] === undefined ? undefined : share(name, costs[name]);
  const whole = given("backward");
  let input = given("input");
  let weight = given("weight");
  if (whole === undefined) {
    input ??= share("input", 1);
    weight ??= share("weight", 1);
    return { backward: input.map((time, s) => time + (weight?.[s] ?? 0)), input, weight };
  }
  input ??= whole.map((time, s) => weight === undefined ? time / 2 : time - (weight[s] ?? 0));
  weight ??= whole.map((time, s) => time - (input?.[s] ?? 0));
  for (let s = 0; s < whole.length; s++) {
    const [b, i, w] = [whole[s] ?? 0, input[s] ?? 0, weight[s] ?? 0];
    if (i >= 0 && w >= 0 && Math.abs(b - i - w) <= 1e-9 * b) continue;
    throw new RangeError(
      `Cannot use these costs: backward must be the sum of input and weight, ` +
        `received ${b}, ${i} and ${w} for stage ${s}`,
    );
  }
  return { backward: whole, input, weight };
}

/** What each stage takes of something that is given of a model; see {@linkcode Cost}. */
export function stageShares(schedule: Schedule, name: string, cost: Cost): Float64Array {
  const { stages } = schedule;
  if (typeof cost === "number") {
    checkCost(name, cost);
    return new Float64Array(stages).fill(cost * pipelineWorkers(schedule) / stages);
  }
  const slices = slicesOfStage(schedule, name, cost);
  return Float64Array.from(
    { length: stages },
    (_, s) => cost.slice(s * slices, (s + 1) * slices).reduce((sum, time) => sum + time, 0),
  );
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

/** Adds the ways over skip edges: values that take one together are there when the last of them is. */
function withSkips(schedule: Schedule, send: Float64Array, skip: Costs["skip"]): Float64Array {
  const times = skipTimes(schedule, send, skip);
  if (times.length === 0) return send;
  const ways = waysOf(schedule.stages, schedule.edges);
  return Float64Array.of(...send, ...ways.map((way) => latest(way, times)));
}

/** The time of a way: that of the value that takes longest. */
export function latest({ edges }: Way, times: readonly number[]): number {
  return edges.reduce((most, edge) => Math.max(most, times[edge] ?? 0), 0);
}

/** The time of a message over each skip edge; of a chain none. */
export function skipTimes(
  { name, edges }: Schedule,
  send: Float64Array,
  skip: Costs["skip"],
): number[] {
  if (edges === undefined) return [];
  if (typeof skip !== "object") return edges.map(({ from }) => checked(skip ?? send[from]!));
  if (skip.length === edges.length) return skip.map(checked);
  throw new RangeError(
    `Cannot use these costs: skip must be of the ${edges.length} skip edges of ${name}, ` +
      `received ${skip.length}`,
  );
}

function checked(skip: number): number {
  checkCost("skip", skip);
  return skip;
}

function slicesOfStage(schedule: Schedule, name: string, cost: readonly number[]): number {
  for (const time of cost) checkCost(name, time);
  const slices = cost.length / schedule.stages;
  if (Number.isInteger(slices) && slices > 0) return slices;
  throw new RangeError(
    `Cannot use these costs: the length of ${name} must be a multiple of the ` +
      `${schedule.stages} stages of ${schedule.name}, received ${cost.length}`,
  );
}

function checkCost(name: string, cost: number): void {
  if (Number.isFinite(cost) && cost >= 0) return;
  throw new RangeError(
    `Cannot use these costs: ${name} must be a finite number, at least 0, received ${cost}`,
  );
}
