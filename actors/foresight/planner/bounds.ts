/** What a run takes at least, told before its order is made. */

import { parts, type Schedule, type StepModel } from "../../../schedules/mod.ts";
import { heldBytes } from "../../../schedules/analysis/memory.ts";
import { reduceHalf } from "../../../schedules/simulator/network.ts";
import { pipesOf } from "../../pipeline/layout.ts";

/**
 * A lower bound of the step's time, in ms. Each worker waits until its first input can have come,
 * runs all its actions, and what follows its last backward takes as long as the way back; then the
 * step is closed. So it needs the placement, but no order.
 *
 * @param model of a schedule with the same placement, for any number of micro-batches.
 * @param microBatches of the step that is bounded.
 */
export function leastStepMs(model: StepModel, microBatches: number): number {
  const { schedule, stages, slowdowns, jitter, overlapMs } = model;
  const forward = stages.map(({ forwardMs }) => forwardMs);
  const backward = stages.map(({ backwardMs, inputMs, weightMs }) =>
    inputMs === undefined || weightMs === undefined
      ? backwardMs
      : Math.min(backwardMs, inputMs + weightMs)
  );
  const each = Math.floor(microBatches / pipesOf(schedule));
  const work = stages.map(({ recomputeMs = 0 }, stage) => {
    const [one, other] = [forward[stage]!, backward[stage]! + recomputeMs];
    return each * (overlapMs === undefined ? one + other : Math.max(one, other));
  });
  // The way of a first input, and that back; a backward for the weights may come after it. Of a slice
  // it is shorter, and of a half backward half as long.
  const { isSplit, isHalved } = backwardsOf(schedule), part = isHalved ? 0.5 : 1;
  const heads = sumsBefore(forward);
  const tails = isSplit ? undefined : sumsBefore(backward.map((time) => part * time));
  const least = (times: readonly number[], worker: number) =>
    Math.min(...schedule.placement[worker]!.map(({ stage }) => times[stage]!));
  const fastest = Math.min(1, ...slowdowns ?? []);
  const bounds = schedule.placement.map((held, worker) => {
    const own = held.reduce((sum, { stage }) => sum + work[stage]!, 0);
    const way = schedule.slices === undefined
      ? least(heads, worker) + (tails ? least(tails, worker) : 0)
      : 0;
    return fastest * way + (slowdowns?.[worker] ?? 1) * own;
  });
  const shortest = jitter?.law === "around" ? 1 - jitter.amount : 1;
  return shortest * Math.max(...bounds) + leastClosingMs(model);
}

/** For each of some numbers, the sum of those before it. */
function sumsBefore(numbers: readonly number[]): number[] {
  let sum = 0;
  return numbers.map((one) => (sum += one) - one);
}

/** The optimizer of the fullest worker, or the all-reduce of one stage, whichever takes longer. */
function leastClosingMs({ schedule, stages, closing, network, replicas = 1 }: StepModel): number {
  const { algorithm = "direct", eagerStages = [], protocol = "commit" } = closing ?? {};
  if (closing === undefined || protocol !== "commit" || schedule.updates !== "flush") return 0;
  const link = closing.link ?? network?.link ?? { latencyMs: 0 };
  const optimizers = schedule.placement.map((held) =>
    held.reduce((sum, { stage }) => sum + (stages[stage]!.optimizerMs ?? 0), 0)
  );
  const copies = replicas * pipesOf(schedule);
  const reduces = stages.map(({ gradientBytes = 0 }, stage) =>
    eagerStages.includes(stage)
      ? 0
      : 2 * reduceHalf(algorithm, copies, gradientBytes, link).transferMs
  );
  return Math.max(0, ...optimizers, ...reduces);
}

/**
 * Bytes that the fullest worker holds at least, whatever its order: weights, gradients, states, and
 * the activations of one micro-batch of one of its stages.
 */
export function leastBytes({ schedule, stages }: StepModel): number {
  return Math.max(...schedule.placement.map((held, worker) => {
    const memory = held.map(({ stage }) => stages[stage]!.memory);
    const fixed = heldBytes(
      memory.map((one) => one ?? { keptBytes: 0 }),
      schedule.weightVersions[worker] ?? 1,
    );
    const kept = memory.map((one) => (one?.keptBytes ?? 0) + (one?.workBytes ?? 0));
    // Halves of a micro-batch keep a half each.
    return fixed + Math.max(...kept) / 2;
  }));
}

const known = new WeakMap<Schedule, { readonly isSplit: boolean; readonly isHalved: boolean }>();

/**
 * Returns whether backwards run as I and W, and whether in halves. Reads the lists once for each
 * schedule, which many candidates share.
 */
function backwardsOf(schedule: Schedule) {
  const { lists = [] } = schedule;
  const found = known.get(schedule) ?? {
    isSplit: lists.some((list) =>
      [...list].some((action) => parts(action).some(({ kind }) => kind === "W"))
    ),
    isHalved: lists.some(({ hasHalves }) => hasHalves),
  };
  known.set(schedule, found);
  return found;
}
