/**
 * What a compiled layer is: ONNX models, and what goes in and out of them.
 *
 * @module
 */

import type { DType } from "../devices/device.ts";
import type { MaskSpec, ParameterSpec, TensorSpec } from "../layers/layer.ts";
import type { Precision } from "../layers/precision.ts";

/** A value that a layer takes, by its key: `x`, `x.NAME` of a record, `skip.NAME` of a skip edge. */
export interface InputSpec extends TensorSpec {
  /**
   * Whether its backward writes the gradient of the value, or adds to that of later uses; absent
   * where the value has none.
   */
  readonly gradient?: "written" | "added";
}

/** A value that a layer makes, by its key. */
export interface OutputSpec extends TensorSpec {
  /** Whether its gradient comes back. */
  readonly hasGradient: boolean;
}

/** A layer as plain data. Equal layers of a model share one program. */
export interface LayerProgram {
  /** Its parameters in the order of their declaration. */
  readonly parameters: readonly ParameterSpec[];
  /** Fields of the micro-batch that the layer reads. */
  readonly fields: readonly TensorSpec[];
  /** Masks of its dropouts, by the names of their ports. */
  readonly masks?: readonly MaskSpec[];
  /** The tensor that the layer before hands to it; absent for the first layer. */
  readonly input?: TensorSpec;
  /** The tensor that it hands to the next layer, or the loss of each sample. */
  readonly output?: TensorSpec;
  /** In place of both what it takes and makes, where that is not one tensor: see {@linkcode inputsOf}. */
  readonly values?: {
    readonly inputs: readonly InputSpec[];
    readonly outputs: readonly OutputSpec[];
  };
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
   * ONNX models. `input` is absent where no input has a gradient, as for the first layer, whose W is
   * its whole backward, `weight` where no parameter is trained, `backward` where both are.
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

/** What a layer of a chain takes and makes, as its program says it; all others say it by keys. */
export function valuesForm(
  inputs: readonly InputSpec[],
  outputs: readonly OutputSpec[],
): Pick<LayerProgram, "input" | "output" | "values"> {
  const all = [...inputs, ...outputs], [output] = outputs, [input] = inputs;
  const isChain = outputs.length === 1 && inputs.length <= 1 &&
    all.every(({ name, dtype }) => name === "x" && isFloat(dtype));
  if (!isChain) return { values: { inputs, outputs } };
  const plain = ({ dtype, shape }: TensorSpec, name: string) => ({ name, dtype, shape });
  return { ...input && { input: plain(input, "x") }, output: plain(output!, "y") };
}

const isFloat = (dtype: DType) => dtype === "f32" || dtype === "f16";

/**
 * What a layer takes, by key: what the layer before hands to it, none for the first, and then what
 * others gave by name.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { compileModel, inputsOf, mlp, outputsOf } from "@troupe/troupe/kernels";
 *
 * const { programs } = compileModel(mlp({ inputs: 4, hidden: 8, layers: 1, classes: 2 }, 3), "none");
 * assert.deepEqual(inputsOf(programs[0]!), []);
 * assert.deepEqual(outputsOf(programs[0]!), [
 *   { name: "x", dtype: "f32", shape: [3, 8], hasGradient: true },
 * ]);
 * ```
 */
export const inputsOf = ({ input, values }: LayerProgram): readonly InputSpec[] =>
  values?.inputs ?? (input ? [{ ...input, gradient: "written" }] : []);

/** What a layer makes, by key: what it hands to the next one, or the loss; then what it gives by name. */
export const outputsOf = ({ output, values }: LayerProgram): readonly OutputSpec[] =>
  values?.outputs ?? (output ? [{ ...output, name: "x", hasGradient: true }] : []);

/** The names under which models read and write a value and its gradients. */
export interface ValuePorts {
  /** Where a layer takes it: its key. */
  readonly input: string;
  /** Where a layer makes it. */
  readonly output: string;
  /** Where its maker reads its gradient. */
  readonly outputGradient: string;
  /** Where who takes it writes its gradient, with that of later uses. */
  readonly inputGradient: string;
  /** Where the gradient of later uses is read. */
  readonly laterGradient: string;
}

/**
 * The ports of a value by its key.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { valuePorts } from "@troupe/troupe/kernels";
 *
 * assert.equal(valuePorts("x").output, "y");
 * assert.equal(valuePorts("x.mask").outputGradient, "dy.mask");
 * assert.equal(valuePorts("skip.memory").inputGradient, "dskip.memory");
 * ```
 */
export function valuePorts(key: string): ValuePorts {
  const isHanded = !isSkip(key), name = key.slice(isHanded ? 1 : "skip".length);
  return {
    input: key,
    output: `${isHanded ? "y" : "give"}${name}`,
    outputGradient: `${isHanded ? "dy" : "dgive"}${name}`,
    inputGradient: `d${key}`,
    laterGradient: `later${name}`,
  };
}

/** Whether a key is that of a value given by name. */
export const isSkip = (key: string): boolean => key.startsWith("skip.");

/** Where models read and write: the names of their inputs and outputs. */
export const PORTS = {
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
