/** SlimPipe: interleaved 1F1B over slices of the sequence. */

import { type Action, B, F } from "../../actions/action.ts";
import { type ClosedForm, perWorker, type UniformCosts } from "../../definition/closed_form.ts";
import { defineSchedule } from "../../definition/define_schedule.ts";
import type { ScheduleOptions } from "../../definition/options.ts";
import { placeRounds, roundsOf } from "../../definition/rounds.ts";
import { sliceOf } from "./units.ts";

/** How slices run through the chunks of a worker. */
interface Rounds {
  /** Micro-batches that run together: as many as fill the pipe; one where its slices do. */
  readonly together: number;
  /** Rounds that these take. */
  readonly count: number;
  /** Slices that run through one chunk before the next has its turn. */
  readonly size: number;
  /** Of these, the slices of each micro-batch. */
  readonly slices: number;
}

function roundsOfSlices({ workers, microBatches, slices = 1 }: ScheduleOptions): Rounds {
  if (slices >= workers) {
    const count = roundsOf(workers, slices), size = slices / count;
    return { together: 1, count, size, slices: size };
  }
  const together = microBatches / roundsOf(workers, microBatches * slices);
  return { together, count: 1, size: together * slices, slices };
}

/** The forwards before the first backward: all of one micro-batch, and two more for each worker on. */
function warmUpOf(worker: number, options: ScheduleOptions): number {
  const { workers, microBatches, chunks = 2, slices = 1 } = options;
  const { count, size, slices: each } = roundsOfSlices(options);
  const first = (count * chunks - 1) * size + each - 1;
  return Math.min(microBatches * slices * chunks, first + 2 * (workers - 1 - worker));
}

/** The k-th forward of a worker. */
function forwardOf(worker: number, k: number, options: ScheduleOptions): Action {
  const { workers, chunks = 2, slices = 1 } = options;
  const { together, count, size } = roundsOfSlices(options);
  const units = count * size * chunks, at = k % units, round = Math.floor(at / (size * chunks));
  const unit = round * size + at % size, turn = Math.floor(at / size) % chunks;
  const microBatch = Math.floor(k / units) * together + Math.floor(unit / slices);
  return sliceOf(F(turn * workers + worker, microBatch), unit % slices, options);
}

/** The k-th backward: the last round first, in it the last chunk, of each micro-batch the last slice. */
function backwardOf(worker: number, k: number, options: ScheduleOptions): Action {
  const { workers, chunks = 2 } = options;
  const { together, count, size, slices: each } = roundsOfSlices(options);
  const units = count * size * chunks, at = k % units;
  const round = count - 1 - Math.floor(at / (size * chunks)), place = at % size;
  const turn = chunks - 1 - Math.floor(at / size) % chunks;
  const microBatch = Math.floor(k / units) * together + Math.floor(place / each);
  const slice = round * size + each - 1 - place % each;
  return sliceOf(B(turn * workers + worker, microBatch), slice, options);
}

/**
 * Holds for any tF and tB where all slices of a micro-batch take equally long: the idle time of
 * interleaved 1F1B over the number of slices. Where these fill the pipe, S >= P, worker r holds one
 * micro-batch and 2(P-1-r) slices of a chunk.
 */
export function slimPipeForm(
  options: ScheduleOptions,
  { forward, backward }: UniformCosts,
): ClosedForm {
  const { workers, microBatches, chunks = 2, slices = 1 } = options, units = slices * chunks;
  const gaps = workers - 1 + (chunks - 1) * Math.max(0, workers - microBatches * slices);
  const live = (r: number) => Math.min(microBatches * units, warmUpOf(r, options) + 1);
  return {
    idle: gaps * (forward + backward) / units,
    peakActivations: perWorker(workers, (r) => live(r) / units),
    weights: perWorker(workers, () => 1),
  };
}

/**
 * Li et al. 2025, "SlimPipe: Memory-Thrifty and Efficient Pipeline Parallelism for Long-Context LLM
 * Training": the unit of interleaved 1F1B is a slice, so that little more than one micro-batch is live.
 * Only the order is the paper's: slices are as they are, and no attention is handed to other workers.
 * With fewer slices than workers several micro-batches share a round, and with one it is `interleaved`.
 */
export const slimPipe = defineSchedule({
  name: "slimpipe",
  reads: ["chunks", "slices"],
  summary:
    "interleaved over slices of the sequence: little more than one micro-batch's activations",
  closedForm: slimPipeForm,
  place(options) {
    const { workers, microBatches, slices = 1 } = options;
    const what = slices >= workers
      ? { option: "slices", count: slices, rounds: roundsOf(workers, slices) }
      : {
        option: "microBatches",
        count: microBatches,
        rounds: roundsOf(workers, microBatches * slices),
      };
    return { ...placeRounds("slimpipe", options, what), slices };
  },
  *order(worker, options): Iterable<Action> {
    const { microBatches, chunks = 2, slices = 1 } = options;
    const all = microBatches * slices * chunks, warmUp = warmUpOf(worker, options);
    for (let k = 0; k < all + warmUp; k++) {
      if (k < all) yield forwardOf(worker, k, options);
      if (k >= warmUp) yield backwardOf(worker, k - warmUp, options);
    }
  },
});
