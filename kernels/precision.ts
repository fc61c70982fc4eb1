/**
 * Mixed precision: what is stored in FP16, and what stays FP32.
 *
 * [Note: mixed precision] As in NVIDIA's AMP O2 and AxoNN (section II-B7): weights, gradients,
 * activations from F to B and what travels between stages are FP16; the optimizer has FP32 weights
 * ("master") and moments. CPU devices compute in FP32: models widen what they read and round what
 * they write; on a GPU the products of matrices are in FP16, and the rest as on the CPU. An activation is rounded where it is made, for the layer's own forward too, whether
 * or not a recomputation policy saves it: so every policy and interval has the same bits. What one
 * model computes on its way (the gradients within a layer) is not rounded, nor is what I hands to
 * W: so a split backward has the bits of a whole one. The loss of each sample, the fields of the
 * micro-batch and LayerNormalization's statistics are f32.
 *
 * @module
 */

import type { DType } from "./devices/device.ts";

/**
 * The largest sizes of a model, each for itself; together, tensors and the sum of all parameters must
 * stay below {@linkcode ELEMENTS_MAX}.
 */
export const GPT2_MAX = {
  layers: 1024,
  hidden: 65_536,
  heads: 65_536,
  seq: 8192, // the causal mask has seq² elements, and a model file less than 2 GiB
  vocab: 2 ** 24,
  headSlices: 256,
  "micro-batch": 65_536,
} as const;

/**
 * Refuses a size that is no whole number from 1, or larger than models get.
 *
 * @throws {RangeError} naming it.
 */
export function checkModelSizes(
  model: string,
  sizes: { readonly [Name in keyof typeof GPT2_MAX]?: number },
): void {
  for (const [name, value] of Object.entries(sizes)) {
    const most = GPT2_MAX[name as keyof typeof GPT2_MAX];
    if (Number.isSafeInteger(value) && value >= 1 && value <= most) continue;
    const must = value > most ? `at most ${most}` : "a positive integer";
    throw new RangeError(`Cannot build ${model}: ${name} must be ${must}, received ${value}`);
  }
}

/** In which type weights, gradients, activations and messages are stored. */
export type Precision = "fp32" | "fp16";

/** The values of {@linkcode Precision}, for checks and help texts. */
export const PRECISIONS: readonly Precision[] = ["fp32", "fp16"];

/** The largest finite FP16 number. */
export const F16_MAX = 65_504;

/** The largest finite FP32 number. */
export const F32_MAX = (2 - 2 ** -23) * 2 ** 127;

/** Checks a precision at the door. */
export function checkPrecision(precision: Precision): void {
  if (PRECISIONS.includes(precision)) return;
  throw new RangeError(
    `Cannot compile: precision must be ${PRECISIONS.join(" or ")}, received ${precision}`,
  );
}

/** The dtype of what is stored. */
export function storageDtype(precision: Precision): "f32" | "f16" {
  return precision === "fp16" ? "f16" : "f32";
}

/** FP32 numbers as they are stored: rounded to nearest, ties to even, as the devices' Cast does. */
export function toStorage(dtype: DType, values: Float32Array): Float32Array | Float16Array {
  return dtype === "f16" ? new Float16Array(values) : values;
}
