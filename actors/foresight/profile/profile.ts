/**
 * What a machine's layers, optimizer and links cost: all that a prediction takes from a machine, as
 * plain data. It is kept as a JSON file, which {@linkcode readProfile} reads.
 *
 * @module
 */

import type { Precision, Recompute } from "../../../kernels/mod.ts";

/** What the file says first. */
export const PROFILE_FORMAT = "troupe-profile";

/** Version of what the fields mean. */
export const PROFILE_VERSION = 1;

/**
 * Where the figures come from: measured on the machine, read out of a trace of a run on it, or stated
 * in a document.
 */
export type ProfileSource = "measured" | "trace" | "stated";

/** A cost that grows with the numbers that are worked on. */
export interface LinearCost {
  /** Milliseconds whatever there is to do. */
  readonly ms: number;
  /** Milliseconds for each million of them. */
  readonly msPerMillion: number;
}

/** Milliseconds of a linear cost for so many numbers. */
export const linearMs = ({ ms, msPerMillion }: LinearCost, count: number): number =>
  ms + msPerMillion * count / 1e6;

/** What one kind of layer costs for one micro-batch. */
export interface LayerCost {
  /** Its kind: `embedding`, `attention`, `mlp`, `head`, `hidden`, or `block` for a whole one. */
  readonly kind: string;
  /** The sizes that it was built for, such as `hidden`, `heads` and `seq`: for people to read. */
  readonly sizes: Readonly<Record<string, number>>;
  /** Samples of the micro-batch, B. */
  readonly microBatch: number;
  /** What computed it. */
  readonly device: string;
  /** How its numbers are stored. */
  readonly precision: Precision;
  /** Which activations its backward computes again. */
  readonly recompute: Recompute;
  /**
   * Workers that computed at once while it was measured: the more, the longer each takes, as they
   * share memory and the clock rate of the machine.
   */
  readonly atOnce: number;
  /** Milliseconds of the forward. */
  readonly forwardMs: number;
  /** Milliseconds of the whole backward, B. */
  readonly backwardMs: number;
  /** Milliseconds of its part for the input, I; absent where it was not measured by itself. */
  readonly inputMs?: number;
  /** Milliseconds of its part for the weights, W; absent where it was not measured by itself. */
  readonly weightMs?: number;
  /** Milliseconds of computing it again before its backward; the forward's unless given. */
  readonly recomputeMs?: number;
  /** Trained numbers. */
  readonly parameters: number;
  /** Bytes that are kept from F to B for one micro-batch. */
  readonly activationBytes: number;
  /** Bytes of its output, which go to the next stage where the model is cut behind it. */
  readonly outputBytes: number;
  /** Floating-point operations of the forward, by which costs are scaled to other sizes. */
  readonly forwardFlops: number;
  /** Those of the whole backward. */
  readonly backwardFlops: number;
}

/** What a message between two workers costs: latency (α) and bandwidth (1/β). */
export interface LinkCost {
  /** Milliseconds from sending to arrival of a message without a tensor. */
  readonly latencyMs: number;
  /** Bytes of a tensor that arrive in a millisecond; absent where they move without being copied. */
  readonly bytesPerMs?: number;
}

/** What the end of a step costs beside the all-reduce and the optimizer. */
export interface ClosingCost {
  /** A stage looks at its gradients before it votes; of its trained numbers. */
  readonly vote: LinearCost;
  /** The norms of the summed gradients; of its trained numbers. */
  readonly norm: LinearCost;
  /** What is left when the weights are stepped: gradients become zero; of its trained numbers. */
  readonly end: LinearCost;
  /** What a step takes to begin and to be answered, beside the messages themselves. */
  readonly stepMs: number;
}

/** What is done once a step, while so many workers do it: the more, the longer each takes. */
export interface LoadCost extends Omit<ClosingCost, "stepMs"> {
  /** Workers that did it at once. */
  readonly atOnce: number;
  /** The optimizer's step; of a stage's trained numbers. */
  readonly optimizer: LinearCost;
}

/** The spread of measurements under one load. */
export interface Spread {
  /** Samples of the micro-batch. */
  readonly microBatch: number;
  /** The activations that the backward computes again. */
  readonly recompute: Recompute;
  /** The number of workers that computed at the same time. */
  readonly atOnce: number;
  /** Milliseconds of a forward of the first stage than which a tenth of them took less. */
  readonly p10Ms: number;
  /** The median of them. */
  readonly medianMs: number;
  /** Milliseconds than which nine tenths took less. */
  readonly p90Ms: number;
  /** Share of the time of their cores that the workers got; below 1 other programs took the rest. */
  readonly cpuShare?: number;
}

/** The machine that the figures are of. */
export interface ProfiledMachine {
  /** What it is called: a processor, or a cluster. */
  readonly name: string;
  /** Workers that can compute at once: cores, or GPUs of the whole machine. */
  readonly cores: number;
  /** Operating system and architecture, where known. */
  readonly system?: string;
  /** Bytes of memory of a worker's device, where known. */
  readonly memoryBytes?: number;
  /** Version of Deno that measured. */
  readonly deno?: string;
  /** Programs that wanted to compute meanwhile, on average, where known. */
  readonly load?: number;
}

/** What a machine costs. */
export interface Profile {
  /** Says that it is one. */
  readonly format: typeof PROFILE_FORMAT;
  /** Version of what the fields mean. */
  readonly version: typeof PROFILE_VERSION;
  /** Where the figures come from. */
  readonly source: ProfileSource;
  /** The machine. */
  readonly machine: ProfiledMachine;
  /** What layers cost. */
  readonly layers: readonly LayerCost[];
  /**
   * How durations of one action vary: quantiles of duration ÷ mean at evenly spaced ranks, the least
   * first and the greatest last; absent or empty where they are taken not to vary.
   */
  readonly variation?: readonly number[];
  /** The spread of the measurements, and the load by other programs; absent in older profiles. */
  readonly spread?: readonly Spread[];
  /** The flags of `troupe train` that name the model; absent where none was measured by flags. */
  readonly model?: Readonly<Record<string, string | number | boolean>>;
  /** The optimizer's step; of a stage's trained numbers. */
  readonly optimizer: LinearCost;
  /** Adding the gradients of one more copy; of a stage's trained numbers. */
  readonly reduce: LinearCost;
  /** Messages by transport: `local`, `worker`, `process`, `mpi`, or the name of a network. */
  readonly links: Readonly<Record<string, LinkCost>>;
  /** Milliseconds between two actions of a worker, whose inputs are there. */
  readonly dispatchMs: number;
  /** The end of a step. */
  readonly closing: ClosingCost;
  /** Optimizer and end under other loads; as above for all unless given. */
  readonly loads?: readonly LoadCost[];
  /** What a reader should know. */
  readonly notes: readonly string[];
}
