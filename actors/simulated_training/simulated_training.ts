/**
 * Scenarios of `troupe explore`: simulated training with any schedule, or the scenario of a module.
 *
 * @module
 */

import { pathToFileURL } from "node:url";
import {
  ADAMW_DEFAULTS,
  type Batch,
  type InputSpec,
  type LayerProgram,
  type ModelProgram,
  type OutputSpec,
  type TensorSpec,
} from "../../kernels/mod.ts";
import { assertInput, resultOr, type StageState } from "../../kernels/internal.ts";
import {
  createSchedule,
  type ElasticOptions,
  type Schedule,
  scheduleNames,
  type ScheduleOptions,
  type SkipEdge,
  withPolicy,
} from "../../schedules/mod.ts";
import { halvesOf, splitsBackward, withEdges } from "../../schedules/internal.ts";
import { hashWeights } from "../checkpoints/format.ts";
import { gatherState } from "../checkpoints/tensors.ts";
import type { TrainOptions } from "../options/train_options.ts";
import { REFUSAL } from "../pipeline/protocol.ts";
import type { KernelModule } from "../pipeline/stage_copies.ts";
import { type StepOutcome, type StepRequest, UPDATE_POLICIES } from "../pipeline/step.ts";
import { type Engine, type EngineOptions, stateShapes } from "../run/engine.ts";
import { MovingHosts } from "../run/hosts.ts";
import { openPipeline } from "../run/pipeline.ts";
import { assertServable, assertTrainable } from "../run/prepare.ts";
import { openSnapshots, Recovery, WorkerLostError } from "../run/recovery.ts";
import type { SupervisorView } from "../pipeline/supervisor.ts";
import { TRAINING_ACTORS } from "../run/run_journal.ts";
import { openSerial } from "../run/serial.ts";
import type { Scenario, World } from "../simulation/run.ts";
import { addInvariants } from "./invariants.ts";

/**
 * Options of simulated training, as plain data. By default, 4 workers take one step of 8 micro-batches
 * in each of 2 replicas; without flushes there is only one replica.
 */
export interface SimulatedTrainingOptions
  extends Pick<TrainOptions, "workers" | "microBatches" | "replicas" | "steps" | "sync" | "clip"> {
  /** The name of the schedule. */
  readonly schedule: string;
  /**
   * Steps between two pauses, in which the pipe is drained and a micro-batch is evaluated. Default: no
   * pauses.
   */
  readonly pauseEvery?: number;
  /** Options of the schedule. */
  readonly options?: Partial<ScheduleOptions>;
  /** Limits of lists whose later actions may run early. Default: they are followed strictly. */
  readonly elastic?: ElasticOptions;
  /** True for samples of four lengths, in turn. Default false. */
  readonly lengths?: boolean;
  /**
   * Skip edges between the stages; the value of an edge without gradient is a mask of type bool.
   * Default: none.
   */
  readonly edges?: readonly SkipEdge[];
  /** True if a worker may be lost, as when faults are injected. Default false. */
  readonly mayLose?: boolean;
  /** True if the run moves to the workers that remain when one is lost. Default false. */
  readonly mayMove?: boolean;
  /** True if a stage that one worker holds is mirrored by the next one. Default false. */
  readonly buddy?: boolean;
  /** True if sums, states and messages are verified. Default false. */
  readonly verifies?: boolean;
  /** Step, from 1, at which other workers start to replace lost ones. Default: none join. */
  readonly joinBefore?: number;
}

/** Values of a sample between layers, and weights of a layer. */
const WIDTH = 12;

/** Values of samples of different lengths, the longest first. */
const LENGTHS = [WIDTH, 9, 6, 3];

/** Elements of a bucket: a layer has three, so that the third chunk waits for the first. */
const BUCKET_SIZE = 4;

/** Samples of a micro-batch; two, because some schedules halve it. */
const SAMPLES = 2;

/** A high rate, so that the last bit of a gradient changes the weights. */
const LEARNING_RATE = 1;

/** The virtual time without messages after which a step has stalled. */
const STALL_MS = 60_000;

/** Kernels without a device, whose optimizer keeps no moments. */
const FAKE_KERNELS: KernelModule = {
  module: new URL("fake_stage.ts", import.meta.url).href,
  export: "openFakeStage",
  moments: [],
};

/** Options of its engines, with an initial state that tests may change. */
interface SimulatedEngineOptions extends EngineOptions {
  readonly state: StageState;
}

