/**
 * What a training script trains: a model, its data, and how to show what was learnt.
 *
 * @module
 */

import type { Batch, DeviceChoice, Model } from "../../kernels/mod.ts";

/** A model and its data. */
export interface Task {
  /** What is trained. */
  readonly model: Model;
  /** Micro-batches in the order in which they are trained on. */
  readonly data: Iterable<Batch>;
  /** Micro-batches that are never trained on. */
  heldOut(): readonly Batch[];
  /** What rebuilds the model and its tokenizer from a checkpoint. */
  readonly config: Readonly<Record<string, unknown>>;
  /** Prints what trained weights can do. */
  show(weights: ReadonlyMap<string, Float32Array>, device: DeviceChoice): Promise<void>;
}
