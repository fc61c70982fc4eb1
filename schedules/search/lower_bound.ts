/** How long a step takes at least, whatever the order of its actions. */

import { KIND } from "../action_list.ts";
import { recomputedStages } from "../analysis/recomputation.ts";
import type { Costs } from "../costs.ts";
import type { Schedule } from "../schedule.ts";
import { stageWays, type Way } from "../skip_edges.ts";
import { partLimits, type Workload, workloadOf } from "./limits.ts";

/**
 * The time that no order of the schedule's micro-batches can beat on the schedule's own placement
 * (which worker holds which stage of which replica), within a limit of activations for each worker.
 * Orders are of forwards and of backwards that are whole or split; in halves as well where the
 * schedule has such; each forward may overlap with a backward where the costs have a time for that.
 * Where the schedule recomputes, each of its recomputed stages recomputes or runs each backward
 * directly after its forward.
 * On another placement another order may be faster.
 *
 * @param activationLimit In micro-batches of 1/P of the model; none unless given.
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
  const hasHalves = (schedule.lists ?? []).some((list) => list.hasHalves);
  return lowerBound(inSlices(workloadOf(schedule, costs), slices), limits, {
    hasHalves,
    recomputed: recomputedStages(schedule),
  });
}

/** The workload with each slice as a smaller micro-batch: what slices wait for only adds to it. */
function inSlices(load: Workload, slices: number): Workload {
  if (slices === 1) return load;
  const { microBatches, replicaOf, times: { durations, send, overlap } } = load;
  const share = (times: Float64Array) => times.map((time) => time / slices);
  return {
    ...load,
    microBatches: microBatches * slices,
    replicaOf: replicaOf.flatMap((replica) => new Array<number>(slices).fill(replica)),
    times: {
      durations: durations.map(share),
      send: share(send),
      overlap: overlap === undefined ? undefined : overlap / slices,
    },
  };
}

/** The orders that a bound holds for. */
interface BoundedOrders {
  /** True if backwards may come in halves: a gradient then travels one half at a time. */
  readonly hasHalves?: boolean;
  /** The stages that keep only their inputs and recompute. */
  readonly recomputed?: ReadonlySet<number>;
}

/**
 * A time that no order of the actions on this placement can beat: the largest of
 *
 * - the way of one micro-batch through all stages and back;
 * - for each worker, the way of the first micro-batch to it and its work; or, as its weight parts
 *   may run last, its work without them, the way of the last gradient to stage 0 and its backward
 *   there;
 * - for each worker with a limit of activations, the way to it, and the time for which all its
 *   activations live at the least, shared by as many as may live at a time.
 *
 * A recomputed stage that does not recompute has one micro-batch at a time, from its forward to its
 * backward. Each worker's work counts with the cheapest choice for these stages. The limits do not
 * count then, as activations live from the recomputation only.
 *
 * Backwards count as split, which is never slower. Where forwards and backwards may overlap, each
 * worker's work counts with the best pairs that it could have, and an action that takes longer
 * alone than in an overlap with the overlap's time.
 *
 * @param limits For each worker, the most live (stage, micro-batch) activations.
 */
export function lowerBound(
  load: Workload,
  limits: readonly number[],
  { hasHalves = false, recomputed = new Set() }: BoundedOrders = {},
): number {
  const { workers, stages, hosts, replicaOf, times: { durations, overlap } } = load;
  const time = (kind: number, stage: number) => durations[kind]?.[stage] ?? 0;
  const counts = new Array<number>(hosts.length / stages).fill(0);
  for (const replica of replicaOf) counts[replica] = (counts[replica] ?? 0) + 1;
  const lists = () => Array.from({ length: workers }, (): number[] => []);
  const forwards = lists(), inputs = lists(), backwards = lists();
  const lives = new Float64Array(workers);
  const choices = Array.from({ length: workers }, (): StageChoice[] => []);
  const head = new Float64Array(workers).fill(Infinity);
  const tail = new Float64Array(workers).fill(Infinity);
  let bound = 0;
  counts.forEach((count, replica) => {
    if (count === 0) return;
    const { toStage, toEnd, away, own, around } = waysOf(load, replica, hasHalves);
    bound = Math.max(bound, around);
    for (let stage = 0; stage < stages; stage++) {
      const worker = hosts[replica * stages + stage] as number;
      for (let i = 0; i < count; i++) {
        forwards[worker]?.push(time(KIND.F, stage));
        inputs[worker]?.push(time(KIND.I, stage));
        backwards[worker]?.push(time(KIND.B, stage));
      }
      const life = (away[stage] as number) + (own[stage] as number);
      if (recomputed.size === 0) lives[worker] = (lives[worker] as number) + count * life;
      if (recomputed.has(stage)) {
        choices[worker]?.push({ oneByOne: count * life, again: count * time(KIND.R, stage) });
      }
      head[worker] = Math.min(head[worker] as number, toStage[stage] as number);
      tail[worker] = Math.min(tail[worker] as number, toEnd[stage] as number);
    }
  });
  for (let worker = 0; worker < workers; worker++) {
    const start = head[worker] as number;
    if (start === Infinity) continue;
    const shared = (lives[worker] as number) / (limits[worker] as number);
    const [mine = [], forInputs = [], whole = []] = [forwards, inputs, backwards].map((all) =>
      all[worker]
    );
    const afterLast = packed(mine, forInputs, overlap) + (tail[worker] as number);
    const busy = Math.max(packed(mine, whole, overlap), afterLast);
    bound = Math.max(bound, start + Math.max(withChoices(busy, choices[worker]!), shared));
  }
  return bound;
}

