/** Lower bounds of the time of a step, for any order of its actions. */

import { halvesOf, KIND } from "../action_list.ts";
import { recomputedStages } from "../analysis/recomputation.ts";
import type { Costs } from "../costs.ts";
import type { Schedule } from "../schedule.ts";
import { type SkipRoute, stageRoutes } from "../skip_edges.ts";
import { partLimits, type Workload, workloadOf } from "./limits.ts";

/**
 * A time that no order of the schedule's micro-batches can beat on the schedule's own placement, within
 * a limit of activations for each worker. Orders are of forwards and of whole or split backwards; with
 * halves if the schedule has them; each forward may overlap with a backward if the costs have a time
 * for that. If the schedule recomputes, each of its recomputed stages recomputes or runs each backward
 * directly after its forward. Another placement may have a faster order.
 *
 * @param activationLimit In micro-batches of 1/P of the model; unlimited unless given.
 *
 * @example 1F1B is the best order of its placement while backwards are whole
 * ```ts
 * import { ok } from "node:assert/strict";
 * import { analyze, createSchedule, makespanLowerBound } from "@troupe/troupe/schedules";
 *
 * const schedule = createSchedule("1f1b", { workers: 4, microBatches: 8 });
 * ok(makespanLowerBound(schedule) <= analyze(schedule).makespan);
 * ```
 */
export function makespanLowerBound(
  schedule: Schedule,
  costs: Costs = {},
  activationLimit = Infinity,
): number {
  const { slices = 1 } = schedule;
  const limits = partLimits(schedule, activationLimit).map((limit) => limit * slices);
  const parts = halvesOf(schedule);
  return lowerBound(inSlices(workloadOf(schedule, costs), slices), limits, {
    parts,
    recomputed: recomputedStages(schedule),
  });
}

/** The workload with each slice as a smaller micro-batch: waits between slices only add to it. */
function inSlices(load: Workload, slices: number): Workload {
  if (slices === 1) return load;
  const { microBatches, pipelineOf, times: { durations, send, overlap } } = load;
  const share = (times: Float64Array) => times.map((time) => time / slices);
  return {
    ...load,
    microBatches: microBatches * slices,
    pipelineOf: pipelineOf.flatMap((pipeline) => new Array<number>(slices).fill(pipeline)),
    times: {
      durations: durations.map(share),
      send: share(send),
      overlap: overlap === undefined ? undefined : overlap / slices,
    },
  };
}

/** The orders for which a bound holds. */
interface BoundedOrders {
  /** The parts that backwards may come in: a gradient then travels one part at a time. */
  readonly parts?: number;
  /** The stages that keep only their inputs and recompute. */
  readonly recomputed?: ReadonlySet<number>;
}

/**
 * A time that no order of the actions on this placement can beat: the largest of
 *
 * - the path of one micro-batch through all stages and back;
 * - for each worker, the path of the first micro-batch to it and its work; or, as its weight parts
 *   may run last, its work without them, the path of the last gradient to stage 0 and its backward
 *   there;
 * - for each worker with a limit of activations, the path to it, and the least time for which all its
 *   activations live, divided by the number that may be live at a time.
 *
 * A recomputed stage that does not recompute has one micro-batch at a time, from its forward to its
 * backward. Each worker's work counts with the cheapest choice for these stages. The limits then do not
 * count, as activations live only from the recomputation on.
 *
 * Backwards count as split, which is never slower. If forwards and backwards may overlap, each
 * worker's work counts with the best pairs that it could have, and an action that takes longer
 * alone than in an overlap counts with the overlap's time.
 *
 * @param limits For each worker, the most live (stage, micro-batch) activations.
 */
export function lowerBound(
  load: Workload,
  limits: readonly number[],
  { parts = 1, recomputed = new Set() }: BoundedOrders = {},
): number {
  const { workers, stages, hosts, pipelineOf, times: { durations, overlap } } = load;
  const time = (kind: number, stage: number) => durations[kind]![stage]!;
  const counts = new Array<number>(hosts.length / stages).fill(0);
  for (const pipeline of pipelineOf) counts[pipeline]!++;
  const lists = () => Array.from({ length: workers }, (): number[] => []);
  const forwards = lists(), inputs = lists(), backwards = lists();
  const lives = new Float64Array(workers);
  const choices = Array.from({ length: workers }, (): StageChoice[] => []);
  const head = new Float64Array(workers).fill(Infinity);
  const tail = new Float64Array(workers).fill(Infinity);
  let bound = 0;
  counts.forEach((count, pipeline) => {
    if (count === 0) return;
    const { toStage, toEnd, away, own, around } = shortestPaths(load, pipeline, parts);
    bound = Math.max(bound, around);
    for (let stage = 0; stage < stages; stage++) {
      const worker = hosts[pipeline * stages + stage]!;
      for (let i = 0; i < count; i++) {
        forwards[worker]!.push(time(KIND.F, stage));
        inputs[worker]!.push(time(KIND.I, stage));
        backwards[worker]!.push(time(KIND.B, stage));
      }
      const life = away[stage]! + own[stage]!;
      if (recomputed.size === 0) lives[worker]! += count * life;
      if (recomputed.has(stage)) {
        choices[worker]!.push({ oneByOne: count * life, again: count * time(KIND.R, stage) });
      }
      head[worker] = Math.min(head[worker]!, toStage[stage]!);
      tail[worker] = Math.min(tail[worker]!, toEnd[stage]!);
    }
  });
  for (let worker = 0; worker < workers; worker++) {
    const start = head[worker]!;
    if (start === Infinity) continue;
    const shared = lives[worker]! / limits[worker]!;
    const mine = forwards[worker]!, forInputs = inputs[worker]!, whole = backwards[worker]!;
    const afterLast = packed(mine, forInputs, overlap) + tail[worker]!;
    const busy = Math.max(packed(mine, whole, overlap), afterLast);
    bound = Math.max(bound, start + Math.max(withChoices(busy, choices[worker]!), shared));
  }
  return bound;
}

