/**
 * The interface of an engine, which runs optimizer steps: the pipeline of actors, or the serial loop
 * that is its oracle. Also the initial data of its workers.
 *
 * @module
 */

import type {
  Batch,
  DeviceChoice,
  ModelParameter,
  ModelProgram,
  ParameterSpec,
  StageOptions,
  StageProgram,
  StateOf,
  Tie,
} from "../../kernels/mod.ts";
import {
  cutIntoStages,
  DEVICES,
  flatLength,
  isLora,
  jobParameter,
  momentsOf,
  type StageState,
  withAliases,
} from "../../kernels/internal.ts";
import { pipelineWorkers } from "../../schedules/mod.ts";
import { recomputedStages } from "../../schedules/internal.ts";

import type { ShardOrder, WrittenShard } from "../checkpoints/read.ts";
import {
  type HeldState,
  parameterOf,
  type Shapes,
  type TensorSource,
} from "../checkpoints/tensors.ts";
import { NonFiniteError } from "../gradients/commit.ts";
import type { TieEnd } from "../gradients/sync.ts";
import { buddiesOf, copiesOf, linkedSchedule, type StageCopy } from "../pipeline/layout.ts";
import type { WriteOutcome } from "../pipeline/protocol.ts";
import {
  type PlanOptions,
  policyData,
  type StepOutcome,
  type StepRequest,
  UPDATE_POLICIES,
} from "../pipeline/step.ts";
import type { WorkerFault, WorkerInit } from "../pipeline/worker_state.ts";
import type { ObserverSpec, PlaceName, Transport } from "../runtime/mod.ts";
import type { CheckedOptions } from "../options/train_table.ts";
import { knownTransports, type PlaceOptions } from "../transports/system.ts";

/**
 * Takes optimizer steps. Calls must be awaited one after another, except steps when the engine runs
 * ahead.
 */
export interface Engine {
  /** Number of steps to begin before the oldest one has ended, to keep the pipeline full; often 0. */
  readonly ahead: number;
  /** Lets the steps that have begun end; without it, the last of them may not end. */
  drain(): Promise<void>;
  /** Trains on the micro-batches of one step. */
  step(request: StepRequest): Promise<StepOutcome>;
  /** Returns the losses of micro-batches, without training on them. */
  evaluate(microBatches: readonly Batch[]): Promise<readonly Float32Array[]>;
  /**
   * Compares weights and moments of all copies, if results are verified.
   *
   * @throws {WorkerLostError} when they differ.
   */
  compare?(): Promise<void>;
  /** Returns weights and moments of the whole model. */
  save(): Promise<StageState>;
  /** Weights and moments, read from the workers between steps. Absent: use `save`. */
  readonly held?: HeldState | undefined;
  /**
   * Makes each worker write its weights and moments into a folder; undefined if checkpoints are made
   * from the result of `save`.
   *
   * @param folder Absolute path.
   * @param step Optimizer steps done.
   */
  write?(folder: string, step: number): Promise<readonly WrittenShard[]>;
  /**
   * Frees devices and workers.
   *
   * @param isMoving True if another engine follows, in the isolates of this one.
   */
  close(isMoving?: boolean): Promise<void>;
}

/** Options of an engine. */
export interface EngineOptions
  extends
    PlanOptions,
    Pick<WorkerInit, "halves" | "kernels" | "stage" | "verification" | "isTraced">,
    Pick<
      CheckedOptions,
      | ("sync" | "reduce" | "coarsening" | "clip" | "link" | "buddy" | "supervisor" | "worker")
      | ("heapLimitMb" | "stallMs" | "transport" | "system")
    > {
  /** The compiled model; for half a micro-batch where the schedule runs backwards in halves. */
  readonly model: ModelProgram;
  /** First weights by name, and moments where a run is resumed, or where they come from. */
  readonly state: StateOf<TensorSource>;
  /** Devices that the workers use in turn; an engine without workers uses the first. */
  readonly devices: readonly [DeviceChoice, ...DeviceChoice[]];
  /** True if each worker writes a shard of a checkpoint. Default false. */
  readonly isSharded?: boolean | undefined;
  /** True if the survivors of a lost worker freeze, so that the run moves to them. */
  readonly freezes?: boolean | undefined;
  /** Receives a line for each step that is repeated because its results are in doubt. */
  readonly onDoubt?: ((line: string) => void) | undefined;
  /** Writes the journal or the black box of the run. */
  readonly observer?: ObserverSpec | undefined;
  /** The journal, for which messages must carry all values. */
  readonly journal?: unknown;
}

