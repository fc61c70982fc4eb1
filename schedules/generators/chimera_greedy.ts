/** Chimera's pipes scheduled greedily: fewer bubbles than the paper's units at large N. */

import { defineMade } from "../definition/define_schedule.ts";
import { withOrders } from "../definition/from_lists.ts";
import { greedyOrder } from "../search/greedy.ts";
import { workloadOf } from "../search/workload.ts";
import { chimera } from "./chimera.ts";

/**
 * Chimera's placement (Li and Hoefler 2021, section 3.6) with the order of a list scheduler: backwards first, of forwards the deepest
 * stage, at most `pipelineLimit` micro-batches in flight in each pipe (D/f unless given; with D/2f
 * or fewer the pipes run dry). Where the units of the paper leave K·(D/f - 2) gaps between them,
 * this leaves few: with tB = 2tF, D = 8 and N = 64 idle time 21 instead of 54, for 14 activations
 * instead of 8.
 */
export const chimeraGreedy = defineMade(
  {
    name: "chimera-greedy",
    summary: "Chimera's pipes in greedy order: fewer bubbles at large N for more activations",
    reads: ["pipelines", "pipelineLimit", "costs"],
  },
  ({ workers, microBatches, pipelines = 1, pipelineLimit = workers / pipelines, costs }) => {
    const base = chimera.create({ workers, microBatches, pipelines });
    const orders = greedyOrder(workloadOf(base, costs), {
      isSplit: false,
      isForwardFirst: false,
      limits: new Array(workers).fill(Infinity),
      pipeLimit: pipelineLimit,
      patience: 0,
    });
    return withOrders(base, "chimera-greedy", orders);
  },
);
