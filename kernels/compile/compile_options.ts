/**
 * How a model is compiled.
 *
 * @module
 */

import type { Precision } from "../layers/precision.ts";

/** Options of `compileModel`. */
export interface CompileOptions {
  /** Whether the last layer returns the loss; true unless told otherwise. */
  readonly endsWithLoss?: boolean;
  /**
   * Which parameters are not trained, by full name. An alias is as frozen as what it is tied to.
   */
  readonly frozen?: ((name: string) => boolean) | undefined;
  /** In which type stages store weights, gradients and activations; fp32 unless told otherwise. */
  readonly precision?: Precision | undefined;
  /**
   * The most elements of a parameter, and of all of them; any number unless given, as a plan can be
   * made for a model that no machine holds.
   */
  readonly elementsMax?: number | undefined;
  /** Equal parts into which the tokens of each sample are cut; 1 unless given. */
  readonly slices?: number | undefined;
}
