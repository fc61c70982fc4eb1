/**
 * One step of AxoNN: the pipeline, then its data-parallel and optimizer phases.
 *
 * @module
 */

import { type Closing, createSchedule, simulateStep } from "../../../schedules/mod.ts";
import { SUMMIT } from "./machines/summit.ts";
import { stepModel } from "./paper_step.ts";
import { AXONN } from "./systems.ts";
import { type PaperModel, parametersOf } from "./transformer.ts";

/** A configuration of AxoNN (Table II). */
export interface AxonnPlan {
  readonly model: PaperModel;
  /** Samples of a step. */
  readonly batch: number;
  /** G_inter. */
  readonly depth: number;
  /** G_data. */
  readonly width: number;
  /** Samples of a micro-batch. */
  readonly microBatch: number;
  /** Whether the optimizer's states are kept by the host: its memory optimization. */
  readonly offloads: boolean;
  /** k: buckets of a chunk; all at once, with no overlap, unless given. */
  readonly coarsening?: number;
  /** Milliseconds that an action costs beside its kernels; as fitted unless given. */
  readonly dispatchMs?: number;
}

/** The phases of a step, in seconds. */
export interface AxonnStep {
  /** The inter-layer parallel phase. */
  readonly pipelineS: number;
  /** The all-reduce of gradients, without the optimizer. */
  readonly reduceS: number;
  /** All-reduce and optimizer together. */
  readonly closingS: number;
  /** All of it. */
  readonly stepS: number;
}

/** Numbers of a bucket (section V-B), and bytes of a gradient in half precision. */
export const BUCKET_SIZE = 16e6;
const GRADIENT_BYTES = 2;

/** Bytes of the 32-bit weights and Adam's states that come and go, for each byte of a gradient. */
const OFFLOAD_RATIO = 12 / GRADIENT_BYTES;

/** Simulates one step of AxoNN on Summit. */
export function axonnStep(plan: AxonnPlan): AxonnStep {
  const { model, batch, depth, width, microBatch, offloads, coarsening = 1e9 } = plan;
  const microBatches = batch / (width * microBatch);
  const options = { workers: depth, microBatches };
  const schedule = createSchedule("message-driven", options);
  const whole = stepModel(
    { machine: SUMMIT, model, system: AXONN, width, microBatch, options, recomputes: true },
    schedule,
  );
  // The stages of a node share its network, which is done when all of them are: as if all were alike.
  const gradientBytes = GRADIENT_BYTES * parametersOf(model) / depth;
  const stages = whole.stages.map((stage) => ({ ...stage, gradientBytes }));
  const step = { ...whole, stages, dispatchMs: plan.dispatchMs ?? whole.dispatchMs };
  const reduce: Closing = {
    algorithm: "ring",
    link: SUMMIT.reduceLink!.value,
    bucketBytes: BUCKET_SIZE * GRADIENT_BYTES,
    coarsening,
  };
  const link = SUMMIT.hostLink!.value;
  const offload = { link, loadRatio: OFFLOAD_RATIO, storeRatio: OFFLOAD_RATIO };
  const run = simulateStep({ ...step, closing: reduce });
  const closed = offloads ? simulateStep({ ...step, closing: { ...reduce, offload } }) : run;
  return {
    pipelineS: run.computedMs / 1000,
    reduceS: (run.makespanMs - run.computedMs) / 1000,
    closingS: (closed.makespanMs - closed.computedMs) / 1000,
    stepS: closed.makespanMs / 1000,
  };
}