/** Returns the parameters of a stage under their full names. */
function stageParameters({ layers, programs, jobs }: StageProgram): ParameterSpec[] {
  const all = layers.flatMap(({ prefix, program }) =>
    programs[program]!.parameters.map(({ name, ...spec }) => ({ ...spec, name: prefix + name }))
  );
  if (!jobs) return all;
  const { names, variants, variantOf } = jobs, isOwn = ({ name }: ParameterSpec) => isLora(name);
  const own = names.flatMap((job, i) =>
    stageParameters(variants[variantOf[i]!]!).filter(isOwn)
      .map((spec) => ({ ...spec, name: jobParameter(job, spec.name) }))
  );
  return [...all.filter((spec) => !isOwn(spec)), ...own];
}

/** Full names of a stage's parameters. */
function parameterNames(program: StageProgram): string[] {
  return stageParameters(program).map(({ name }) => name);
}

/** Returns the part of a model's state that belongs to a stage. */
export function stateOf<T>(program: StageProgram, state: StateOf<T>): StateOf<T> {
  const names = parameterNames(program).filter((name) => state.weights.has(name));
  const weights = new Map(names.map((name) => [name, state.weights.get(name)!]));
  const moments = new Map([...state.moments].filter(([key]) => weights.has(parameterOf(key))));
  return { weights, moments };
}

/** Returns the sizes of parameters, and of the moments of the trained ones. */
export function stateShapes(
  parameters: readonly Pick<ModelParameter, "name" | "shape" | "isFrozen">[],
  { stage, kernels }: Pick<EngineOptions, "stage" | "kernels">,
): HeldState["shapes"] {
  const moments = (shape: readonly number[]) =>
    kernels?.moments.map((name) => ({ name, shape })) ?? momentsOf(stage.optimizer, shape);
  const trained = parameters.filter(({ isFrozen }) => !isFrozen);
  const optimizer: Shapes = new Map(
    trained.flatMap(({ name, shape }) =>
      moments(shape).map((moment) => [`${name}.${moment.name}`, moment.shape] as const)
    ),
  );
  return { model: new Map(parameters.map(({ name, shape }) => [name, shape])), optimizer };
}

/**
 * The state of a run as its stages hold it.
 *
 * @param read reads parts of one stage.
 */
export function heldByStages(
  options: Pick<EngineOptions, "model" | "schedule" | "stage" | "kernels">,
  read: (stage: number, parts: Parameters<HeldState["read"]>[0]) => ReturnType<HeldState["read"]>,
): HeldState {
  const { model, schedule } = options;
  const stages = new Map(
    cutIntoStages(model, schedule.stages).flatMap((program, stage) =>
      parameterNames(program).map((name) => [name, stage] as const)
    ),
  );
  const holderOf = (name: string) => (stages.get(name) ?? stages.get(parameterOf(name)))!;
  return {
    // Aliases of ties are no parameters of the model: they have one name.
    shapes: stateShapes(model.parameters, options),
    holderOf,
    read: (parts) => read(holderOf(parts[0]!.name), parts),
  };
}