/** Prepared simulated training, which can run any number of times. */
export type PreparedSimulation = ReturnType<typeof prepareSimulation>;

/** Prepares simulated training. @throws {RangeError} if the options cannot train. */
export function prepareSimulation(plan: SimulatedTrainingOptions) {
  const options = optionsOf(plan);
  return { options, requests: requestsOf(plan, options) };
}

/** Checks that the weights, or the losses, are equal to those of serial training. */
export function assertSerial(hash: string, expected: string, what = "weights"): void {
  assertInput(hash === expected, "end", `the ${what} must be the serial ${expected}`, hash, Error);
}

function optionsOf(plan: SimulatedTrainingOptions): SimulatedEngineOptions {
  const { workers = 4, microBatches = 8, sync = "end", clip } = plan;
  const scheduleOptions: ScheduleOptions = { ...plan.options, workers, microBatches };
  const named = createSchedule(plan.schedule, scheduleOptions), { elastic } = plan;
  const { activationLimit, weightBacklog } = elastic ?? {};
  const chain = elastic ? withPolicy(named, "elastic", activationLimit, weightBacklog) : named;
  const schedule = plan.edges ? withEdges(chain, plan.edges) : chain;
  assertTrainable(schedule);
  const { replicas = UPDATE_POLICIES[schedule.updates].isFlushed ? 2 : 1 } = plan;
  assertServable(schedule, { replicas, sync, clip, precision: "fp32", ties: 0 });
  const halves = halvesOf(schedule);
  const model = modelOf(schedule, SAMPLES / halves, plan.lengths ? LENGTHS : [WIDTH]);
  const { slices = 1 } = schedule, must = `slices must divide the ${WIDTH} values of a sample`;
  assertInput(WIDTH % slices === 0, "simulate training", must, slices);
  return {
    model,
    state: {
      weights: new Map(model.parameters.map(({ name }, n) => [name, valuesOf(WIDTH, n)])),
      moments: new Map(),
    },
    schedule,
    scheduleOptions,
    replicas,
    halves,
    predictionsOf: () => SAMPLES,
    ...schedule.limitBy && { sizeOf: ({ rows }) => rows!.length / (SAMPLES * WIDTH) },
    devices: [{ name: "reference" }],
    kernels: FAKE_KERNELS,
    stage: {
      optimizer: ADAMW_DEFAULTS,
      backward: splitsBackward(schedule) ? "split" : "whole",
      bucketSize: BUCKET_SIZE,
    },
    sync,
    reduce: "deterministic",
    coarsening: 1,
    clip,
    verification: plan.verifies ? { mode: "actions", every: 1 } : undefined,
    stallMs: STALL_MS,
    isTraced: false,
    seed: 0,
  };
}

function requestsOf(
  { steps = 1, lengths = false }: SimulatedTrainingOptions,
  { schedule, replicas }: EngineOptions,
): StepRequest[] {
  const count = replicas * schedule.microBatches;
  return Array.from({ length: steps }, (_, t): StepRequest => ({
    step: t + 1,
    update: t + 1,
    microBatches: Array.from({ length: count }, (_, g): Batch => ({
      rows: valuesOf(SAMPLES * (lengths ? LENGTHS[3 * g % 4]! : WIDTH), t * count + g),
    })),
    predictions: count * SAMPLES,
    learningRate: LEARNING_RATE,
    lossScale: 1,
  }));
}

/** Returns values from −1 to 1 whose f32 sums depend on their order. */
function valuesOf(length: number, nth: number): Float32Array {
  return Float32Array.from(
    { length },
    (_, i) => 2 * ((i * 7919 + nth * 104_729 + 1) % 10_007) / 10_007 - 1,
  );
}

/** Returns for each layer, one for each stage, the inputs and outputs of skip edges. */
function skipsOf({ stages, edges = [] }: Schedule, shape: readonly number[]) {
  const values = edges.map(({ from, to, hasGradient = true }, i) => {
    const dtype = hasGradient ? "f32" as const : "bool" as const;
    const spec: TensorSpec = { name: `skip.${i}`, dtype, shape };
    return { from, to, last: Math.max(...to), spec, hasGradient };
  });
  return Array.from({ length: stages }, (_, layer) => ({
    outputs: values.filter(({ from }) => from === layer)
      .map(({ spec, hasGradient }): OutputSpec => ({ ...spec, hasGradient })),
    inputs: values.filter(({ to }) => to.includes(layer))
      .map(({ spec, last, hasGradient }): InputSpec => ({
        ...spec,
        ...hasGradient && { gradient: layer === last ? "written" : "added" },
      })),
  }));
}