/** What a stage takes where it recomputes or not. */
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

/** The time of as many forwards as backwards, in the pairs of both that save most. */
function packed(
  forwards: readonly number[],
  backwards: readonly number[],
  overlap = Infinity,
): number {
  const [longest, others] = [forwards, backwards].map((times) => times.toSorted((a, b) => b - a));
  return longest!.reduce((sum, forward, i) => {
    const backward = others![i] as number;
    return sum + Math.min(forward + backward, overlap);
  }, 0);
}

/**
 * The ways of one micro-batch in a replica, at their shortest: from the input to each stage; from
 * each stage's gradient to the end of the step at stage 0; from each stage's forward until its
 * gradient comes, and what it does then at the least while its activations live; and from the input
 * around to the end.
 */
function waysOf(load: Workload, replica: number, hasHalves: boolean) {
  const { stages, hosts, times: { durations, overlap = Infinity, send } } = load;
  const part = hasHalves ? 2 : 1, ways = stageWays(stages, load.edges);
  const forward = (stage: number) => Math.min(durations[KIND.F]?.[stage] ?? 0, overlap);
  /** The last part of a backward, which nothing of it may come after. */
  const last = (stage: number) => Math.min((durations[KIND.B]?.[stage] ?? 0) / part, overlap);
  const input = (stage: number) => Math.min(durations[KIND.I]?.[stage] ?? 0, last(stage));
  const isLocal = (from: number, to: number) =>
    hosts[replica * stages + from] === hosts[replica * stages + to];
  const edge = (stage: number) => isLocal(stage, stage + 1) ? 0 : send[stage] as number;
  const over = (way: Way) => isLocal(way.from, way.to) ? 0 : send[way.number] as number;
  const toStage = new Float64Array(stages);
  const toEnd = new Float64Array(stages);
  const from = (stage: number, way: number) =>
    way + (stage === 0 ? last(0) : input(stage) + (toEnd[stage] as number));
  for (let stage = 1; stage < stages; stage++) {
    const below = stage - 1;
    toStage[stage] = (toStage[below] as number) + forward(below) + edge(below);
    toEnd[stage] = from(below, edge(below));
    for (const way of ways?.[stage]?.toForward ?? []) {
      const arrival = (toStage[way.from] as number) + forward(way.from) + over(way);
      toStage[stage] = Math.max(toStage[stage] as number, arrival);
    }
    for (const way of ways?.[stage]?.fromBackward ?? []) {
      toEnd[stage] = Math.max(toEnd[stage] as number, from(way.to, over(way)));
    }
  }
  const away = new Float64Array(stages);
  for (let stage = stages - 1; stage >= 0; stage--) {
    const beyond = stage === stages - 1
      ? 0
      : (away[stage + 1] as number) + input(stage + 1) + 2 * edge(stage);
    away[stage] = forward(stage) + beyond;
  }
  const own = Float64Array.from({ length: stages }, (_, stage) => last(stage));
  const end = Math.min(durations[KIND.B]?.[0] ?? 0, overlap);
  const top = stages - 1, there = (toStage[top] as number) + forward(top);
  const around = Math.max((away[0] as number) + end, top === 0 ? 0 : from(top, there));
  return { toStage, toEnd, away, own, around };
}
