/**
 * What a run holds of its weights and moments beside its stages, and of the steps behind it.
 *
 * @module
 */

import { PIECE_ELEMENTS } from "../../checkpoints/tensors/held_state.ts";
import type { CompiledRun } from "../compile_run.ts";
import type { EngineOptions } from "../engines/engine.ts";
import { stateShapes } from "../engines/held_by_stages.ts";
import { UPDATE_POLICIES } from "../../pipeline/update_policy.ts";
import { KEPT_BYTES, SNAPSHOT_STEPS } from "../recovery/kept_steps.ts";
import { bytesOfState, SNAPSHOT_EVERY, snapshotPlace } from "../recovery/snapshots.ts";
import type { RuntimeName, TrainOptions } from "../options/train_options.ts";

/** What decides how much is held. */
export interface StateMemoryOptions
  extends
    Pick<EngineOptions, "schedule">,
    Pick<TrainOptions, "steps" | "snapshots" | "checkpoint" | "returnWeights"> {
  readonly compiled: CompiledRun;
  readonly runtime: RuntimeName;
  /** Failures that the run outlives. */
  readonly retries: number;
}

/** Bytes of states and steps that a run holds. */
export interface StateBytes {
  /** The last snapshot, where it lies in memory. */
  readonly snapshot: number;
  /** The steps since the last one, or the one before, which are kept to be taken again. */
  readonly keptSteps: number;
  /** What is read of weights and moments to be written, hashed or returned. */
  readonly state: number;
}

/** Pieces of tensors between who holds them and the file: fetched, on their way, looked at. */
const PIECES = 4;

/** @param stepBytes of a step that is kept. */
export function planState(options: StateMemoryOptions, stepBytes: number): StateBytes {
  const { compiled: { model, stage }, checkpoint, schedule, runtime, retries, steps } = options;
  const shapes = stateShapes(model.parameters, { stage }), bytes = bytesOfState(shapes);
  const weights = bytesOfState({ model: shapes.model, optimizer: new Map() });
  const isReturned = (options.returnWeights ?? true) && checkpoint === undefined;
  const state = Math.min(bytes, 4 * PIECES * PIECE_ELEMENTS) + (isReturned ? weights : 0);
  if (retries === 0 || runtime === "serial") return { snapshot: 0, keptSteps: 0, state };
  const { isFlushed } = UPDATE_POLICIES[schedule.updates], all = steps * stepBytes;
  // Without flushes, and where workers write shards, checkpoints are the only snapshots.
  if (!isFlushed || (runtime === "mpi" && checkpoint)) {
    const keptSteps = Math.min(all, Math.max(KEPT_BYTES, isFlushed ? 0 : bytes));
    return { snapshot: 0, keptSteps, state };
  }
  const place = snapshotPlace(options.snapshots, checkpoint?.directory, bytes);
  // Beside a snapshot in memory, the state before it is kept while there is room for the steps.
  const since = place === "memory" ? steps : SNAPSHOT_EVERY.disk;
  const most = Math.min(since * stepBytes, KEPT_BYTES);
  return {
    snapshot: place === "memory" && steps >= SNAPSHOT_EVERY.memory ? bytes : 0,
    keptSteps: Math.min(all, Math.max(SNAPSHOT_STEPS * stepBytes, most)),
    state,
  };
}