/** Makes a model with a layer for each stage. */
function modelOf(schedule: Schedule, samples: number, lengths: readonly number[]): ModelProgram {
  const { stages, slices = 1 } = schedule;
  const tensor = (name: string, ...shape: number[]): TensorSpec => ({ name, dtype: "f32", shape });
  const weight = {
    name: "weight",
    shape: [WIDTH],
    initializer: { kind: "constant", value: 0 },
  } as const;
  const programOf = (
    layer: number,
    width: number,
    skips: ReturnType<typeof skipsOf>,
  ): LayerProgram => ({
    parameters: [weight],
    fields: layer === 0 ? [tensor("rows", samples, width)] : [],
    inputs: [
      ...layer > 0 ? [{ ...tensor("x", samples, width), gradient: "written" as const }] : [],
      ...skips[layer]!.inputs,
    ],
    outputs: [{
      ...layer < stages - 1 ? tensor("x", samples, width) : tensor("x", samples),
      hasGradient: true,
    }, ...skips[layer]!.outputs],
    isLoss: layer === stages - 1,
    precision: "fp32",
    saved: [],
    carried: [],
    models: { forward: new Uint8Array() },
    cost: { forward: 1, backward: 2 },
  });
  const programs = lengths.map((length) => length / slices).flatMap((width) => {
    const skips = skipsOf(schedule, [samples, width]);
    return Array.from({ length: stages }, (_, layer) => programOf(layer, width, skips));
  });
  const layers = Array.from({ length: stages }, (_, layer) => {
    const name = `layer.${layer}`, all = lengths.map((_, i) => i * stages + layer);
    return { name, prefix: `${name}.`, program: layer, ...lengths.length > 1 && { lengths: all } };
  });
  return {
    name: "rehearsal",
    predictions: SAMPLES,
    programs,
    layers,
    parameters: layers.map(({ prefix }) => ({
      name: `${prefix}weight`,
      shape: weight.shape,
      spec: weight,
      isFrozen: false,
    })),
    ties: [],
    costs: programs.slice(0, stages).map(({ cost }) => cost.forward + cost.backward),
    ...lengths.length > 1 && { lengths },
    ...slices > 1 && { slicing: { slices, samples } },
  };
}

/** The result of simulated training. */
export interface SimulatedTrainingResult {
  /** Hash of all weights after the last step. */
  readonly weightsHash?: string;
  /** The loss of a worker, if there are no weights. */
  readonly lost?: string;
  /** For each loss after which the run has moved, the steps that were taken again. */
  readonly retaken?: readonly number[];
  /** Moves to workers that have joined. */
  readonly joins?: number;
  /** Restarts of all workers. */
  readonly restarts?: number;
  /** Commits of steps, those of repeated steps included. */
  readonly commits?: number;
}

/** Runs steps, and returns those that changed weights: committed ones, or without flushes all. */
async function perform(
  requests: readonly StepRequest[],
  engine: Engine,
  { schedule }: EngineOptions,
  pauseEvery = Infinity,
) {
  const { isFlushed } = UPDATE_POLICIES[schedule.updates];
  const begun: Promise<StepOutcome>[] = [], taken: StepRequest[] = [];
  const losses: StepOutcome["losses"][] = [];
  for (const request of requests) {
    const ending = engine.step(request);
    // Without flushes a step may end together with later ones, so failures are handled at the end.
    ending.catch(() => {});
    begun.push(ending);
    if (engine.ahead === 0) await ending;
    if (request.step % pauseEvery > 0) continue;
    await engine.drain();
    await engine.evaluate(request.microBatches.slice(0, 1));
  }
  await engine.drain();
  for (const [i, ending] of begun.entries()) {
    const outcome = await ending;
    losses.push(outcome.losses);
    if (outcome.isCommitted || !isFlushed) taken.push(requests[i]!);
  }
  const { weights } = await engine.save();
  return { taken, weightsHash: hashWeights(weights), lossesHash: hashLosses(losses) };
}

/** Returns the hash of the losses of some steps. */
const hashLosses = (steps: readonly StepOutcome["losses"][]): string =>
  hashWeights(new Map(steps.flat().map((one, i) => [`${i}`.padStart(9, "0"), one])));

