/**
 * Plans the memory of a run, and reports a cut that sends more over skip edges than along the chain.
 *
 * [Note: counted memory] Weights, gradients, FP32 master weights, moments, activations of the
 * micro-batches that the schedule has in flight, and optimizer buckets, as {@linkcode planMemory}
 * plans for each stage. {@linkcode planRunMemory} adds the rest of a run.
 *
 * [Note: unreachable arrays] Unreachable arrays occupy memory until V8 collects them, which it delays
 * while there are few: up to about 64 MiB for each isolate.
 *
 * @module
 */

import type { ActorBytes, RunMemory, RuntimeName, WorkerMemory } from "../options/train_events.ts";
import type {
  DeviceName,
  ModelProgram,
  StageMemory,
  StageProgram,
  TensorSpec,
} from "../../kernels/mod.ts";
import {
  BUCKET_SIZE,
  commonSizes,
  DEVICES,
  DTYPE_BYTES,
  elementCount,
  isSkip,
  layersOf,
  mebibytes,
  planLibrary,
  planMemory,
  savedBytes,
  type SliceSlots,
  stageBorder,
  sumMemory,
  totalBytes,
} from "../../kernels/internal.ts";
import type { Action, ActionList, Schedule } from "../../schedules/mod.ts";
import { formatEdge, parts, peakOf, recomputedStages, WHOLE } from "../../schedules/internal.ts";
import { PIECE_ELEMENTS } from "../checkpoints/tensors.ts";
import { CHUNKS_IN_TRANSIT } from "../gradients/sync.ts";
import { ISOLATE_BYTES, PROCESS_BYTES } from "../options/limits.ts";
import type { RunOptions } from "../options/train_options.ts";
import { copiesOf, linkedSchedule, type StageCopy } from "../pipeline/layout.ts";
import { type CompiledStages, optionsOf } from "../pipeline/stage_copies.ts";
import { UPDATE_POLICIES } from "../pipeline/step.ts";
import type { PlaceName } from "../runtime/mod.ts";

import {
  type EngineOptions,
  gradientBytes,
  type RowOptions,
  sharesRows,
  stateShapes,
} from "./engine.ts";
import { bytesOfState, SNAPSHOT_EVERY, SNAPSHOT_STEPS, snapshotPlace } from "./recovery.ts";
import { KEPT_BYTES, overheadBytes } from "./step_log.ts";

/**
 * Returns the most micro-batches of one copy of a stage that have activations at a time, and that wait
 * for their W where backwards are split; with slices, the numbers of each slice, and of micro-batches
 * with activations of any slice.
 *
 * @param pipe the replica of the pipeline within a data-parallel one.
 */
export function slotsOf(
  schedule: Schedule,
  worker: number,
  stage: number,
  pipe: number,
): SliceSlots {
  const { lists, listPolicy, slices = 1, pipelineOf, weightBacklog = Infinity } = schedule;
  if (lists && listPolicy?.name !== "elastic") {
    const isOf = (one: Action) => one.stage === stage && pipelineOf[one.microBatch] === pipe;
    const listed = listedSlots(schedule, lists[worker]!, isOf);
    // Without a flush the next step begins before this one ends: a micro-batch for each version.
    const least = schedule.updates === "every-backward" ? schedule.weightVersions[worker]! : 0;
    return slices > 1 ? listed : { ...listed, slices: [Math.max(least, listed.slices[0]!)] };
  }
  const of = pipelineOf.filter((one) => one === pipe).length;
  const each = (count: number) => new Array<number>(slices).fill(count);
  if (slices > 1) return { slices: each(of), backwards: each(of), contexts: of };
  // An elastic policy may run ahead of its list, within the worker's limit.
  const limit = lists ? elasticLimit(schedule, worker) : mostOf(schedule, worker, stage, pipe);
  const most = Math.min(limit, of);
  return { slices: [most], backwards: [lists ? most : Math.min(most, weightBacklog)], contexts: 0 };
}

/**
 * Returns the most micro-batches in flight in a stage without a list.
 *
 * [Note: later stages of a worker] A micro-batch in a later stage of a worker is in its earlier stages,
 * too, until its I has run. So with at most M in all n stages together, and K between I and W, at most
 * (M + (n - 1)K) / n are in the last one.
 */
