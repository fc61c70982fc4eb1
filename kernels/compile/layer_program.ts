/**
 * What a compiled layer is: ONNX models, and what goes in and out of them.
 *
 * @module
 */

import type { MaskSpec, ParameterSpec, TensorSpec } from "../layers/layer.ts";
import type { Precision } from "../layers/precision.ts";

/** A layer as plain data. Equal layers of a model share one program. */
export interface LayerProgram {
  /** Its parameters in the order of their declaration. */
  readonly parameters: readonly ParameterSpec[];
  /** Fields of the micro-batch that the layer reads. */
  readonly fields: readonly TensorSpec[];
  /** Masks of its dropouts, by the names of their ports. */
  readonly masks?: readonly MaskSpec[];
  /** The output of the layer before; absent for the first layer. */
  readonly input?: TensorSpec;
  /** What it hands to the next layer, or the loss of each sample. */
  readonly output: TensorSpec;
  /** Whether the output is the loss of each sample. */
  readonly isLoss: boolean;
  /** In which type its models take and give weights, gradients and activations. */
  readonly precision: Precision;
  /** Activations that live from F to B (to W when the backward is split). */
  readonly saved: readonly TensorSpec[];
  /** Values that I hands to W. */
  readonly carried: readonly TensorSpec[];
  /** What it keeps for the later slices of the sequence, by the names of their ports. */
  readonly contexts?: readonly TensorSpec[];
  /**
   * ONNX models. `input` is absent for the first layer, whose W is its whole backward, `weight`
   * where no parameter is trained, `backward` where both are.
   */
  readonly models: {
    readonly forward: Uint8Array;
    readonly backward?: Uint8Array;
    readonly input?: Uint8Array;
    readonly weight?: Uint8Array;
  };
  /**
   * Models that run one after the other before B or I, and write over one of the saved activations:
   * what backward models read there is what the last one has left.
   */
  readonly overwrites?: readonly { readonly saved: string; readonly model: Uint8Array }[];
  /** Estimated work of a forward and a whole backward, in floating-point operations. */
  readonly cost: { readonly forward: number; readonly backward: number };
}

/** Where models read and write: the names of their inputs and outputs. */
export const PORTS = {
  input: "x",
  output: "y",
  outputGradient: "dy",
  inputGradient: "dx",
  /** Factor of the loss: one over the number of predictions of the step. */
  lossScale: "scale",
  parameter: (name: string) => `p.${name}`,
  field: (name: string) => `batch.${name}`,
  accumulator: (name: string) => `acc.${name}`,
  /** What an overwriting model leaves in place of a saved activation. */
  overwritten: (saved: string) => `over.${saved}`,
  gradient: (name: string) => `d.${name}`,
  /** The gradient of what a slice keeps for later ones, and the same with what a later one adds. */
  contextGradient: (context: string) => `d.${context}`,
  contextSum: (context: string) => `sum.${context}`,
} as const;
