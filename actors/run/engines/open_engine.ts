/**
 * Which engine runs a prepared run: a serial one, or a pipeline that outlives its workers.
 *
 * @module
 */

import type { StateOf } from "../../../kernels/mod.ts";
import { copiesOf } from "../../pipeline/layout.ts";
import { type HeldState, heldValues } from "../../checkpoints/tensors/held_state.ts";
import { readState, type TensorSource } from "../../checkpoints/tensors/tensor_source.ts";
import type { PlaceName } from "../../runtime/mod.ts";
import { rankTransport } from "../mpi_run.ts";
import { transportTo } from "../place.ts";
import { stateShapes } from "./held_by_stages.ts";
import type { Engine } from "./engine.ts";
import { openPipeline } from "./pipeline.ts";
import {
  openRecovering,
  type RecoveringEngine,
  type RecoveryOptions,
} from "../recovery/recovery.ts";
import { openSnapshots } from "../recovery/snapshots.ts";
import { openSerialOf } from "./serial_of.ts";
import type { PreparedRun } from "../options/prepare_run.ts";

/**
 * Opens the engine of a run.
 *
 * @param onLost told of each worker that is lost where the run goes on.
 */
export async function openEngine(
  prepared: PreparedRun,
  onLost?: RecoveryOptions["onLost"],
): Promise<RecoveringEngine> {
  const { mpi } = prepared;
  if (!mpi) return await openOn(prepared, onLost);
  const transport = await rankTransport(mpi, mpi.ranks, columnsOf(prepared, mpi.ranks));
  return await openOn({ ...prepared, isolation: transport.name, transport }, onLost);
}

/** For each stage the rank of each copy, where MPI adds their gradients. */
function columnsOf(
  { reduce, schedule, replicas }: PreparedRun,
  ranks: readonly number[],
): number[][] {
  const copies = copiesOf(schedule, replicas);
  if (reduce !== "mpi" || copies[0]!.length === 1) return [];
  return copies.map((column) => column.map(({ worker }) => ranks[worker]!));
}

async function openOn(
  prepared: PreparedRun,
  onLost: RecoveryOptions["onLost"],
): Promise<RecoveringEngine> {
  const { runtime, isolation } = prepared;
  const isolate = runtime === "local" ? "local" : isolation;
  const { model: { parameters }, snapshots, checkpoint } = prepared;
  const shapes = stateShapes(parameters, prepared);
  if (runtime === "serial") return withReads(await openSerialOf(prepared), shapes);
  const canKill = transportTo(isolate, prepared)?.canKill ?? false;
  let opened = 0;
  const open = async (state: StateOf<TensorSource>) => {
    const nth = opened++, fault = prepared.faults[nth];
    const run = { ...await journaled(prepared, nth), state: readable(isolate, state) };
    return await openPipeline(run, isolate, fault);
  };
  const taken = openSnapshots(snapshots, checkpoint?.directory, shapes);
  const options = { ...prepared, canKill, shapes, snapshots: taken, onLost };
  return await openRecovering(open, options);
}

/** A state that workers can read by themselves: nobody can be permitted to read a path with a comma. */
function readable(isolate: PlaceName, state: StateOf<TensorSource>): StateOf<TensorSource> {
  const sources = [...state.weights.values(), ...state.moments.values()];
  const isRefused = (source: TensorSource) => "path" in source && source.path.includes(",");
  return isolate !== "local" && sources.some(isRefused) ? readState(state) : state;
}

/** A serial engine: nobody dies whom it would outlive. */
function withReads(engine: Engine, { model }: HeldState["shapes"]): RecoveringEngine {
  const state = async () => engine.held ?? heldValues(await engine.save(), model);
  return { ...engine, read: async (use) => await use(await state(), () => {}) };
}

/** A run with the journal of the `nth` time that its workers start. */
async function journaled(prepared: PreparedRun, nth: number): Promise<PreparedRun> {
  // Whoever made the system has a journal of it, or none.
  if (prepared.system) return prepared;
  return { ...prepared, observer: await prepared.journal?.begin(prepared, nth) };
}
