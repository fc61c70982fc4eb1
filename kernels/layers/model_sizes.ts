/**
 * The sizes that models may have.
 *
 * @module
 */

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
