/** PipeDream and PipeDream-2BW: 1F1B without a flush, on weights that are some updates old. */

import { defineSchedule, linear, perWorker, requireFull } from "../define.ts";
import { oneFOneBForm, oneFOneBOrder } from "./one_f_one_b.ts";

/**
 * PipeDream (Narayanan et al. 2019, "PipeDream: Generalized Pipeline Parallelism for DNN Training",
 * sections 3.2 and 3.3): an optimizer step after every backward. A forward uses the newest weights;
 * its backward uses the same version, which is kept until then.
 */
export const pipeDream = defineSchedule({
  name: "pipedream",
  reads: [],
  summary: "asynchronous: no flush, an update for each micro-batch, D - s weight versions",
  updates: "every-backward",
  weightVersions: (worker, { workers }) => workers - worker,
  // Time and activations are those of a step that starts with an empty pipeline and drains it, such
  // as before a checkpoint. Between two drains there is no idle time, and worker s keeps a version of
  // its weights for each of the D - s micro-batches in flight.
  closedForm: (options, costs) => ({
    ...oneFOneBForm(options, costs),
    weights: perWorker(options.workers, (s) => options.workers - s),
  }),
  place: linear,
  order: oneFOneBOrder,
});

/**
 * PipeDream-2BW (Narayanan et al. 2021, "Memory-Efficient Pipeline-Parallel DNN Training", section
 * 3.1): an optimizer step for every N >= D micro-batches, from gradients that are one step old; two
 * versions of the weights are enough.
 */
export const pipeDream2bw = defineSchedule({
  name: "pipedream-2bw",
  reads: [],
  summary: "asynchronous: no flush, an update for N micro-batches, two weight versions",
  updates: "double-buffered",
  weightVersions: () => 2,
  closedForm: (options, costs) => ({
    ...oneFOneBForm(options, costs),
    weights: perWorker(options.workers, () => 2),
  }),
  place(options) {
    requireFull("pipedream-2bw", options);
    return linear(options);
  },
  order: oneFOneBOrder,
});
