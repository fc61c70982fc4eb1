/** ZB-V: zero bubbles with the activations of 1F1B, two stages on each worker laid in a V. */

import { type Action, F, I, W } from "../../actions/action.ts";
import { type ClosedForm, perWorker, type UniformCosts } from "../../definition/closed_form.ts";
import { defineSchedule } from "../../definition/define_schedule.ts";
import type { ScheduleOptions } from "../../definition/options.ts";
import { wave } from "../../definition/placements.ts";
import { requireOption } from "../../definition/require_option.ts";

/**
 * Holds for tF = tI = tW: no idle time between a worker's first and last action, and the workers
 * start one stage after the other. The peak, D activations on every worker, holds always.
 */
export function zeroBubbleVForm(
  { workers }: ScheduleOptions,
  { forward, input, weight }: UniformCosts,
): ClosedForm {
  const isEqual = forward === input && input === weight;
  return {
    ...(isEqual ? { idleLocal: 0, idle: (workers - 1) * forward / 2 } : {}),
    peakActivations: perWorker(workers, () => workers),
    weights: perWorker(workers, () => 1),
  };
}

/** Counts the actions of the two stages of a worker; `a` is the one nearer to the input. */
function vStages(worker: number, workers: number) {
  const next = { Fa: 0, Fb: 0, Ia: 0, Ib: 0, Wa: 0, Wb: 0 };
  const a = worker;
  const b = 2 * workers - 1 - worker;
  return {
    next,
    Fa: () => F(a, next.Fa++),
    Fb: () => F(b, next.Fb++),
    Ia: () => I(a, next.Ia++),
    Ib: () => I(b, next.Ib++),
    Wa: () => W(a, next.Wa++),
    Wb: () => W(b, next.Wb++),
  };
}

/**
 * ZB-V (Qi et al. 2024, "Zero Bubble Pipeline Parallelism", section 6): stages r and 2P-1-r on worker
 * r, so that the loss is on worker 0.
 */
export const zeroBubbleV = defineSchedule({
  name: "zb-v",
  reads: [],
  summary: "split backward, two stages on each worker in a V: no bubbles with D activations",
  closedForm: zeroBubbleVForm,
  place(options) {
    const { workers, microBatches } = options;
    const least = 2 * workers - 1;
    const must = `at least ${least} for ${workers} workers`;
    requireOption("zb-v", "microBatches", microBatches, microBatches >= least, must);
    return wave({ ...options, waves: 1 });
  },
  *order(worker, { workers, microBatches }): Iterable<Action> {
    const { next, Fa, Fb, Ia, Ib, Wa, Wb } = vStages(worker, workers);
    const below = workers - worker;
    for (let i = 0; i < 2 * below - 1; i++) yield Fa();
    for (let i = 0; i < worker; i++) yield* [Fb(), Fa()];
    for (let i = 0; i < below; i++) yield* [Fb(), Ib(), Wb()];
    while (next.Fa < microBatches || next.Fb < microBatches) {
      if (next.Fa < microBatches) yield Fa();
      yield* [Ia(), Wa()];
      if (next.Fb < microBatches) yield Fb();
      yield* [Ib(), Wb()];
    }
    for (let i = 0; i < worker; i++) yield* [Ia(), Ib()];
    for (let i = 0; i < below; i++) yield* [Ia(), Wa()];
    while (next.Wb < microBatches) yield Wb();
    while (next.Wa < microBatches) yield Wa();
  },
});