function mostOf(schedule: Schedule, worker: number, stage: number, pipe: number): number {
  const { peaks, placement, injectionLimit, weightBacklog = 0, limitBy } = schedule;
  const { most = injectionLimit, together = Infinity } = peaks?.[worker] ?? {};
  if (limitBy === "bytes") return most;
  const earlier = placement[worker]!.filter((one) => one.pipeline === pipe && one.stage < stage);
  const owed = earlier.length * weightBacklog;
  return Math.min(most, Math.floor((together + owed) / (earlier.length + 1)));
}

/** Returns the most micro-batches in flight in all stages of a worker with an elastic policy. */
function elasticLimit(schedule: Schedule, worker: number): number {
  // The limit does not count what waits for its R.
  if (recomputedStages(schedule).size > 0) return Infinity;
  const { activationLimit = 0 } = schedule.listPolicy!;
  return Math.ceil(Math.max(activationLimit, peakOf(schedule.lists![worker]!)));
}

/**
 * Returns the most slots of all copies of a worker at a time.
 *
 * @param own the slots of each.
 */
export function slotsTogether(
  schedule: Schedule,
  worker: number,
  own: readonly SliceSlots[],
): SliceSlots {
  const { lists, listPolicy, slices = 1, peaks, updates } = schedule;
  const isElastic = listPolicy?.name === "elastic";
  if (lists && !isElastic && updates === "flush") {
    return listedSlots(schedule, lists[worker]!, () => true);
  }
  const limit = isElastic ? elasticLimit(schedule, worker) : peaks?.[worker]?.together;
  const most = slices > 1 ? Infinity : limit ?? Infinity;
  const sum = (key: "slices" | "backwards") =>
    own[0]!.slices.map((_, i) => Math.min(most, own.reduce((all, one) => all + one[key][i]!, 0)));
  return { slices: sum("slices"), backwards: sum("backwards"), contexts: 0 };
}

/** Counts slots by walking a list. An activation stays until its B or W: an R frees nothing. */
function listedSlots(
  { slices = 1 }: Schedule,
  list: ActionList,
  isOf: (action: Action) => boolean,
): SliceSlots {
  const live = new Array<number>(slices).fill(0), peak = [...live], of = new Map<number, number>();
  const owed = [...live], backwards = [...live];
  let contexts = 0;
  for (const action of [...list].flatMap(parts)) {
    const { kind, microBatch, part = WHOLE } = action;
    if (kind === "R" || !isOf(action)) continue;
    const slice = slices === 1 ? 0 : part.index, share = slices / part.count;
    if (kind === "I" || kind === "B") {
      backwards[slice] = Math.max(backwards[slice]!, owed[slice]! + share);
    }
    if (kind === "I") owed[slice]! += share;
    if (kind === "W") owed[slice]! -= share;
    if (kind === "I") continue;
    const change = kind === "F" ? 1 : -share;
    const left = (of.get(microBatch) ?? 0) + change;
    live[slice]! += change;
    peak[slice] = Math.max(peak[slice]!, live[slice]!);
    if (left === 0) of.delete(microBatch);
    else of.set(microBatch, left);
    contexts = Math.max(contexts, of.size);
  }
  return { slices: peak, backwards, contexts };
}

/** Returns the number of micro-batches in the slots; slices count as parts. */
const countSlots = ({ slices }: SliceSlots): number =>
  slices.reduce((sum, count) => sum + count, 0) / slices.length;

/** Returns whether {@linkcode slotsOf} is only an upper bound, because the order of messages decides. */
function isBound({ lists, listPolicy, peaks }: Schedule, worker: number): boolean {
  if (lists) return listPolicy?.name === "elastic";
  return peaks === undefined || peaks[worker]!.least < peaks[worker]!.most;
}

/** Bytes that a limit counts: of the device, and of the host if the device has no separate memory. */
export function limitedBytes({ device, host }: StageMemory, name: DeviceName): number {
  return totalBytes(device) + (DEVICES[name].hasOwnMemory ? 0 : totalBytes(host));
}

