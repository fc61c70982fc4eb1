/**
 * What a run holds beside the stages of its workers, before it: so that the plan is what the system
 * sees.
 *
 * [Note: what is not held] Arrays that nobody holds any more lie there until V8 collects them, which it
 * puts off while there are few of them: up to some 64 MiB an isolate.
 *
 * @module
 */

import {
  BUCKET_SIZE,
  DTYPE_BYTES,
  elementCount,
  flatLength,
  libraryBytes,
  planLibrary,
  planMemory,
  type StageProgram,
  type TensorSpec,
} from "../../../kernels/mod.ts";
import { CHUNKS_UNDER_WAY } from "../../commit/gradient_sync.ts";
import { copiesOf, type StageCopy } from "../../pipeline/layout.ts";
import { optionsOf } from "../../pipeline/stage_copies.ts";
import type { PlaceName } from "../../runtime/mod.ts";
import type { CompiledRun } from "../compile_run.ts";
import type { EngineOptions } from "../engines/engine.ts";
import { stageParameters } from "../engines/stage_parameters.ts";
import { type RowOptions, sharesRows } from "../engines/worker_inits.ts";
import { ISOLATE_BYTES, PROCESS_BYTES } from "../options/sizes.ts";
import { totalMemory } from "./memory_plan.ts";
import { overheadBytes } from "../recovery/kept_steps.ts";
import { countSlots, slotsOf } from "./slots.ts";
import { outputBytes } from "./stage_bytes.ts";
import { planState, type StateMemoryOptions } from "./state_memory.ts";

/** Bytes of an actor beside the stages that it has. */
export interface ActorBytes {
  /** Values between the operations of a model while it runs, at most. */
  readonly transient: number;
  /** Compiled models, and what binds them to tensors. */
  readonly sessions: number;
  /** Activations that are under way, with the arrays in which their gradients come back. */
  readonly messages: number;
  /** Fields of micro-batches. */
  readonly fields: number;
  /** Gradients of copies that are being added. */
  readonly sums: number;
  /** Weights and moments: a snapshot in memory, and pieces that are read to be written or hashed. */
  readonly state: number;
  /** Deno, V8, and the library that computes. */
  readonly runtime: number;
}

/** Bytes of a run beside the stages of its workers. */
export interface RunMemory {
  /** Those of each worker of a data-parallel replica: all replicas are alike. */
  readonly workers: readonly ActorBytes[];
  /** Those of the supervisor, and of whoever runs it: the whole program where there is no other. */
  readonly supervisor: ActorBytes;
  /** All that the run holds, stages included: what the system should see. */
  readonly totalBytes: number;
}

/** What decides what a run holds. */
export interface RunMemoryOptions
  extends RowOptions, StateMemoryOptions, Pick<EngineOptions, "replicas" | "coarsening"> {
  /** How each worker is kept apart from the others. */
  readonly isolation: PlaceName;
}

/** An actor that holds nothing. */
export const NOTHING: ActorBytes = {
  transient: 0,
  sessions: 0,
  messages: 0,
  fields: 0,
  sums: 0,
  state: 0,
  runtime: 0,
};

/** Plans what a run holds beside its stages, and all that it holds. */
export function planRunMemory(options: RunMemoryOptions): RunMemory {
  const { compiled: { memory }, schedule, replicas, runtime } = options;
  if (runtime === "serial") return planSerial(options);
  const workers = schedule.placement.map((_, worker) => planActor(options, worker));
  const supervisor = planSupervisor(options);
  const stages = totalMemory(memory);
  const actors = workers.reduce((sum, one) => sum + actorBytes(one), 0);
  return {
    workers,
    supervisor,
    totalBytes: replicas * (stages + actors) + actorBytes(supervisor),
  };
}

/** All bytes of an actor. */
export const actorBytes = (actor: ActorBytes): number =>
  Object.values(actor).reduce((sum: number, bytes: number) => sum + bytes, 0);

const bytesOf = ({ dtype, shape }: TensorSpec) => elementCount(shape) * DTYPE_BYTES[dtype];

/** Bytes of each field of a micro-batch that stages read. */
function bytesOfFields({ model, programs, halves }: CompiledRun): number[] {
  const fields = programs.flatMap((stage) => stage.programs.flatMap(({ fields }) => fields));
  const runs = halves * (model.slicing?.slices ?? 1);
  return [...new Map(fields.map((field) => [field.name, runs * bytesOf(field)])).values()];
}

/** Bytes of the fields of a micro-batch. */
const fieldBytes = (compiled: CompiledRun): number =>
  bytesOfFields(compiled).reduce((sum, bytes) => sum + bytes, 0);

