/** V-Half and V-Min: zero-bubble schedules in a V with a half or a third of the activations. */

import { type ClosedForm, perWorker, type UniformCosts } from "../../definition/closed_form.ts";
import { defineMade, defineSchedule } from "../../definition/define_schedule.ts";
import { withOrders } from "../../definition/from_lists.ts";
import type { ScheduleOptions } from "../../definition/options.ts";
import type { ScheduleDefinition } from "../../definition/rule.ts";
import { analyze } from "../../execution/analyze.ts";
import { wave } from "../../definition/placements.ts";
import { requireOption } from "../../definition/require_option.ts";
import { type BuildingBlock, pulledOrders } from "./pulled_block.ts";

const vHalfBlock: BuildingBlock = (r, P) => {
  const k = P % 2 === 0 ? 3 : 0;
  return [2 * r, 3 * P - r - 2, 3 * P + k + 2 * r - 1, 6 * P + k - r - 2];
};

const vMinBlock: BuildingBlock = (r, P) => {
  const k = P % 3 === 0 ? 2 : 0;
  return [r, 2 * P - r - 1, 2 * P + k + r, 4 * P + k - r - 1];
};

const isEqual = ({ forward, input, weight }: UniformCosts) => forward === input && input === weight;

/**
 * The idle time holds for tF = tI = tW: 6·ceil(P/2) - 7 actions of a stage, and one for P = 2. The
 * peaks, floor(P/2)+1 micro-batches, are exact for N > P and a bound for N = P.
 */
export function vHalfForm(
  { workers: P, microBatches }: ScheduleOptions,
  costs: UniformCosts,
): ClosedForm {
  const stageActions = P === 1 ? 0 : P === 2 ? 1 : 6 * Math.ceil(P / 2) - 7;
  const peak = Math.floor(P / 2) + 1;
  return {
    ...(isEqual(costs) ? { idle: stageActions * costs.forward / 2 } : {}),
    ...(microBatches > P ? { peakActivations: perWorker(P, () => peak) } : {}),
    peakAtMost: peak,
    weights: perWorker(P, () => 1),
  };
}

/**
 * The idle time holds for tF = tI = tW: 4P-7 actions of a stage, and 4P-5 where P is 1 mod 3. The
 * peaks, ceil((P+2)/3) micro-batches, are exact but for P = N = 2, and for P = 2 mod 3 a bound at
 * other times.
 */
export function vMinForm(
  { workers: P, microBatches }: ScheduleOptions,
  costs: UniformCosts,
): ClosedForm {
  const stageActions = P === 1 ? 0 : P % 3 === 1 ? 4 * P - 5 : 4 * P - 7;
  const peak = Math.ceil((P + 2) / 3);
  const isExact = P % 3 !== 2 || (isEqual(costs) && P * microBatches > 4);
  return {
    ...(isEqual(costs) ? { idle: stageActions * costs.forward / 2 } : {}),
    ...(isExact ? { peakActivations: perWorker(P, () => peak) } : {}),
    peakAtMost: peak,
    weights: perWorker(P, () => 1),
  };
}

/** What tells a user of a schedule, and what theory says of it. */
type Headline = Required<Pick<ScheduleDefinition, "name" | "summary" | "closedForm">>;

/** A block on a V: the shortest of its orders, of equal ones the first. */
function defineBlock(headline: Headline, block: BuildingBlock): ScheduleDefinition {
  const { name, summary } = headline;
  const empty = defineSchedule({
    name,
    summary,
    place(options) {
      const { workers, microBatches } = options;
      const must = `at least the number of workers, ${workers}`;
      requireOption(name, "microBatches", microBatches, microBatches >= workers, must);
      return wave({ ...options, waves: 1 });
    },
    order: () => [],
  });
  return defineMade({ ...headline, reads: ["costs"] }, (options) => {
    const { workers, microBatches, costs } = options;
    const base = empty.create({ workers, microBatches });
    const all = pulledOrders(workers, microBatches, block)
      .map((orders) => analyze(withOrders(base, name, orders), costs));
    return all.reduce((a, b) => b.makespan < a.makespan * (1 - 1e-9) ? b : a).schedule;
  });
}

/**
 * V-Half (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory", section 3): its building
 * block repeated and reordered.
 */
export const vHalf = defineBlock({
  name: "v-half",
  summary: "split backward in a V: about half of 1f1b's activations",
  closedForm: vHalfForm,
}, vHalfBlock);

/** V-Min (the same section). */
export const vMin = defineBlock({
  name: "v-min",
  summary: "split backward in a V: about a third of 1f1b's activations",
  closedForm: vMinForm,
}, vMinBlock);
