/**
 * The data of a run, whose beginning has been looked at: what is wrong with it is told before
 * anything runs.
 *
 * @module
 */

import { type Batch, batchCheck } from "../../../kernels/mod.ts";
import type { PreparedRun } from "../options/prepare_run.ts";
import type { TrainOptions } from "../options/train_options.ts";
import { isSource } from "./data.ts";
import type { DataState } from "./data_state.ts";
import { DataWatch } from "./data_watch.ts";
import { openStepData, type StepData } from "./step_data.ts";
import { takeBatch } from "./take_batch.ts";

/** Micro-batches whose making takes so long that it is told. */
const DROPPED_TOLD = 10_000;

/** The data of a run. */
export interface RunData extends StepData {
  /** Held-out micro-batches; they are copied like others, as they may share buffers with the data. */
  readonly heldOut: readonly Batch[];
  /** Reports micro-batches that do not come in time. */
  readonly watch: DataWatch;
}

/**
 * Opens the data of a run.
 *
 * @throws {TypeError} when a micro-batch that is held out is not what the model reads.
 */
export function openRunData(
  { data, evaluation, resume, dropLast = false, signal }: TrainOptions,
  { model, halves, microBatches, steps, announce }: PreparedRun,
): RunData {
  const check = batchCheck(model, halves);
  const heldOut = (evaluation?.batches ?? []).map((batch, i) =>
    takeBatch(batch, `evaluation.batches[${i}]`, check)
  );
  const { data: state } = (resume?.config?.["progress"] ?? {}) as { readonly data?: DataState };
  const done = resume?.step ?? 0;
  const watch = new DataWatch(announce);
  const how = { microBatches, done, steps, state, dropLast, check, signal, watch };
  if (!isSource(data) && done * microBatches >= DROPPED_TOLD) {
    announce(
      `The data has no from: ${
        done * microBatches
      } micro-batches are made and dropped before step ${done + 1}.`,
    );
  }
  return Object.assign(openStepData(data, how), { heldOut, watch });
}
