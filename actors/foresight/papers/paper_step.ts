/**
 * One step of a system of the papers on a machine of the papers, by the discrete-event simulator.
 *
 * @module
 */

import {
  type Network,
  rabenseifnerMs,
  type Schedule,
  type ScheduleOptions,
  simulateStep,
  type StageModel,
  type StepModel,
} from "../../../schedules/mod.ts";
import type { LayerCost, Profile } from "../profile/profile.ts";
import type { PaperMachine } from "./machines/paper_machine.ts";
import { statedProfile } from "./paper_profile.ts";
import { type PaperSystem, scheduleOf } from "./systems.ts";
import type { PaperModel } from "./transformer.ts";

/** A configuration: what the papers search over. */
export interface PaperPlan {
  readonly machine: PaperMachine;
  readonly model: PaperModel;
  readonly system: PaperSystem;
  /** W. */
  readonly width: number;
  /** B, in samples. */
  readonly microBatch: number;
  /** D and N, and what the schedule reads beside them. */
  readonly options: ScheduleOptions;
  /** Whether stages keep their inputs alone and are computed again. */
  readonly recomputes: boolean;
}

/** What a plan comes to. */
export interface PaperStep {
  readonly plan: PaperPlan;
  /** Milliseconds of a step. */
  readonly stepMs: number;
  /** Samples per second of all replicas. */
  readonly samplesPerSecond: number;
}

/** Bytes of weight, gradient and Adam's two states in single precision. */
const WEIGHT_BYTES = 4, GRADIENT_BYTES = 4, OPTIMIZER_BYTES = 8;

/** The input of the simulator for a plan. */
export function stepModel(plan: PaperPlan, schedule: Schedule): StepModel {
  const { machine, model, microBatch, width, system } = plan;
  const isHalved = plan.options.scale === "halving";
  const profile = statedProfile(machine, model, [microBatch], isHalved);
  const stages = stagesOf(plan, profile, schedule.stages);
  const reduceLink = profile.links.reduce ?? profile.links.network!;
  return {
    schedule,
    replicas: width,
    stages: system.reducesAlways
      ? stages.map((stage) => ({ ...stage, backwardMs: stage.backwardMs + reduceMs(plan, stage) }))
      : stages,
    dispatchMs: profile.dispatchMs,
    network: networkOf(machine, profile),
    closing: {
      algorithm: "rabenseifner",
      link: reduceLink,
      eagerStages: stages.map((_, stage) => stage),
    },
  };
}

/** Milliseconds of the all-reduce of a stage of which each replica has one copy. */
function reduceMs({ machine, width }: PaperPlan, { gradientBytes = 0 }: StageModel): number {
  const { latencyMs, bytesPerMs = Infinity } = (machine.reduceLink ?? machine.link).value;
  return rabenseifnerMs(gradientBytes, width, { latencyMs, bytesPerMs });
}

function networkOf({ nodeSize, isBlocking }: PaperMachine, { links }: Profile): Network {
  const local = links.node;
  return {
    link: links.network!,
    ...(local && { local }),
    nodeSize: nodeSize.value,
    sharing: "node",
    isBlocking: isBlocking.value,
  };
}

/**
 * The stages: as many layers each, the table of tokens with the first, the head with the last. The
 * time of all layers is spread evenly, as Chimera's paper takes it (footnote of Table 1).
 */
function stagesOf(plan: PaperPlan, { layers }: Profile, stages: number): StageModel[] {
  const { model, recomputes } = plan;
  const [embedding, block, head] = ["embedding", "block", "head"].map((kind) =>
    layers.find((layer) => layer.kind === kind)!
  ) as [LayerCost, LayerCost, LayerCost];
  const blocks = model.layers / stages;
  const share = (cost: "forwardMs" | "backwardMs") =>
    (block[cost] * model.layers + head[cost]) / stages;
  const forwardMs = share("forwardMs"), backwardMs = share("backwardMs");
  return Array.from({ length: stages }, (_, stage) => {
    const isFirst = stage === 0, isLast = stage === stages - 1;
    const parameters = blocks * block.parameters + (isFirst ? embedding.parameters : 0) +
      (isLast ? head.parameters : 0);
    const activations = blocks * block.activationBytes + (isLast ? head.activationBytes : 0);
    const keptBytes = recomputes ? Math.min(block.outputBytes, activations) : activations;
    return {
      forwardMs,
      backwardMs,
      ...(recomputes && { recomputeMs: forwardMs }),
      outputBytes: block.outputBytes,
      gradientBytes: GRADIENT_BYTES * parameters,
      memory: {
        weightBytes: WEIGHT_BYTES * parameters,
        gradientBytes: GRADIENT_BYTES * parameters,
        optimizerBytes: OPTIMIZER_BYTES * parameters,
        keptBytes,
        recomputedBytes: activations - keptBytes,
      },
    };
  });
}

/** What of a plan is left out. */
export interface SimulateOptions {
  /** It is simulated all the same; false unless given. */
  readonly ignoresMemory?: boolean;
  /** The step ends with its last action; false unless given. */
  readonly withoutReduce?: boolean;
}

/**
 * Simulates a plan; undefined where the schedule does not serve it or a worker's memory does not hold
 * it. A step of a system without flushes is what more micro-batches add to a run that goes on, or
 * its all-reduce, which runs meanwhile, if that takes longer.
 */
export function simulatePlan(
  plan: PaperPlan,
  { ignoresMemory = false, withoutReduce = false }: SimulateOptions = {},
): PaperStep | undefined {
  const { system, options, width, microBatch, machine } = plan;
  const { microBatches, workers } = options;
  const samples = width * microBatches * microBatch;
  const runOf = (count: number) => {
    const schedule = scheduleOf(system, { ...options, microBatches: count });
    return schedule && simulateStep(stepModel(plan, schedule));
  };
  if (system.schedule === "pipedream-2bw" && microBatches < workers) return undefined;
  const filled = system.isAsynchronous ? Math.max(microBatches, workers) : microBatches;
  const run = runOf(filled);
  if (run === undefined) return undefined;
  if (!ignoresMemory && Math.max(...run.peakBytes) > machine.memoryBytes.value) return undefined;
  let stepMs = withoutReduce ? run.computedMs : run.makespanMs;
  if (system.isAsynchronous) {
    const longer = runOf(filled + microBatches)!;
    stepMs = longer.computedMs - run.computedMs +
      (system.reducesAlways ? 0 : longestReduceMs(plan));
  }
  return { plan, stepMs, samplesPerSecond: 1000 * samples / stepMs };
}

function longestReduceMs(plan: PaperPlan): number {
  const profile = statedProfile(plan.machine, plan.model, [plan.microBatch]);
  const stages = stagesOf(plan, profile, plan.options.workers);
  return Math.max(...stages.map((stage) => reduceMs(plan, stage)));
}
