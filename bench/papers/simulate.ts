/**
 * Steps of the systems of the papers on their machines, by the discrete-event simulator.
 *
 * @module
 */

import { chimeraStep, type LinkModel, messageMs, rabenseifnerMs } from "./formulas.ts";
import { ifServed } from "../../schedules/internal.ts";
import {
  createSchedule,
  type Schedule,
  type ScheduleOptions,
  simulateStep,
  type StageModel,
  type StepEndModel,
  type StepModel,
} from "../../schedules/mod.ts";
import setups from "./setups.json" with { type: "json" };

/** A configuration of a system. */
export interface Plan {
  readonly machine: Machine;
  readonly model: Model;
  readonly system: System;
  /** Data-parallel replicas. */
  readonly width: number;
  /** Samples of a micro-batch. */
  readonly microBatch: number;
  readonly options: ScheduleOptions;
  /** True if stages keep only their inputs and are computed again. */
  readonly recomputes: boolean;
}

/** A simulated step. */
export type Step = NonNullable<ReturnType<typeof simulatePlan>>;

/** Returns milliseconds of floating-point operations on a micro-batch of `tokens`. */
function computeMs(machine: Machine, flops: number, tokens: number): number {
  const { peakFlops, topShare, halfTokens } = machine;
  return 1000 * flops / (peakFlops * topShare * tokens / (tokens + halfTokens));
}

/**
 * Returns the stages: equal numbers of layers, the table of tokens with the first, the head with the
 * last, whose time is spread over all unless the paper states how it cuts models. A backward takes two
 * forwards (Chimera, section 3.4), with the efficiency of half a micro-batch where it computes one half
 * after the other. Single precision: 4 bytes of weight, 4 of gradient and 8 of Adam's states.
 */
function stagesOf(plan: Plan, count: number): StageModel[] {
  const { machine, model, microBatch, options, recomputes } = plan;
  const tokens = microBatch * model.sequence, blocks = model.layers / count;
  const headShareOf = (isLast: boolean) => machine.isHeadLast ? Number(isLast) : 1 / count;
  const forwardMsOf = (tokens: number, isLast: boolean) =>
    computeMs(machine, layerFlops(model, microBatch), tokens) * blocks +
    computeMs(machine, headFlops(model, microBatch), tokens) * headShareOf(isLast);
  const outputBytes = edgeBytes(model, microBatch);
  const layerKept = machine.activationFactor * layerBytes(model, microBatch);
  return Array.from({ length: count }, (_, stage) => {
    const isLast = stage === count - 1;
    const parameters = blocks * layerParameters(model) +
      (stage === 0 ? inputParameters(model) : 0) + (isLast ? model.output : 0);
    const activations = blocks * layerKept +
      (isLast ? 2 * model.headShare * tokens * model.vocabulary * model.bytes : 0);
    const keptBytes = recomputes ? Math.min(outputBytes, activations) : activations;
    const forwardMs = forwardMsOf(tokens, isLast);
    const backwardMs = 2 * forwardMsOf(options.scale === "halving" ? tokens / 2 : tokens, isLast);
    return {
      forwardMs,
      backwardMs,
      ...(recomputes && { recomputeMs: forwardMs }),
      outputBytes,
      gradientBytes: 4 * parameters,
      memory: {
        weightBytes: 4 * parameters,
        gradientBytes: 4 * parameters,
        optimizerBytes: 8 * parameters,
        keptBytes,
        recomputedBytes: activations - keptBytes,
      },
    };
  });
}

/** Copies of a stage above which all-reduces are slower where nodes share links. */
const SHARED_COPIES = 64;

/** Returns the link of the gradients of a stage with `copies` copies. */
function reduceLinkOf(machine: Machine, copies: number): LinkModel {
  const { latencyMs, bytesPerMs } = machine.reduceLink ?? machine.link;
  const slower = Math.max(1, copies / SHARED_COPIES) ** (machine.reduceSlowing ?? 0);
  return { latencyMs, bytesPerMs: bytesPerMs / slower };
}