/** Returns all bytes of some stages or workers, on device and host. */
export function totalMemory(memory: readonly StageMemory[]): number {
  return memory.reduce((sum, { device, host }) => sum + totalBytes(device) + totalBytes(host), 0);
}

/**
 * Plans the memory of each worker of a schedule.
 *
 * @param compiled the stages, and the number of kernel runs for each micro-batch; each run keeps its
 * activations.
 */
export function planWorkers(
  compiled: CompiledStages & Pick<CompiledRun, "halves" | "mirrored">,
  schedule: Schedule,
  device: DeviceName | undefined,
): WorkerMemory[] {
  const { programs, halves } = compiled, areFree = !device || DEVICES[device].hasFreeViews;
  return schedule.placement.map((held, worker) => {
    const versions = schedule.weightVersions[worker] ?? 1;
    const planStage = (stage: number, slots: number | SliceSlots) =>
      planMemory(programs[stage]!, {
        ...{ ...optionsOf(compiled, stage), hasFreeViews: areFree, versions, slots },
      });
    const own = held.map(({ stage, pipeline }) => slotsOf(schedule, worker, stage, pipeline));
    const together = withHalves(slotsTogether(schedule, worker, own), halves);
    const slots = own.map((one) => withHalves(one, halves));
    const stages = held.map(({ stage }, i) => planStage(stage, slots[i]!));
    const mirrors = mirrorsOn(compiled, worker).map((stage) => planStage(stage, 0));
    const { device: sum, host } = sumMemory([...stages, ...mirrors]);
    const shared = commonSizes(
      held.map(({ stage }) => ({ program: programs[stage]!, options: optionsOf(compiled, stage) })),
      areFree,
    );
    const activations = sum.activations - savedBytes(shared, slots, together);
    return { worker, isBound: isBound(schedule, worker), device: { ...sum, activations }, host };
  });
}

/** Returns the stages that a worker mirrors. */
const mirrorsOn = ({ mirrored = [] }: Pick<CompiledRun, "mirrored">, worker: number): number[] =>
  mirrored.flatMap((one, stage) => one === worker ? [stage] : []);

/** Gives each half of a micro-batch a slot; slices already have slots. */
function withHalves(slots: SliceSlots, halves: number): SliceSlots {
  const all = (counts: readonly number[]) => counts.map((count) => halves * count);
  return { ...slots, slices: all(slots.slices), backwards: all(slots.backwards) };
}

/**
 * Bytes of what a stage sends on for a micro-batch, to the next stage or to others.
 *
 * @param counts Returns whether a value counts. Default: each does.
 */
export function outputBytes(
  program: StageProgram,
  halves: number,
  counts: (name: string) => boolean = () => true,
): number {
  const { programs, layers, slicing } = program, runs = halves * (slicing?.slices ?? 1);
  if (programs[layers.at(-1)!.program]!.isLoss) return 0;
  const outputs = stageBorder(program).outputs.filter(({ name }) => counts(name));
  return outputs.reduce((sum, output) => sum + runs * bytesOf(output), 0);
}

/** Pieces of a tensor in memory between its holder and the file: fetched, in transit, or checked. */
const PIECES = 4;

/**
 * Returns the bytes of states and steps that a run holds: the last snapshot, if it is in memory; the
 * steps that are kept to be taken again; weights and moments that are read to be written, hashed or
 * returned.
 *
 * @param stepBytes of a step that is kept.
 */
