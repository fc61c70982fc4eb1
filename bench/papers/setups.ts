/**
 * The machines, models and systems of the papers, and the sizes that follow from them.
 *
 * @module
 */

import type { LinkModel } from "../../schedules/analysis/paper_models.ts";
import type { ScheduleOptions } from "../../schedules/mod.ts";
import setups from "./setups.json" with { type: "json" };

/** A figure of a machine with its source. */
interface Fact {
  readonly value: unknown;
  /**
   * `stated` by the paper; of a public `document`; `assumed`; or `fitted` to a figure of the paper,
   * which is then no prediction.
   */
  readonly by: string;
  /** The place, the document, the reason, or the figure that it is fitted to. */
  readonly source: string;
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
  /** Between a GPU and its host, where optimizer states are kept there. */
  readonly hostLink?: LinkModel;
  /** True if a worker waits until its messages are sent. */
  readonly isBlocking: boolean;
  /** Milliseconds that the framework takes for each action and its messages. */
  readonly dispatchMs: number;
}

/**
 * A transformer as a paper describes it: its layers, numbers of a token within the model, attention
 * heads, tokens of a sample and of the vocabulary, learned positions, trained numbers of the input
 * side besides those tables and of the output side, and bytes of an activation.
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

interface MachineFacts {
  readonly name: string;
  readonly facts: Readonly<Record<string, Fact>>;
}

/** The machines by short names: a name, and each figure with its source. */
export const FACTS = setups.machines as unknown as Readonly<Record<string, MachineFacts>>;
/** The models, by their names in the papers. */
export const MODELS: Readonly<Record<string, Model>> = setups.models;
/** The systems, by their names in the papers. */
export const SYSTEMS = setups.systems as unknown as Readonly<Record<string, System>>;
/** The searches, by their names in the figures. */
export const TASKS: Readonly<Record<string, Task>> = setups.tasks;

/** Returns a machine's values. */
export const machineOf = (name: string): Machine =>
  Object.fromEntries(
    Object.entries(FACTS[name]!.facts).map(([field, { value }]) => [field, value]),
  ) as unknown as Machine;

/** Returns the trained numbers of a layer: four square matrices of attention, eight of the MLP. */
export const layerParameters = ({ hidden }: Model): number => 12 * hidden ** 2 + 13 * hidden;

/** Returns the trained numbers of the input side. */
export const inputParameters = ({ vocabulary, positions, hidden, moreInput }: Model): number =>
  (vocabulary + positions) * hidden + moreInput;

/** Returns all trained numbers. */
export const parametersOf = (model: Model): number =>
  model.layers * layerParameters(model) + inputParameters(model) + model.output;

/** Returns the floating-point operations of one layer's forward. */
export const layerFlops = ({ hidden, sequence }: Model, samples: number): number =>
  samples * sequence * (24 * hidden ** 2 + 4 * sequence * hidden);

/** Returns the floating-point operations of the head's forward. */
export const headFlops = ({ hidden, sequence, vocabulary }: Model, samples: number): number =>
  2 * samples * sequence * hidden * vocabulary;

/**
 * Returns the bytes that one layer keeps from its forward to its backward: 16 activations and two
 * masks of a byte for each number of a token, two activations and a mask for each pair of tokens and
 * head (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022,
 * section 4).
 */
export const layerBytes = ({ hidden, heads, sequence, bytes }: Model, samples: number): number =>
  samples * sequence * (hidden * (16 * bytes + 2) + heads * sequence * (2 * bytes + 1));

/** Returns the bytes of the activation between two layers. */
export const edgeBytes = ({ hidden, sequence, bytes }: Model, samples: number): number =>
  samples * sequence * hidden * bytes;