/**
 * Returns milliseconds of the all-reduce of a stage that has one copy in each replica, in a pipeline
 * that runs on without a flush, whose messages take a part of the bandwidth.
 */
function reduceMs({ machine, width }: Plan, { gradientBytes = 0 }: StageModel): number {
  const bytes = gradientBytes / (machine.busyReduceShare ?? 1);
  return rabenseifnerMs(bytes, width, reduceLinkOf(machine, width));
}

/** Returns the simulator's input for a plan. */
export function stepModel(plan: Plan, schedule: Schedule): StepModel {
  const { machine, width, system } = plan;
  const { link, local, nodeSize, isBlocking, dispatchMs } = machine;
  const stages = stagesOf(plan, schedule.stages), middle = schedule.stages / 2;
  const copies = width * schedule.placement.flat().length / schedule.stages;
  return {
    schedule,
    replicas: width,
    stages: system.reducesAlways
      ? stages.map((stage) => ({ ...stage, backwardMs: stage.backwardMs + reduceMs(plan, stage) }))
      : stages,
    dispatchMs,
    network: { link, ...(local && { local }), nodeSize, sharing: "node", isBlocking },
    closing: {
      protocol: "ranks",
      algorithm: "rabenseifner",
      link: reduceLinkOf(machine, copies),
      // Chimera, section 3.2: not the middle stages, after which workers have no bubble.
      eagerStages: stages.flatMap((_, stage) => stage > middle ? [stage] : []),
    },
  };
}

/**
 * Simulates a plan; undefined where the schedule does not serve it or a worker's memory does not hold
 * it. A step of a system without flushes is the time that more micro-batches add to a continuing run,
 * plus the all-reduce.
 */
export function simulatePlan(plan: Plan, { ignoresMemory = false, withoutReduce = false } = {}) {
  const { system, options, width, microBatch, machine } = plan;
  const { microBatches, workers } = options;
  const runOf = (microBatches: number) => {
    const schedule = ifServed(() => createSchedule(system.schedule, { ...options, microBatches }));
    return schedule && simulateStep(stepModel(plan, schedule));
  };
  if (system.schedule === "pipedream-2bw" && microBatches < workers) return undefined;
  const filled = system.isAsynchronous ? Math.max(microBatches, workers) : microBatches;
  const run = runOf(filled);
  if (run === undefined) return undefined;
  if (!ignoresMemory && Math.max(...run.peakBytes) > machine.memoryBytes) return undefined;
  let stepMs = withoutReduce ? run.computedMs : run.makespanMs;
  if (system.isAsynchronous) {
    stepMs = runOf(filled + microBatches)!.computedMs - run.computedMs;
    if (!system.reducesAlways) {
      stepMs += Math.max(...stagesOf(plan, workers).map((stage) => reduceMs(plan, stage)));
    }
  }
  // Samples of all replicas.
  return { plan, stepMs, samplesPerSecond: 1000 * width * microBatches * microBatch / stepMs };
}

/**
 * Returns the plan of the highest throughput that fits, among all widths, depths and micro-batch
 * sizes that are powers of two (Chimera, section 4.2.1); undefined where none fits.
 */
export function bestPlan(system: System, task: Task): Step | undefined {
  const plans = plansOf(system, task).sort((a, b) => mostPerSecond(b) - mostPerSecond(a));
  if (!system.isAsynchronous) return fastest(plans);
  // Section 4.2.1: the largest micro-batch that fits, for PipeDream without recomputation.
  const isKept = ({ recomputes }: Plan) => !recomputes || !system.reducesAlways;
  return fastest(largestOf(plans.filter(isKept))) ?? fastest(largestOf(plans));
}

/** Returns the plans with the largest micro-batch that fits, of each depth. */
function largestOf(plans: readonly Plan[]): Plan[] {
  const fitting = plans.filter((plan) => simulatePlan(plan) !== undefined);
  return [...Map.groupBy(fitting, ({ options }) => options.workers).values()].flatMap((same) => {
    const most = Math.max(...same.map(({ microBatch }) => microBatch));
    return same.filter(({ microBatch }) => microBatch === most);
  });
}