function planState(options: RunMemoryOptions, stepBytes: number) {
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

/** Options that determine the memory of a run. */
export interface RunMemoryOptions
  extends
    RowOptions,
    Pick<EngineOptions, "schedule" | "replicas" | "coarsening">,
    Pick<RunOptions, "steps" | "snapshots" | "checkpoint" | "returnWeights"> {
  readonly compiled: CompiledRun;
  readonly runtime: RuntimeName;
  /** Failures that the run outlives. */
  readonly retries: number;
  /** Isolation of each worker. */
  readonly isolation: PlaceName;
  /** True if a spare process waits for the next loss. */
  readonly hasSpare?: boolean;
}

/** An actor without stages. */
const NO_STAGES = { transient: 0, sessions: 0, messages: 0 };

/** Plans the memory of a run in addition to its stages, and the total. */
export function planRunMemory(options: RunMemoryOptions): RunMemory {
  const { compiled: { memory }, schedule, replicas, runtime } = options;
  if (runtime === "serial") return planSerial(options);
  const workers = schedule.placement.map((_, worker) => planActor(options, worker));
  const supervisor = planSupervisor(options);
  const stages = totalMemory(memory);
  const actors = workers.reduce((sum, one) => sum + actorBytes(one), 0);
  const totals = replicas * (stages + actors) + actorBytes(supervisor);
  return { workers, supervisor, totalBytes: totals };
}

/** All bytes of an actor. */
export const actorBytes = (actor: ActorBytes): number =>
  Object.values(actor).reduce((sum: number, bytes: number) => sum + bytes, 0);

const bytesOf = ({ dtype, shape }: TensorSpec) => elementCount(shape) * DTYPE_BYTES[dtype];

/** Bytes of each field of a micro-batch that stages read. */
function bytesOfFields({ model, programs, halves }: CompiledRun): number[] {
  const fields = programs.flatMap(layersOf).flatMap(({ program }) => program.fields);
  const runs = halves * (model.slicing?.slices ?? 1);
  return [...new Map(fields.map((field) => [field.name, runs * bytesOf(field)])).values()];
}

/** Bytes of the fields of a micro-batch. */
const fieldBytes = (compiled: CompiledRun): number =>
  bytesOfFields(compiled).reduce((sum, bytes) => sum + bytes, 0);

/** Returns the memory of a worker besides its stages. */
function planActor(options: RunMemoryOptions, worker: number): ActorBytes {
  const { compiled, schedule, devices, runtime, isolation } = options;
  const { programs, halves } = compiled, { name } = devices[worker % devices.length]!;
  const held = schedule.placement[worker]!, mirrors = mirrorsOn(compiled, worker);
  const libraries = [...held.map(({ stage }) => stage), ...mirrors].map((stage) =>
    planLibrary([programs[stage]!], optionsOf(compiled, stage), name)
  );
  // Sums arrive from one worker while the sums of the worker's stages are sent to another.
  const mirrorBytes = [
    ...mirrors,
    ...held.flatMap(({ stage }) => compiled.mirrored?.[stage] === undefined ? [] : [stage]),
  ].reduce((sum, stage) => sum + gradientBytes(programs[stage]!, compiled.stage), 0);
  let slots = 0, messages = 0;
  for (const { stage, pipeline } of held) {
    const most = countSlots(slotsOf(schedule, worker, stage, pipeline));
    slots += most;
    // The gradient returns in the array of its activation, so there are no additional arrays.
    messages += most * outputBytes(programs[stage]!, halves);
  }
  return {
    transient: Math.max(...libraries.map(({ transient }) => transient)),
    sessions: libraries.reduce((sum, { sessions }) => sum + sessions, 0),
    messages,
    fields: slots * fieldBytes(compiled),
    sums: held.reduce((sum, { stage }) => sum + chunkBytes(options, stage), mirrorBytes),
    state: 0,
    runtime: runtime === "local" ? 0 : placeBytes(isolation, name),
  };
}

/** Memory of an isolate, in a worker or in a process. */
function placeBytes(isolation: PlaceName, name: DeviceName): number {
  const { libraryBytes: library } = DEVICES[name];
  if (isolation === "worker") return ISOLATE_BYTES + library.isolate;
  // A rank of MPI has an isolate that communicates, and one that computes.
  const isolates = isolation === "mpi" ? 2 * ISOLATE_BYTES : 0;
  return PROCESS_BYTES + isolates + library.process + library.isolate;
}

/** Bytes of the shared rows in which workers add the gradients of the copies of a stage. */
function rowBytes({ compiled: { programs, stage }, ...options }: RunMemoryOptions): number {
  return copiesOf(options.schedule, options.replicas).reduce((sum, copies, index) => {
    const isShared = sharesRows(options, options.isolation, copies.length);
    return isShared ? sum + copies.length * gradientBytes(programs[index]!, stage) : sum;
  }, 0);
}

/** Bytes of the chunks in transit of a stage copy: its own parts, the others' parts, and the sums. */
function chunkBytes(options: RunMemoryOptions, index: number): number {
  const { compiled: { programs, stage }, coarsening, schedule, replicas, isolation } = options;
  const copies: readonly StageCopy[] = copiesOf(schedule, replicas)[index]!;
  if (copies.length === 1 || sharesRows(options, isolation, copies.length)) return 0;
  const bucket = (stage.bucketSize ?? BUCKET_SIZE) * (stage.precision === "fp16" ? 2 : 4);
  const all = gradientBytes(programs[index]!, stage);
  return 3 * Math.min(all, CHUNKS_IN_TRANSIT * coarsening * bucket);
}

/** Returns the memory of the supervisor and its program, and of a spare process. */
function planSupervisor(options: RunMemoryOptions): ActorBytes {
  const { compiled, schedule, replicas, devices: [{ name }], runtime, hasSpare } = options;
  const library = DEVICES[name].libraryBytes, isLocal = runtime === "local";
  const taken = replicas * schedule.microBatches, stepBytes = taken * fieldBytes(compiled);
  const overhead = overheadBytes(taken, bytesOfFields(compiled).length);
  const { snapshot, state, keptSteps } = planState(options, stepBytes + overhead);
  return {
    ...NO_STAGES,
    // As taken, as sent, and those of steps that may be repeated.
    fields: 2 * stepBytes + keptSteps,
    sums: rowBytes(options),
    state: snapshot + state,
    runtime: PROCESS_BYTES + library.process + (isLocal ? library.isolate : 0) +
      (hasSpare ? placeBytes("process", name) : 0),
  };
}

/** A serial run has each stage once, in one isolate. */
function planSerial(options: RunMemoryOptions): RunMemory {
  const { compiled, schedule, replicas, devices: [{ name }] } = options;
  const { model, stage, halves } = compiled, library = DEVICES[name].libraryBytes;
  const copies = copiesOf(schedule, replicas)[0]!.length;
  const planned = planMemory(model, { ...stage, backward: "whole", slots: halves });
  const supervisor = {
    ...NO_STAGES,
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

/** Edges that a sentence names. */
const NAMED_MAX = 6;

/**
 * Returns a note about a cut; undefined if its stages send at least as much along the chain as over
 * skip edges.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { gpt2 } from "../../kernels/mod.ts";
 * import { createSchedule } from "../../schedules/mod.ts";
 * import { compileRun } from "./compile.ts";
 *
 * const model = gpt2({ layers: 2, hidden: 16, heads: 2, seq: 8, vocab: 32 }, 2);
 * const schedule = createSchedule("1f1b", { workers: 2, microBatches: 4 });
 * assert.equal(skipTrafficNote(compileRun({ model }, schedule), schedule), undefined);
 * ```
 */
export function skipTrafficNote(compiled: CompiledRun, schedule: Schedule): string | undefined {
  const { edges = [] } = linkedSchedule(schedule, compiled), { programs, halves } = compiled;
  const bySkips = edges.reduce((sum, { to, bytes = 0 }) => sum + to.length * bytes, 0);
  const handed = programs.slice(0, -1).reduce(
    (sum, program) => sum + outputBytes(program, halves, (name) => !isSkip(name)),
    0,
  );
  if (bySkips <= handed) return undefined;
  const all = [...new Set(edges.map(formatEdge))], named = all.slice(0, NAMED_MAX);
  const more = all.length > NAMED_MAX ? `, and ${all.length - NAMED_MAX} more` : "";
  const over = `over skip edges (${named.join(", ")}${more})`;
  const than = `more than the ${mebibytes(handed)} along the chain`;
  return `This cut sends ${mebibytes(bySkips)} of a micro-batch ${over}, ${than}; fewer stages, ` +
    "or another layout, may send less";
}

/** A model, ready to be opened by workers. */
export interface CompiledRun extends CompiledStages {
  /** For half a micro-batch where the schedule runs backwards in halves. */
  readonly model: ModelProgram;
  /** Runs of the kernels for each micro-batch. */
  readonly halves: 1 | 2;
  /** For each stage the worker that mirrors it, if one does; empty if stages are not mirrored. */
  readonly mirrored?: readonly (number | undefined)[];
  /** Planned memory of each worker of a data-parallel replica. */
  readonly memory: readonly WorkerMemory[];
}