/** What a worker holds beside its stages. */
function planActor(options: RunMemoryOptions, worker: number): ActorBytes {
  const { compiled, schedule, devices, runtime, isolation } = options;
  const { programs, halves } = compiled, { name } = devices[worker % devices.length]!;
  const held = schedule.placement[worker]!;
  const libraries = held.map(({ stage }) =>
    planLibrary([programs[stage]!], optionsOf(compiled, stage), name)
  );
  let slots = 0, messages = 0;
  for (const { stage, pipeline } of held) {
    const most = countSlots(slotsOf(schedule, worker, stage, pipeline));
    slots += most;
    // The array of an activation comes back with its gradient, so there are no more of them.
    messages += most * outputBytes(programs[stage]!, halves);
  }
  return {
    transient: Math.max(...libraries.map(({ transient }) => transient)),
    sessions: libraries.reduce((sum, { sessions }) => sum + sessions, 0),
    messages,
    fields: slots * fieldBytes(compiled),
    sums: held.reduce((sum, { stage }) => sum + chunkBytes(options, stage), 0),
    state: 0,
    runtime: runtime === "local" ? 0 : placeBytes(isolation, libraryBytes(name)),
  };
}

/** What an isolate takes, wherever it lives. */
function placeBytes(isolation: PlaceName, library: ReturnType<typeof libraryBytes>): number {
  if (isolation === "worker") return ISOLATE_BYTES + library.isolate;
  // A rank of MPI has an isolate that communicates, and one that computes.
  const isolates = isolation === "mpi" ? 2 * ISOLATE_BYTES : 0;
  return PROCESS_BYTES + isolates + library.process + library.isolate;
}

/** The rows in which all copies of a stage are, where workers add gradients in memory that all see. */
function rowBytes({ compiled: { programs, stage }, ...options }: RunMemoryOptions): number {
  return copiesOf(options.schedule, options.replicas).reduce((sum, copies, index) => {
    const isShared = sharesRows(options, options.isolation, copies.length);
    return isShared ? sum + copies.length * gradientBytes(programs[index]!, stage) : sum;
  }, 0);
}

function gradientBytes(program: StageProgram, { precision }: CompiledRun["stage"]): number {
  const trained = stageParameters(program).filter(({ frozen }) => !frozen);
  return flatLength(trained) * (precision === "fp16" ? 2 : 4);
}

/** The chunks of an all-reduce under way for a copy of a stage: its own, the others' parts, the sum. */
function chunkBytes(options: RunMemoryOptions, index: number): number {
  const { compiled: { programs, stage }, coarsening, schedule, replicas, isolation } = options;
  const copies: readonly StageCopy[] = copiesOf(schedule, replicas)[index]!;
  if (copies.length === 1 || sharesRows(options, isolation, copies.length)) return 0;
  const bucket = (stage.bucketSize ?? BUCKET_SIZE) * (stage.precision === "fp16" ? 2 : 4);
  const all = gradientBytes(programs[index]!, stage);
  return 3 * Math.min(all, CHUNKS_UNDER_WAY * coarsening * bucket);
}

/** What the supervisor holds, and the program in which it is. */
function planSupervisor(options: RunMemoryOptions): ActorBytes {
  const { compiled, schedule, replicas, devices: [{ name }], runtime } = options;
  const library = libraryBytes(name), isLocal = runtime === "local";
  const taken = replicas * schedule.microBatches, stepBytes = taken * fieldBytes(compiled);
  const overhead = overheadBytes(taken, bytesOfFields(compiled).length);
  const { snapshot, state, keptSteps } = planState(options, stepBytes + overhead);
  return {
    ...NOTHING,
    // As they were taken, as they were sent, and those of steps that may be taken again.
    fields: 2 * stepBytes + keptSteps,
    sums: rowBytes(options),
    state: snapshot + state,
    runtime: PROCESS_BYTES + library.process + (isLocal ? library.isolate : 0),
  };
}

/** A serial run has each stage once, in one isolate. */
function planSerial(options: RunMemoryOptions): RunMemory {
  const { compiled, schedule, replicas, devices: [{ name }] } = options;
  const { model, stage, halves } = compiled, library = libraryBytes(name);
  const copies = copiesOf(schedule, replicas)[0]!.length;
  const planned = planMemory(model, { ...stage, backward: "whole", slots: halves });
  const supervisor = {
    ...NOTHING,
    ...planLibrary([model], { ...stage, backward: "whole" }, name),
    fields: replicas * schedule.microBatches * fieldBytes(compiled),
    // Gradients of a copy on the host, and the sum.
    sums: copies > 1 ? 2 * gradientBytes(model, stage) : 0,
    state: planState(options, 0).state,
    runtime: PROCESS_BYTES + library.process + library.isolate,
  };
  const totals = totalMemory([planned]) + actorBytes(supervisor);
  return { workers: [], supervisor, totalBytes: totals };
}