function fastest(plans: readonly Plan[]): Step | undefined {
  let best: Step | undefined;
  for (const plan of plans) {
    if (best && mostPerSecond(plan) <= best.samplesPerSecond) continue;
    const step = simulatePlan(plan);
    if (step && step.samplesPerSecond > (best?.samplesPerSecond ?? 0)) best = step;
  }
  return best;
}

function plansOf(system: System, task: Task): Plan[] {
  const machine = machineOf(task.machine), model = MODELS[task.model]!;
  const { workers, batch, depths = powers(model.layers).slice(1) } = task;
  const one = Array.from({ length: 64 }, (_, i) => i + 1);
  const sizes = task.microBatches ?? (system.reducesAlways ? one : powers(batch));
  return depths.filter((depth) => workers % depth === 0 && model.layers % depth === 0)
    .flatMap((depth) =>
      sizes.flatMap((microBatch) => {
        const width = workers / depth;
        const microBatches = system.reducesAlways ? 1 : batch / (width * microBatch);
        if (!Number.isInteger(microBatches)) return [];
        const variants = system.variants.slice(0, microBatches > depth ? undefined : 1);
        return [false, true].flatMap((recomputes) =>
          variants.map((variant): Plan => {
            const options = { workers: depth, microBatches, ...variant };
            return { machine, model, system, width, microBatch, options, recomputes };
          })
        );
      })
    );
}

/** Returns samples per second without bubbles and messages: an upper bound. */
function mostPerSecond({ machine, model, microBatch, width, options, recomputes }: Plan): number {
  const flops = layerFlops(model, microBatch) * model.layers + headFlops(model, microBatch);
  const forwardMs = computeMs(machine, flops, microBatch * model.sequence);
  return 1000 * width * options.workers * microBatch / (forwardMs * (recomputes ? 4 : 3));
}

const powers = (most: number): number[] =>
  Array.from({ length: Math.floor(Math.log2(most)) + 1 }, (_, i) => 2 ** i);

/** A plan by Eq. 1 of Chimera's paper and by the simulator. */
export type Equation1 = ReturnType<typeof compareEquation1>[number];

/**
 * Compares Eq. 1 with the simulator for all depths of Chimera on Piz Daint, with the largest
 * micro-batch that fits (section 3.4), with recomputation where nothing fits without.
 */
export function compareEquation1(name: string, workers: number, batch: number) {
  const machine = machineOf("daint"), model = MODELS[name]!, system = SYSTEMS["Chimera"]!;
  const largest = (depth: number, recomputes: boolean) => {
    const width = workers / depth;
    for (let microBatch = batch / width; microBatch >= 1; microBatch /= 2) {
      const options = { workers: depth, microBatches: batch / (width * microBatch) };
      if (options.microBatches < depth) continue; // fewer leave stages idle (section 3.1)
      const plan = { machine, model, system, width, microBatch, options, recomputes };
      const step = simulatePlan(plan);
      if (step) return { plan, analyticMs: equation1(plan), simulatedMs: step.stepMs };
    }
    return undefined;
  };
  return powers(model.layers).slice(1)
    .filter((depth) => model.layers % depth === 0 && workers % depth === 0)
    .flatMap((depth) => largest(depth, false) ?? largest(depth, true) ?? []);
}

/** Returns milliseconds of a step of Chimera by Eq. 1, for which all stages are equally long. */
function equation1({ machine, model, microBatch, width, options, recomputes }: Plan): number {
  const flops = model.layers * layerFlops(model, microBatch) + headFlops(model, microBatch);
  const { workers } = options;
  return chimeraStep({
    schedule: createSchedule("chimera", options),
    forwardMs: computeMs(machine, flops / workers, microBatch * model.sequence),
    backward: recomputes ? 3 : 2,
    messageMs: messageMs(edgeBytes(model, microBatch), machine.link),
    allReduceMs: rabenseifnerMs(
      4 * parametersOf(model) / workers,
      2 * width,
      reduceLinkOf(machine, 2 * width),
    ),
  }).totalMs;
}

