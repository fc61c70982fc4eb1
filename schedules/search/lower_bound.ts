/** How long a step takes at least, whatever the order of its actions. */

import { KIND } from "../action_list.ts";
import type { Workload } from "./greedy.ts";

/**
 * A time that no order of the actions on this placement can beat: the largest of
 *
 * - the way of one micro-batch through all stages and back;
 * - for each worker, the way of the first micro-batch to it and its work; or, as its weight parts
 *   may run last, its work without them, the way of the last gradient to stage 0 and the weight
 *   part there;
 * - for each worker with a limit of activations, the way to it, and the time for which all its
 *   activations live at the least, shared by as many as may live at a time.
 *
 * Backwards count as split, which is never slower.
 *
 * @param limits For each worker, the most live (stage, micro-batch) activations.
 */
export function lowerBound(load: Workload, limits: readonly number[]): number {
  const { workers, stages, hosts, replicaOf, times: { durations } } = load;
  const time = (kind: number, stage: number) => durations[kind]?.[stage] ?? 0;
  const counts = new Array<number>(hosts.length / stages).fill(0);
  for (const replica of replicaOf) counts[replica] = (counts[replica] ?? 0) + 1;
  const work = new Float64Array(workers);
  const workWithoutWeights = new Float64Array(workers);
  const lives = new Float64Array(workers);
  const head = new Float64Array(workers).fill(Infinity);
  const tail = new Float64Array(workers).fill(Infinity);
  let bound = 0;
  counts.forEach((count, replica) => {
    if (count === 0) return;
    const { toStage, toInput, around } = waysOf(load, replica);
    bound = Math.max(bound, (around[0] ?? 0) + time(KIND.W, 0));
    for (let stage = 0; stage < stages; stage++) {
      const worker = hosts[replica * stages + stage] as number;
      const step = time(KIND.F, stage) + time(KIND.I, stage);
      workWithoutWeights[worker] = (workWithoutWeights[worker] as number) + count * step;
      work[worker] = (work[worker] as number) + count * (step + time(KIND.W, stage));
      const life = (around[stage] as number) + time(KIND.W, stage);
      lives[worker] = (lives[worker] as number) + count * life;
      head[worker] = Math.min(head[worker] as number, toStage[stage] as number);
      tail[worker] = Math.min(tail[worker] as number, toInput[stage] as number);
    }
  });
  for (let worker = 0; worker < workers; worker++) {
    const start = head[worker] as number;
    if (start === Infinity) continue;
    const shared = (lives[worker] as number) / (limits[worker] as number);
    const afterLast = (workWithoutWeights[worker] as number) + (tail[worker] as number) +
      time(KIND.W, 0);
    bound = Math.max(bound, start + Math.max(work[worker] as number, afterLast, shared));
  }
  return bound;
}

/** For each stage of a replica: the ways from the input to it, back from it, and from it around. */
function waysOf(load: Workload, replica: number) {
  const { stages, hosts, times: { durations, send } } = load;
  const time = (kind: number, stage: number) => durations[kind]?.[stage] ?? 0;
  const edge = (stage: number) => {
    const isLocal = hosts[replica * stages + stage] === hosts[replica * stages + stage + 1];
    return isLocal ? 0 : send[stage] as number;
  };
  const toStage = new Float64Array(stages);
  const toInput = new Float64Array(stages);
  for (let stage = 1; stage < stages; stage++) {
    const below = stage - 1;
    toStage[stage] = (toStage[below] as number) + time(KIND.F, below) + edge(below);
    toInput[stage] = (toInput[below] as number) + time(KIND.I, below) + edge(below);
  }
  const around = new Float64Array(stages);
  for (let stage = stages - 1; stage >= 0; stage--) {
    const beyond = stage === stages - 1 ? 0 : (around[stage + 1] as number) + 2 * edge(stage);
    around[stage] = time(KIND.F, stage) + time(KIND.I, stage) + beyond;
  }
  return { toStage, toInput, around };
}
