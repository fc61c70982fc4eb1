/** GPipe, its form over slices of the sequence and its looped form: all forwards, then all backwards. */

import { B, F } from "../action.ts";
import {
  defineSchedule,
  inTurn,
  linear,
  looped,
  makerOf,
  type ScheduleRule,
  slicesIn,
} from "../define.ts";

const defineGPipe = (definition: Pick<ScheduleRule, "name" | "reads" | "summary">) =>
  defineSchedule({
    ...definition,
    place: (options) => ({ ...linear(options), slices: slicesIn(definition, options) }),
    order(worker, options) {
      const slices = slicesIn(definition, options), all = options.microBatches * slices;
      return inTurn(all, all, makerOf(worker, slices));
    },
  });

/**
 * GPipe (Huang et al. 2019, "GPipe: Efficient Training of Giant Neural Networks using Pipeline
 * Parallelism", section 2.2): stage s on worker s, all forwards, then all backwards.
 */
export const gpipe = defineGPipe({
  name: "gpipe",
  reads: [],
  summary: "all forwards, then all backwards",
});

/**
 * TeraPipe (Li et al. 2021, "TeraPipe: Token-Level Pipeline Parallelism for Training Large-Scale
 * Language Models", section 3): all forwards, slice by slice, then all backwards. Slices are of one
 * size here; the paper chooses them to take the same time.
 */
export const teraPipe = defineGPipe({
  name: "terapipe",
  reads: ["slices"],
  summary: "gpipe over slices of the sequence: shorter bubbles, all activations",
});

/**
 * Looped breadth-first (Lamy-Poirier 2023, "Breadth-First Pipeline Parallelism"): every chunk serves
 * all micro-batches before the next, so that sharded weights are gathered once in each direction.
 */
export const loopedBfs = defineSchedule({
  name: "looped-bfs",
  reads: ["chunks"],
  summary: "gpipe with several chunks on each worker: little idle time, all activations",
  place: looped,
  *order(worker, { workers, microBatches, chunks = 2 }) {
    for (let c = 0; c < chunks; c++) {
      for (let m = 0; m < microBatches; m++) yield F(c * workers + worker, m);
    }
    for (let c = chunks - 1; c >= 0; c--) {
      for (let m = 0; m < microBatches; m++) yield B(c * workers + worker, m);
    }
  },
});
