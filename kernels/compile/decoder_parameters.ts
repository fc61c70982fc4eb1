/**
 * The parameters of decoders, for whoever reads or writes their files.
 *
 * @module
 */

import { llama, type LlamaConfig } from "../architectures/llama.ts";
import { gpt2, type Gpt2Config } from "../layers/gpt2.ts";
import type { Model } from "../layers/layer.ts";
import { compileModel, type ModelParameter } from "./compile_model.ts";

/**
 * The parameters of a GPT-2 by name and shape, those of the head last. A tied head has none.
 *
 * @throws {RangeError} when a size is not a positive integer, or heads do not divide hidden.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { gpt2Parameters } from "@troupe/troupe/kernels";
 *
 * const parameters = gpt2Parameters({ layers: 3, hidden: 8, heads: 2, seq: 4, vocab: 16 });
 * assert.equal(parameters.length, 2 + 3 * 12 + 3);
 * const { name, shape } = parameters.at(-1)!;
 * assert.deepEqual([name, shape], ["lm_head.weight", [16, 8]]);
 * ```
 */
export const gpt2Parameters = (config: Gpt2Config): readonly ModelParameter[] =>
  parametersOf(gpt2(config, 1), config.layers, (i) => `transformer.h.${i}.`);

/**
 * The parameters of a Llama by name and shape, those of the head last. A tied head has none.
 *
 * @throws {RangeError} when a size cannot be.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { llamaParameters } from "@troupe/troupe/kernels";
 *
 * const parameters = llamaParameters({ layers: 3, hidden: 8, heads: 2, seq: 4, vocab: 16 });
 * assert.equal(parameters.length, 1 + 3 * 9 + 2);
 * assert.deepEqual(parameters.at(-1)!.shape, [16, 8]);
 * ```
 */
export const llamaParameters = (config: LlamaConfig): readonly ModelParameter[] =>
  parametersOf(llama(config, 1), config.layers, (i) => `model.layers.${i}.`);

/** Blocks are alike, and their number may be a stranger's word: one is compiled. */
function parametersOf(
  model: Model,
  count: number,
  prefixOf: (block: number) => string,
): ModelParameter[] {
  const layers = model.layers.filter(({ block = "head" }) => ["block 0", "head"].includes(block));
  const { parameters } = compileModel({ ...model, layers }, "none"), first = prefixOf(0);
  const isOfBlock = ({ name }: ModelParameter) => name.startsWith(first);
  const block = parameters.filter(isOfBlock), at = parameters.findIndex(isOfBlock);
  const renamed = (name: string, i: number) => prefixOf(i) + name.slice(first.length);
  const blocks = Array.from(
    { length: count },
    (_, i) => block.map((one) => ({ ...one, name: renamed(one.name, i) })),
  );
  return [...parameters.slice(0, at), ...blocks.flat(), ...parameters.slice(at + block.length)];
}
