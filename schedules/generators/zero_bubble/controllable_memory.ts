/** V-Half and V-Min: zero-bubble schedules in a V with a half or a third of the activations. */

import { type Action, F, I, W } from "../../actions/action.ts";
import { type ClosedForm, perWorker, type UniformCosts } from "../../definition/closed_form.ts";
import { defineSchedule } from "../../definition/define_schedule.ts";
import type { ScheduleOptions } from "../../definition/options.ts";
import { wave } from "../../definition/placements.ts";
import { requireOption } from "../../definition/require_option.ts";
import { inSlotOrder, type SlottedAction } from "../../definition/slots.ts";

/** The slots of F and I of both stages of worker r for micro-batch 0; six slots on for each more. */
type BuildingBlock = (
  r: number,
  workers: number,
) => { Fa: number; Fb: number; Ib: number; Ia: number };

const PERIOD = 6;

const vHalfBlock: BuildingBlock = (r, P) => {
  const k = P % 2 === 0 ? 3 : 0;
  return { Fa: 2 * r, Fb: 3 * P - r - 2, Ib: 3 * P + k + 2 * r - 1, Ia: 6 * P + k - r - 2 };
};

const vMinBlock: BuildingBlock = (r, P) => {
  const k = P % 3 === 0 ? 2 : 0;
  return { Fa: r, Fb: 2 * P - r - 1, Ib: 2 * P + k + r, Ia: 4 * P + k - r - 1 };
};

/** Repeats a building block for every micro-batch; each W takes the first free slot after its I. */
function repeatBlock(
  worker: number,
  { workers, microBatches }: ScheduleOptions,
  block: BuildingBlock,
): Action[] {
  const [a, b] = [worker, 2 * workers - 1 - worker];
  const { Fa, Fb, Ib, Ia } = block(worker, workers);
  const slots: SlottedAction[] = [];
  const inputs: [slot: number, stage: number, microBatch: number][] = [];
  for (let m = 0; m < microBatches; m++) {
    const start = PERIOD * m;
    slots.push([start + Fa, F(a, m)], [start + Fb, F(b, m)]);
    slots.push([start + Ib, I(b, m)], [start + Ia, I(a, m)]);
    inputs.push([start + Ib, b, m], [start + Ia, a, m]);
  }
  const taken = new Set(slots.map(([slot]) => slot));
  for (const [slot, stage, microBatch] of inputs.sort(([x], [y]) => x - y)) {
    let free = slot + 1;
    while (taken.has(free)) free++;
    taken.add(free);
    slots.push([free, W(stage, microBatch)]);
  }
  return inSlotOrder(slots);
}

const isEqual = ({ forward, input, weight }: UniformCosts) => forward === input && input === weight;

/**
 * The idle time holds for tF = tI = tW and P >= 2: 7P/2-2 actions of a stage for even P, 7(P-1)/2
 * for odd. The peaks, floor(P/2)+1 micro-batches, are exact for N >= 2P and a bound below.
 */
export function vHalfForm(
  { workers: P, microBatches }: ScheduleOptions,
  costs: UniformCosts,
): ClosedForm {
  const stageActions = P === 1 ? 0 : P % 2 === 0 ? 7 * P / 2 - 2 : 7 * (P - 1) / 2;
  const peak = Math.floor(P / 2) + 1;
  return {
    ...(isEqual(costs) ? { idle: stageActions * costs.forward / 2 } : {}),
    ...(microBatches >= 2 * P ? { peakActivations: perWorker(P, () => peak) } : {}),
    peakAtMost: peak,
    weights: perWorker(P, () => 1),
  };
}

/**
 * The idle time holds for tF = tI = tW and P >= 2: 4P-5 actions of a stage, 4P-3 if 3 divides P.
 * The peaks, ceil((P+2)/3) micro-batches, are exact unless P = 2 mod 3, and a bound there.
 */
export function vMinForm({ workers: P }: ScheduleOptions, costs: UniformCosts): ClosedForm {
  const stageActions = P === 1 ? 0 : P % 3 === 0 ? 4 * P - 3 : 4 * P - 5;
  const peak = Math.ceil((P + 2) / 3);
  return {
    ...(isEqual(costs) ? { idle: stageActions * costs.forward / 2 } : {}),
    ...(P % 3 === 2 ? {} : { peakActivations: perWorker(P, () => peak) }),
    peakAtMost: peak,
    weights: perWorker(P, () => 1),
  };
}

function vPlace(name: string) {
  return (options: ScheduleOptions) => {
    const { workers, microBatches } = options;
    const must = `at least the number of workers, ${workers}`;
    requireOption(name, "microBatches", microBatches, microBatches >= workers, must);
    return wave({ ...options, waves: 1 });
  };
}

/**
 * V-Half (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory", section 3): its building
 * block repeated, without the reordering that the authors add.
 */
export const vHalf = defineSchedule({
  name: "v-half",
  reads: [],
  summary: "split backward in a V: about half of 1f1b's activations",
  closedForm: vHalfForm,
  place: vPlace("v-half"),
  order: (worker, options) => repeatBlock(worker, options, vHalfBlock),
});

/** V-Min (the same section), likewise repeated and not reordered. */
export const vMin = defineSchedule({
  name: "v-min",
  reads: [],
  summary: "split backward in a V: about a third of 1f1b's activations",
  closedForm: vMinForm,
  place: vPlace("v-min"),
  order: (worker, options) => repeatBlock(worker, options, vMinBlock),
});