/** Returns the shard of each worker that holds the first copy of a stage; other copies are equal. */
export function shardOrders(
  options: Pick<EngineOptions, "model" | "schedule" | "replicas" | "stage" | "kernels">,
  folder: string,
): { readonly worker: number; readonly order: ShardOrder }[] {
  const { model, schedule, replicas } = options;
  const owners = copiesOf(schedule, replicas).map(([first]) => first!.worker);
  // Aliases of ties are no parameters of the model: checkpoints hold them under one name.
  const known = new Map(model.parameters.map((parameter) => [parameter.name, parameter]));
  const held = new Map<number, Map<string, number>>();
  for (const [stage, program] of cutIntoStages(model, schedule.stages).entries()) {
    const stages = held.getOrInsertComputed(owners[stage]!, () => new Map());
    for (const name of parameterNames(program)) if (known.has(name)) stages.set(name, stage);
  }
  return Array.from(held, ([worker, stages], i) => {
    const shapes = stateShapes([...stages.keys()].map((name) => known.get(name)!), options);
    return { worker, order: { folder, nth: i + 1, count: held.size, shapes, stages } };
  });
}

/**
 * Returns the shards if all were written.
 *
 * @throws {NonFiniteError} when a worker has numbers that no checkpoint may keep.
 * @throws {Error} saying which file a worker could not write, and why.
 */
export function writtenShards(outcomes: readonly WriteOutcome[]): WrittenShard[] {
  return outcomes.map((outcome) => {
    if ("shard" in outcome) return outcome.shard;
    throw outcome.isNonFinite ? new NonFiniteError(outcome.problem) : new Error(outcome.problem);
  });
}

/** Returns the ties whose parameters are trained: the gradients of tied parameters are added. */
export function trainedTies({ ties, parameters }: ModelProgram): readonly Tie[] {
  const frozen = new Set(parameters.filter(({ isFrozen }) => isFrozen).map(({ name }) => name));
  return ties.filter(([canonical]) => !frozen.has(canonical));
}

/** Names of parameters that are one: first the canonical one, then its aliases in order. */
export function tieGroups(ties: readonly Tie[]): readonly (readonly string[])[] {
  const groups = Map.groupBy(ties, ([canonical]) => canonical);
  return [...groups].map(([canonical, own]) => [canonical, ...own.map(([, alias]) => alias)]);
}

/** Returns the largest number of parameters that are tied together; 1 if none are tied. */
export const mostTied = (ties: readonly Tie[]): number =>
  Math.max(1, ...tieGroups(ties).map(({ length }) => length));

/** A state without the weights and moments of aliases, as checkpoints keep it. */
export function withoutAliases(
  { weights, moments }: StageState,
  ties: ModelProgram["ties"],
): StageState {
  const aliases = new Set(ties.map(([, alias]) => alias));
  const keep = (values: ReadonlyMap<string, Float32Array>) =>
    new Map([...values].filter(([key]) => !aliases.has(key) && !aliases.has(parameterOf(key))));
  return { weights: keep(weights), moments: keep(moments) };
}

/** All parameters that are tied to others, by the stage that holds them. */
export function tieEnds(
  programs: readonly StageProgram[],
  ties: ModelProgram["ties"],
): TieEnd[][] {
  const stageOf = (name: string) =>
    programs.findIndex((program) => parameterNames(program).includes(name));
  const ends = tieGroups(ties).flatMap((names) => {
    const members = names.map((name) => ({ name, stage: stageOf(name) }));
    return members.map((member, place) => ({ ...member, place, members }));
  });
  return programs.map((_, stage) => ends.filter((end) => end.stage === stage));
}

/** Returns the transport to workers in a place; undefined in the supervisor's isolate. */
export function transportTo(isolate: PlaceName, options: PlaceOptions): Transport | undefined {
  if (isolate === "local" || options.system?.transports.length === 0) return undefined;
  return knownTransports(options).find(({ name }) => name === isolate);
}

/** The all-reduce algorithm of each choice. */
const ALGORITHMS = { deterministic: "direct", fast: "fast", mpi: "collective" } as const;

