/** ZB-V: zero bubbles with the activations of 1F1B, two stages on each worker laid in a V. */

import { type Action, F, I, W } from "../action.ts";
import { defineSchedule, formOf, type ScheduleOptions, wave } from "../define.ts";

/** Counts the actions of the two stages of a worker; `a` is the stage nearer to the input. */
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

/** The order of a worker for at least 2P-1 micro-batches, which fill the pipeline. */
function* fullOrder(worker: number, { workers, microBatches }: ScheduleOptions): Iterable<Action> {
  const { next, Fa, Fb, Ia, Ib, Wa, Wb } = vStages(worker, workers);
  const below = workers - worker, total = Math.max(microBatches, 2 * workers - 1);
  for (let i = 0; i < 2 * below - 1; i++) yield Fa();
  for (let i = 0; i < worker; i++) yield* [Fb(), Fa()];
  for (let i = 0; i < below; i++) yield* [Fb(), Ib(), Wb()];
  while (next.Fa < total || next.Fb < total) {
    if (next.Fa < total) yield Fa();
    yield* [Ia(), Wa()];
    if (next.Fb < total) yield Fb();
    yield* [Ib(), Wb()];
  }
  for (let i = 0; i < worker; i++) yield* [Ia(), Ib()];
  for (let i = 0; i < below; i++) yield* [Ia(), Wa()];
  while (next.Wb < total) yield Wb();
  while (next.Wa < total) yield Wa();
}

/**
 * ZB-V (Qi et al. 2024, "Zero Bubble Pipeline Parallelism", section 6): stages r and 2P-1-r on worker
 * r, so that the loss is on worker 0. The order of fewer than 2P-1 micro-batches is that of 2P-1
 * without the missing ones, as in PyTorch's ZBVZeroBubble.
 */
export const zeroBubbleV = defineSchedule({
  name: "zb-v",
  reads: [],
  summary: "split backward, two stages on each worker in a V: no bubbles with D activations",
  // The idle time holds for tF = tI = tW. If N >= 2P-1, there is none between a worker's first and
  // last action, and the workers start one stage after the other; each missing micro-batch adds two
  // stages once the start no longer hides them. The peak, P activations on every worker, holds for
  // N >= 2P-1, and is an upper bound for fewer.
  closedForm({ workers, microBatches }, { forward, input, weight }) {
    const isEqual = forward === input && input === weight;
    const isFull = microBatches >= 2 * workers - 1;
    const stages = Math.max(workers - 1, 4 * (workers - 1) - 2 * (microBatches - 1));
    return formOf(workers, {
      ...isEqual && { idle: stages * forward / 2 },
      ...isEqual && isFull && { idleLocal: 0 },
      ...isFull && { peak: () => workers },
      peakAtMost: Math.min(workers, microBatches),
    });
  },
  place: (options) => wave({ ...options, waves: 1 }),
  *order(worker, options): Iterable<Action> {
    for (const action of fullOrder(worker, options)) {
      if (action.microBatch < options.microBatches) yield action;
    }
  },
});