/** A configuration of AxoNN (Table II). */
export interface AxonnPlan {
  readonly model: string;
  /** Samples of a step. */
  readonly batch: number;
  /** G_inter. */
  readonly depth: number;
  /** G_data. */
  readonly width: number;
  /** Samples of a micro-batch. */
  readonly microBatch: number;
  /** True if the host keeps the optimizer's states: AxoNN's memory optimization. */
  readonly offloads: boolean;
  /** Buckets of a chunk; all of them, without overlap, by default. */
  readonly coarsening?: number;
  /** Milliseconds that an action costs besides its kernels; the machine's by default. */
  readonly dispatchMs?: number;
}

/** Numbers of a bucket of the optimizer (section V-B). */
export const BUCKET_SIZE = 16e6;

/** Simulates one step of AxoNN on Summit; returns the seconds of its phases. */
export function axonnStep(
  { batch, depth, width, microBatch, offloads, coarsening = 1e9, dispatchMs, ...plan }: AxonnPlan,
) {
  const summit = machineOf("summit"), model = MODELS[plan.model]!, system = SYSTEMS["AxoNN"]!;
  const machine = { ...summit, dispatchMs: dispatchMs ?? summit.dispatchMs };
  const options = { workers: depth, microBatches: batch / (width * microBatch) };
  const whole = stepModel(
    { machine, model, system, width, microBatch, options, recomputes: true },
    createSchedule(system.schedule, options),
  );
  // Gradients in half precision. The stages of a node share its network, as if all were alike.
  const gradientBytes = 2 * parametersOf(model) / depth;
  const step = { ...whole, stages: whole.stages.map((stage) => ({ ...stage, gradientBytes })) };
  const reduce: StepEndModel = {
    algorithm: "ring",
    link: machine.reduceLink!,
    bucketBytes: 2 * BUCKET_SIZE,
    coarsening,
  };
  // For each gradient of 2 bytes, 12 of weights and Adam's states are loaded and stored.
  const offload = { link: machine.hostLink!, loadRatio: 6, storeRatio: 6 };
  const run = simulateStep({ ...step, closing: reduce });
  const closed = offloads ? simulateStep({ ...step, closing: { ...reduce, offload } }) : run;
  const pipelineS = run.computedMs / 1000, reduceS = (run.makespanMs - run.computedMs) / 1000;
  const closingS = (closed.makespanMs - closed.computedMs) / 1000;
  const optimizerS = closingS - reduceS;
  return { pipelineS, reduceS, closingS, optimizerS, stepS: closed.makespanMs / 1000 };
}

/** A machine as a paper used it. */
export interface Machine {
  /** GPUs of a node. */
  readonly nodeSize: number;
  /** Bytes of a GPU's memory that training can use. */
  readonly memoryBytes: number;
  /** Floating-point operations per second at the precision of the paper. */
  readonly peakFlops: number;
  /** The share of `peakFlops` that layers reach with many tokens. */
  readonly topShare: number;
  /** Tokens of a micro-batch with which layers reach half of that share. */
  readonly halfTokens: number;
  /** Bytes kept of a layer, in units of `layerBytes`. */
  readonly activationFactor: number;
  /** Between nodes. */
  readonly link: LinkModel;
  /** Within a node, if it is another link. */
  readonly local?: LinkModel;
  /** The link of gradients, if it is another one. */
  readonly reduceLink?: LinkModel;
  /** The power of copies of a stage beyond 64 by which all-reduces are slower; 0 by default. */
  readonly reduceSlowing?: number;
  /** The share of the bandwidth that all-reduces have beside the messages of a pipeline; 1 by default. */
  readonly busyReduceShare?: number;
  /** Between a GPU and its host, where optimizer states are kept there. */
  readonly hostLink?: LinkModel;
  /** True if a worker waits until its messages are sent. */
  readonly isBlocking: boolean;
  /** True if the last stage computes the head besides its layers; stages are equally long by default. */
  readonly isHeadLast?: boolean;
  /** Milliseconds that the framework takes for each action and its messages. */
  readonly dispatchMs: number;
}