/** Trains without actors and returns the hash of all weights, which every order must have. */
export async function trainSerially(plan: SimulatedTrainingOptions): Promise<string> {
  const { options, requests } = recall(plan), engine = await openSerial(options);
  return (await perform(requests, engine, options, plan.pauseEvery)).weightsHash;
}

/** Prepared simulated training, with the results of serial training by the steps taken. */
interface Recalled extends PreparedSimulation {
  readonly expected: Map<string, ReturnType<typeof perform>>;
}

/** Consecutive runs mostly have the same options. */
const recalled = new WeakMap<SimulatedTrainingOptions, Recalled>();

const recall = (plan: SimulatedTrainingOptions): Recalled =>
  recalled.getOrInsertComputed(plan, () => ({ ...prepareSimulation(plan), expected: new Map() }));

async function expectedOf(
  { options, expected }: Recalled,
  taken: readonly StepRequest[],
  pauseEvery?: number,
): ReturnType<typeof perform> {
  const serial = async () => {
    const engine = await openSerial(options);
    return await perform(taken, engine, options, pauseEvery);
  };
  return await expected.getOrInsertComputed(taken.map(({ step }) => step).join(), serial);
}

/**
 * The scenario of simulated training: makes the workers in plain order, then runs the steps, and
 * checks invariants after each message. The weights must be those of serial training, bit for bit.
 *
 * @throws {WorkerLostError} (and so fails the run) if a worker is lost, unless the options allow it.
 *
 * @example Any order of messages gives the weights of serial training
 * ```ts
 * import assert from "node:assert/strict";
 * import { pos, simulate } from "@troupe/troupe/testing";
 * import { simulatedTraining, trainSerially } from "@troupe/troupe/actors";
 *
 * const plan = { schedule: "chimera", workers: 2, microBatches: 4 };
 * const { value } = await simulate({ seed: 1, strategy: pos(), configuration: plan }, simulatedTraining);
 * assert.equal(value?.weightsHash, await trainSerially(plan));
 * ```
 */
export const simulatedTraining: Scenario<SimulatedTrainingResult, SimulatedTrainingOptions> =
  async (
    world: World<SimulatedTrainingOptions>,
  ): Promise<SimulatedTrainingResult> => {
    const plan = world.configuration, prepared = recall(plan), { options, requests } = prepared;
    if (plan.mayMove) return await trainMoving(world, prepared);
    try {
      const opening = openPipeline({ ...options, system: world.system }, "local");
      // A failure is handled when the engine is awaited.
      opening.catch(() => {});
      await world.settle();
      const engine = await opening;
      addInvariants(world, options);
      const { taken, weightsHash } = await perform(requests, engine, options, plan.pauseEvery);
      const expected = await expectedOf(prepared, taken, plan.pauseEvery);
      assertSerial(weightsHash, expected.weightsHash);
      return { weightsHash };
    } catch (error) {
      if (plan.mayLose && isLoss(error)) return { lost: error.message };
      throw error;
    }
  };

/** Returns true for a lost worker; a worker that refused a message has found a bug. */
function isLoss(error: unknown): error is WorkerLostError {
  return error instanceof WorkerLostError && !error.message.includes(REFUSAL);
}

/** A scenario with its configuration. */
export interface Example {
  readonly scenario: Scenario<unknown, unknown>;
  readonly configuration: unknown;
  readonly smaller?: (configuration: unknown) => readonly unknown[];
  /** Absolute URLs of its modules. */
  readonly modules: readonly string[];
  /** Ids of the actors that may crash. Default: all. */
  readonly mayHit?: readonly string[];
}

/**
 * Finds an example: the name of a schedule, whose training is simulated with 4 stages, 8 micro-batches
 * and 2 replicas, or the path of a module that exports `scenario`, and may export `configuration`.
 *
 * @param mayLose True if a lost worker is not a failure, as when faults are injected.
 * @throws {RangeError} if the schedule does not exist, or its training cannot be simulated.
 * @throws {TypeError} if the module cannot be read, or does not export a scenario.
 */
export async function findExample(name: string, mayLose: boolean): Promise<Example> {
  if (!name.includes("/") && !name.endsWith(".ts")) return simulatedTrainingOf(name, mayLose);
  return await loadExample(name);
}

/** Loads the scenario of a module. @throws {TypeError} if the module exports no scenario. */
export async function loadExample(path: string): Promise<Example> {
  const module = URL.canParse(path) ? path : pathToFileURL(path).href;
  const { scenario, configuration } = await import(module).catch((error: Error) => {
    throw new TypeError(
      `Cannot explore ${path}: it must be a module that can be loaded; ${error.message}`,
    );
  });
  const must = 'it must export a function "scenario"', kind = typeof scenario;
  assertInput(kind === "function", `explore ${path}`, must, kind, TypeError);
  return { scenario: scenario as Example["scenario"], configuration, modules: [module] };
}

