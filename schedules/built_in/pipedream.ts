/** PipeDream and PipeDream-2BW: 1F1B without a flush, on weights that are some updates old. */

import {
  type ClosedForm,
  defineSchedule,
  linear,
  perWorker,
  requireOption,
  type ScheduleOptions,
  type UniformCosts,
} from "../define.ts";
import { oneFOneBForm, oneFOneBOrder } from "./one_f_one_b.ts";

/**
 * Time and activations hold for a step that starts with an empty pipe and drains it, as before a
 * checkpoint: those of 1F1B. Between two drains there is no idle time, and worker s keeps one
 * version of its weights for each of the D - s micro-batches in flight.
 */
function pipeDreamForm(options: ScheduleOptions, costs: UniformCosts): ClosedForm {
  const { workers } = options;
  return { ...oneFOneBForm(options, costs), weights: perWorker(workers, (s) => workers - s) };
}

/** As PipeDream, with two versions of the weights on every worker. */
function pipeDream2bwForm(options: ScheduleOptions, costs: UniformCosts): ClosedForm {
  return { ...oneFOneBForm(options, costs), weights: perWorker(options.workers, () => 2) };
}

/**
 * PipeDream (Narayanan et al. 2019, "PipeDream: Generalized Pipeline Parallelism for DNN Training",
 * sections 3.2 and 3.3): an optimizer step after every backward. A forward uses the
 * newest weights, its backward the same version, which is kept until then.
 */
export const pipeDream = defineSchedule({
  name: "pipedream",
  reads: [],
  summary: "asynchronous: no flush, an update for each micro-batch, D - s weight versions",
  updates: "every-backward",
  weightVersions: (worker, { workers }) => workers - worker,
  closedForm: pipeDreamForm,
  place: linear,
  order: oneFOneBOrder,
});

/**
 * PipeDream-2BW (Narayanan et al. 2021, "Memory-Efficient Pipeline-Parallel DNN Training", section
 * 3.1): an optimizer step for every N >= D micro-batches, from
 * gradients that are one step old; two versions of the weights are enough for that.
 */
export const pipeDream2bw = defineSchedule({
  name: "pipedream-2bw",
  reads: [],
  summary: "asynchronous: no flush, an update for N micro-batches, two weight versions",
  updates: "double-buffered",
  weightVersions: () => 2,
  closedForm: pipeDream2bwForm,
  place(options) {
    const { workers, microBatches } = options;
    const must = `at least the number of workers, ${workers}`;
    requireOption("pipedream-2bw", "microBatches", microBatches, microBatches >= workers, must);
    return linear(options);
  },
  order: oneFOneBOrder,
});