/**
 * A transformer as a paper describes it: its layers, numbers of a token within the model, attention
 * heads, tokens of a sample and of the vocabulary, the share of tokens that the head predicts, learned
 * positions, trained numbers of the input side besides those tables and of the output side, and bytes
 * of an activation.
 */
export type Model = typeof setups.models["Bert-48"];

/** A system that the papers compare. */
export interface System {
  readonly schedule: string;
  /** Options to choose from besides depth and micro-batches. */
  readonly variants: readonly Partial<ScheduleOptions>[];
  /** True if steps follow each other without a flush. */
  readonly isAsynchronous?: boolean;
  /** True if an all-reduce, which nothing overlaps, follows each backward (PipeDream). */
  readonly reducesAlways?: boolean;
}

/** A search for the best configuration. */
export interface Task {
  readonly machine: string;
  readonly model: string;
  /** Workers in all. */
  readonly workers: number;
  /** Samples of a step. PipeDream, whose step is one micro-batch, takes what fits in memory. */
  readonly batch: number;
  /** Depths to choose from; all powers of two up to the number of layers by default. */
  readonly depths?: readonly number[];
  /** Micro-batch sizes to choose from; all powers of two by default. */
  readonly microBatches?: readonly number[];
}

/**
 * The machines by short names: a name, and each figure with its source: the place, the document, the
 * reason, or the figure that it is fitted to. It is `stated` by the paper; of a public `document`;
 * `assumed`; or `fitted` to a figure of the paper, which is then no prediction.
 */
export const FACTS = setups.machines;
/** The models, by their names in the papers. */
export const MODELS: Readonly<Record<string, Model>> = setups.models;
/** The systems, by their names in the papers. */
export const SYSTEMS = setups.systems as unknown as Readonly<Record<string, System>>;
/** The searches, by their names in the figures. */
export const TASKS: Readonly<Record<string, Task>> = setups.tasks;

/** Returns a machine's values. */
export const machineOf = (name: string): Machine =>
  Object.fromEntries(
    Object.entries(FACTS[name as keyof typeof FACTS].facts)
      .map(([field, { value }]) => [field, value]),
  ) as unknown as Machine;

/** Returns the trained numbers of a layer: four square matrices of attention, eight of the MLP. */
const layerParameters = ({ hidden }: Model): number => 12 * hidden ** 2 + 13 * hidden;

/** Returns the trained numbers of the input side. */
const inputParameters = ({ vocabulary, positions, hidden, moreInput }: Model): number =>
  (vocabulary + positions) * hidden + moreInput;

/** Returns all trained numbers. */
export const parametersOf = (model: Model): number =>
  model.layers * layerParameters(model) + inputParameters(model) + model.output;

/** Returns the floating-point operations of one layer's forward. */
const layerFlops = ({ hidden, sequence }: Model, samples: number): number =>
  samples * sequence * (24 * hidden ** 2 + 4 * sequence * hidden);

/** Returns the floating-point operations of the head's forward. */
const headFlops = ({ hidden, sequence, vocabulary, headShare }: Model, samples: number): number =>
  2 * headShare * samples * sequence * hidden * vocabulary;

/**
 * Returns the bytes that one layer keeps from its forward to its backward: 16 activations and two
 * masks of a byte for each number of a token, two activations and a mask for each pair of tokens and
 * head (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022,
 * section 4).
 */
const layerBytes = ({ hidden, heads, sequence, bytes }: Model, samples: number): number =>
  samples * sequence * (hidden * (16 * bytes + 2) + heads * sequence * (2 * bytes + 1));

/** Returns the bytes of the activation between two layers. */
export const edgeBytes = ({ hidden, sequence, bytes }: Model, samples: number): number =>
  samples * sequence * hidden * bytes;