/** Returns simulated training with a schedule. @throws {RangeError} if it cannot be simulated. */
export function simulatedTrainingOf(schedule: string, mayLose: boolean): Example {
  const names = scheduleNames();
  if (!names.includes(schedule)) {
    const must = `it must be the path of a module or one of ${names.join(", ")}`;
    throw new RangeError(`Cannot explore "${schedule}": ${must}`);
  }
  const configuration: SimulatedTrainingOptions = { schedule, mayLose };
  const { options: { schedule: made, replicas } } = prepareSimulation(configuration);
  return {
    // All workers end with the supervisor, so its crash is not a test.
    mayHit: Array.from({ length: replicas * made.workers }, (_, worker) => `worker-${worker}`),
    scenario: simulatedTraining as Scenario<unknown, unknown>,
    configuration,
    smaller: (plan) => smallerPlans(plan as SimulatedTrainingOptions),
    modules: [import.meta.url, ...TRAINING_ACTORS],
  };
}

/** Workers, micro-batches and replicas of smaller plans, the smallest first. */
const SMALLER = [[2, 2, 1], [2, 4, 1], [2, 4, 2], [4, 4, 2]] as const;

/** Smaller plans to look for the same failure in. */
export function smallerPlans(plan: SimulatedTrainingOptions): SimulatedTrainingOptions[] {
  const sizes = SMALLER.map(([workers, microBatches, replicas]) => ({
    ...plan,
    workers,
    microBatches,
    replicas,
    steps: 1,
  }));
  return sizes.filter((one) => sizeOf(one) < sizeOf(plan) && canSimulate(one));
}

function sizeOf(
  { workers = 4, microBatches = 8, replicas = 2, steps = 1 }: SimulatedTrainingOptions,
): number {
  return workers * microBatches * replicas * steps;
}

/** Some schedules need more workers or micro-batches. */
const canSimulate = (plan: SimulatedTrainingOptions): boolean =>
  resultOr(() => prepareSimulation(plan), undefined) !== undefined;

/** Trains on fewer workers after each loss, with the losses and weights of serial training. */
async function trainMoving(
  world: World<SimulatedTrainingOptions>,
  prepared: Recalled,
): Promise<SimulatedTrainingResult> {
  const { options, requests } = prepared, { joinBefore = Infinity } = world.configuration;
  const retaken: number[] = [];
  let begun = 0, joins = 0, restarts = 0, commits = 0, wasCommitted = false;
  world.invariant("commits are counted", ({ actor, state }) => {
    if (actor !== "supervisor") return;
    const isCommitted = state<SupervisorView>(actor)?.isCommitted ?? false;
    commits += Number(isCommitted && !wasCommitted);
    wasCommitted = isCommitted;
  });
  const hosts = new MovingHosts<EngineOptions>(
    { ...options, system: world.system, freezes: true, buddy: world.configuration.buddy },
    (run) => (state) => openPipeline({ ...run, state }, "local"),
    {
      minWorkers: 1,
      available: () => begun < joinBefore ? 0 : Infinity,
      onResize({ cause }, resize) {
        if (cause === "lost") retaken.push(resize.retaken);
        else joins++;
      },
    },
  );
  const shapes = stateShapes(options.model.parameters, options);
  const opening = Recovery.open((state) => hosts.start(state), {
    ...{ hosts, shapes, state: options.state, retries: 3, canKill: false, announce: () => {} },
    snapshots: openSnapshots("memory", undefined, shapes),
    onLost: () => void restarts++,
  });
  opening.catch(() => {});
  await world.settle();
  const engine = await opening, taken: StepRequest[] = [], losses: StepOutcome["losses"][] = [];
  for (const request of requests) {
    begun++;
    const outcome = await engine.step(request);
    losses.push(outcome.losses);
    if (outcome.isCommitted) taken.push(request);
  }
  const { weights } = await engine.read((state) => gatherState(state));
  const weightsHash = hashWeights(weights), expected = await expectedOf(prepared, taken);
  assertSerial(weightsHash, expected.weightsHash);
  assertSerial(hashLosses(losses), expected.lossesHash, "losses");
  return { weightsHash, retaken, joins, restarts, commits };
}