/** Returns the init records of the workers of all data-parallel replicas. */
export function workerInits(
  options: EngineOptions,
  isolate: PlaceName,
  fault: WorkerFault | undefined,
): WorkerInit[] {
  const { model, schedule, scheduleOptions, replicas, devices, halves, reduce, link } = options;
  const programs = cutIntoStages(model, schedule.stages);
  const states = withAliases(options.state, model.ties);
  const copies = copiesOf(schedule, replicas), all = replicas * schedule.workers;
  const buddies = options.buddy ? buddiesOf(copies, all) : undefined;
  const { edges } = linkedSchedule(schedule, { model, halves });
  const ties = tieEnds(programs, trainedTies(model));
  const shared = sharedRows(options, isolate, programs, copies[0]!.length);
  const policy = UPDATE_POLICIES[schedule.updates], { isFlushed } = policy;
  const recomputed = recomputedStages(schedule);
  const stageOf = (worker: number) => {
    const { longestSlots } = options.stage;
    const most = longestSlots && schedule.peaks?.[worker % schedule.workers]?.most;
    return {
      ...options.stage,
      ...most && { longestSlots: most },
      ...!isFlushed && { versions: schedule.weightVersions[worker]! },
    };
  };
  const initOf = (copy: StageCopy) => {
    const program = programs[copy.stage]!, state = stateOf(program, states);
    return {
      copy,
      program,
      laterFields: fieldsOf(programs.slice(copy.stage + 1)),
      ...recomputed.has(copy.stage) && { isRecomputed: true as const },
      state,
    };
  };
  const mirrorsOn = (worker: number) =>
    buddies!.flatMap((buddy, stage) => {
      const { [stage]: own } = copies, rank = own!.length;
      return buddy === worker ? [initOf({ ...own![0]!, rank, worker })] : [];
    });
  return Array.from({ length: all }, (_, worker): WorkerInit => ({
    worker,
    replica: Math.floor(worker / schedule.workers),
    device: devices[worker % devices.length]!,
    held: copies.flat().filter((copy) => copy.worker === worker).map(initOf),
    ...buddies && { mirrors: mirrorsOn(worker), buddies },
    copies,
    edges,
    pipelineWorkers: pipelineWorkers(schedule),
    updates: schedule.updates,
    pipelineLimit: policy.inFlight(schedule),
    uncredited: isFlushed ? policy.inFlight(schedule) + policy.ahead(schedule) : 0,
    policy: policyData(schedule, scheduleOptions, worker % schedule.workers),
    stage: stageOf(worker),
    halves,
    reduce: { algorithm: ALGORITHMS[reduce], coarsening: options.coarsening, shared },
    ties,
    link,
    isTraced: options.isTraced,
    verification: options.verification,
    kernels: options.kernels,
    fault,
  }));
}

/** Returns the names of the fields that stages read. */
const fieldsOf = (stages: readonly StageProgram[]): string[] => {
  const fields = stages.flatMap(({ programs }) => programs.flatMap(({ fields }) => fields));
  return [...new Set(fields.map(({ name }) => name))];
};

/** Options that decide the place of gradient sums. */
export type RowOptions = Pick<
  EngineOptions,
  "reduce" | "link" | "system" | "devices" | "transport" | "journal"
>;

/**
 * Returns whether workers add the gradients of a stage's copies in shared memory, if the host adds
 * them. Over an emulated link, and where messages must contain all values, gradients travel.
 */
export function sharesRows(
  options: RowOptions,
  isolate: PlaceName,
  copies: number,
): boolean {
  const { reduce, link, journal, system, devices: [device] } = options;
  return reduce === "deterministic" && !link && copies > 1 && !journal && !system &&
    DEVICES[device.name].hasFreeViews && transportTo(isolate, options)?.sharesMemory !== false;
}

/** Returns shared memory for the gradient sums of each stage. */
function sharedRows(
  options: EngineOptions,
  isolate: PlaceName,
  programs: readonly StageProgram[],
  copies: number,
): (SharedArrayBuffer | undefined)[] {
  const isShared = sharesRows(options, isolate, copies);
  return programs.map((program) =>
    isShared ? new SharedArrayBuffer(copies * gradientBytes(program, options.stage)) : undefined
  );
}

/** Returns the bytes of the gradients of a stage. */
export function gradientBytes(program: StageProgram, { precision }: StageOptions): number {
  const trained = stageParameters(program).filter(({ frozen }) => !frozen);
  return flatLength(trained) * (precision === "fp16" ? 2 : 4);
}