/** Work of a stage that may recompute. */
interface StageChoice {
  /** Without recomputation: the time of its micro-batches one after another, forward to backward. */
  readonly oneByOne: number;
  /** The work of its recomputations. */
  readonly again: number;
}

/** Returns the least time of a worker's work, by the cheapest choice for its stages. */
function withChoices(busy: number, choices: readonly StageChoice[]): number {
  const sorted = choices.toSorted((a, b) => a.oneByOne - b.oneByOne);
  let again = sorted.reduce((sum, choice) => sum + choice.again, 0), least = busy + again;
  for (const choice of sorted) {
    again -= choice.again;
    least = Math.min(least, Math.max(busy + again, choice.oneByOne));
  }
  return least;
}

/** The time of equally many forwards and backwards, in the pairs that save most. */
function packed(
  forwards: readonly number[],
  backwards: readonly number[],
  overlap = Infinity,
): number {
  const [longest, others] = [forwards, backwards].map((times) => times.toSorted((a, b) => b - a));
  return longest!.reduce((sum, time, i) => sum + Math.min(time + others![i]!, overlap), 0);
}

/**
 * The shortest paths of one micro-batch in a pipeline: from the input to each stage; from each stage's
 * gradient to the end of the step at stage 0; from each stage's forward until its gradient arrives
 * (`away`), and the least time from then until its activations are freed (`own`); and from the input
 * to the end.
 */
function shortestPaths(load: Workload, pipeline: number, part: number) {
  const { stages, hosts, times: { durations, overlap = Infinity, send } } = load;
  const routes = stageRoutes(stages, load.edges);
  const forward = (stage: number) => Math.min(durations[KIND.F]![stage]!, overlap);
  /** The last part of a backward, with nothing after it. */
  const last = (stage: number) => Math.min(durations[KIND.B]![stage]! / part, overlap);
  const input = (stage: number) => Math.min(durations[KIND.I]![stage]!, last(stage));
  const isLocal = (from: number, to: number) =>
    hosts[pipeline * stages + from] === hosts[pipeline * stages + to];
  const edge = (stage: number) => isLocal(stage, stage + 1) ? 0 : send[stage]!;
  const over = (route: SkipRoute) => isLocal(route.from, route.to) ? 0 : send[route.number]!;
  const toStage = new Float64Array(stages);
  const toEnd = new Float64Array(stages);
  const from = (stage: number, path: number) =>
    path + (stage === 0 ? last(0) : input(stage) + toEnd[stage]!);
  for (let stage = 1; stage < stages; stage++) {
    const below = stage - 1;
    toStage[stage] = toStage[below]! + forward(below) + edge(below);
    toEnd[stage] = from(below, edge(below));
    for (const route of routes?.[stage]?.toForward ?? []) {
      const arrival = toStage[route.from]! + forward(route.from) + over(route);
      toStage[stage] = Math.max(toStage[stage]!, arrival);
    }
    for (const route of routes?.[stage]?.fromBackward ?? []) {
      toEnd[stage] = Math.max(toEnd[stage]!, from(route.to, over(route)));
    }
  }
  const away = new Float64Array(stages);
  for (let stage = stages - 1; stage >= 0; stage--) {
    const isTop = stage === stages - 1;
    const beyond = isTop ? 0 : away[stage + 1]! + input(stage + 1) + 2 * edge(stage);
    away[stage] = forward(stage) + beyond;
  }
  const own = Float64Array.from({ length: stages }, (_, stage) => last(stage));
  const end = Math.min(durations[KIND.B]![0]!, overlap);
  const top = stages - 1, there = toStage[top]! + forward(top);
  const around = Math.max(away[0]! + end, top === 0 ? 0 : from(top, there));
  return { toStage, toEnd, away, own, around };
}
