/** Hanayo and Chimera-wave: one copy of the model, its stages in waves over the workers. */

import { type Action, B, F } from "../action.ts";
import {
  defineSchedule,
  inSlotOrder,
  requireOption,
  type ScheduleOptions,
  type SlottedAction,
  wave,
} from "../define.ts";

/**
 * The order of a worker. In each round of P micro-batches, F of stage s on its k-th micro-batch is in
 * slot 2k + s and B in slot 2k + 2S - 1 - s, which no two stages of a worker share. Rounds follow each
 * other 2S slots apart. The paper gives pictures and a greedy search; this closed form is optimal
 * for P up to 4 and one or two waves (exhaustively checked), and the greedy search is not.
 */
function hanayoOrder(worker: number, options: ScheduleOptions, firstMicroBatch = 0): Action[] {
  const { workers, microBatches } = options;
  const { stages, workerOf } = wave(options);
  const slots: SlottedAction[] = [];
  for (let stage = 0; stage < stages; stage++) {
    if (workerOf(stage, 0) !== worker) continue;
    for (let m = 0; m < microBatches; m++) {
      const k = m % workers;
      const start = (m - k) / workers * 2 * stages + 2 * k;
      slots.push([start + stage, F(stage, firstMicroBatch + m)]);
      slots.push([start + 2 * stages - 1 - stage, B(stage, firstMicroBatch + m)]);
    }
  }
  return inSlotOrder(slots);
}

function checkRounds(name: string, { workers, microBatches }: ScheduleOptions): void {
  const must = `a multiple of the ${workers} workers of a pipeline`;
  requireOption(name, "microBatches", microBatches, microBatches % workers === 0, must);
}

/**
 * Hanayo (Liu et al. 2023, "Hanayo: Harnessing Wave-like Pipeline Parallelism for Enhanced Large Model
 * Training Efficiency", section 3.3) with W waves: 2W stages on each worker.
 */
export const hanayo = defineSchedule({
  name: "hanayo",
  reads: ["waves"],
  summary: "W waves over the workers: Chimera's bubbles without its copies",
  check: checkRounds,
  place: wave,
  order: (worker, options) => hanayoOrder(worker, options),
});

/**
 * Chimera in the form of waves (Hanayo, section 3.2): two groups of P workers, each with a copy of
 * the model and one wave, need one hop less than Chimera's two pipes on 2P workers. Each group runs
 * `microBatches` micro-batches, numbered group by group.
 */
export const chimeraWave = defineSchedule({
  name: "chimera-wave",
  reads: [],
  summary: "Chimera as two groups of P workers with one wave each, 2P workers in all",
  check: checkRounds,
  place(options) {
    const { workers, microBatches } = options;
    const { stages, workerOf } = wave({ ...options, waves: 1 });
    return {
      workers: 2 * workers,
      microBatches: 2 * microBatches,
      stages,
      pipelineCount: 2,
      workerOf: (stage, group) => group * workers + workerOf(stage, 0),
      pipelineOf: (microBatch) => Math.floor(microBatch / microBatches),
    };
  },
  order(worker, options) {
    const { workers, microBatches } = options;
    const group = Math.floor(worker / workers);
    return hanayoOrder(worker % workers, { ...options, waves: 1 }, group * microBatches);
  },
});
