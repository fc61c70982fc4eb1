/**
 * Precision of stored tensors, and the largest sizes of a model.
 *
 * [Note: mixed precision] As in NVIDIA's AMP O2 and AxoNN (section II-B7): weights, gradients,
 * activations from F to B and what travels between stages are FP16; the optimizer has FP32 weights
 * ("master") and moments. CPU devices compute in FP32: models widen their inputs and round
 * their outputs; on a GPU the products of matrices are in FP16, and the rest as on the CPU. An
 * activation is rounded where it is computed, for the layer's own forward too, whether or not a
 * recomputation policy saves it: so every policy and interval has the same bits. Intermediate values
 * of one model (the gradients within a layer) are not rounded, and neither are the values that I
 * passes to W: so a split backward has the bits of a whole one. The loss of each sample, the fields
 * of the micro-batch and LayerNormalization's statistics are f32.
 *
 * [Note: products in BF16] As in PyTorch's autocast, the products of dense layers, forward and backward,
 * have factors in BF16 and sums in FP32. All else is FP32, also attention, and so is what is stored. A
 * model has one node that rounds each factor, however many products read it; a device computes such a
 * product as it likes best. I, W and a recomputation round the same numbers, so their bits agree.
 *
 * @module
 */

import type { DType } from "./devices/device.ts";

/**
 * The largest value of each size of a model. In addition, each tensor and the sum of all parameters
 * must stay below {@linkcode ELEMENTS_MAX}.
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
 * Checks the sizes of a model: positive integers up to {@linkcode GPT2_MAX}.
 *
 * @throws {RangeError} with the name of the size.
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

/**
 * `fp32`; `fp16`, the type in which weights, gradients, activations and messages are stored; or `bf16`,
 * the type to which the factors of dense products are rounded.
 */
export type Precision = "fp32" | "fp16" | "bf16";

/** The values of {@linkcode Precision}, for checks and help texts. */
export const PRECISIONS: readonly Precision[] = ["fp32", "fp16", "bf16"];

/** The largest finite FP16 number. */
export const F16_MAX = 65_504;

/** The largest finite FP32 number. */
export const F32_MAX = (2 - 2 ** -23) * 2 ** 127;

/** Returns the dtype of stored tensors. */
export function storageDtype(precision: Precision): "f32" | "f16" {
  return precision === "fp16" ? "f16" : "f32";
}

/** Converts FP32 numbers for storage: rounds to nearest, ties to even, as the devices' Cast does. */
export function toStorage(dtype: DType, values: Float32Array): Float32Array | Float16Array {
  return dtype === "f16" ? new Float16Array(values) : values;
}
