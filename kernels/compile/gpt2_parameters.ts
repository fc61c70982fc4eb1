/**
 * The parameters of a GPT-2, for whoever reads or writes its files.
 *
 * @module
 */

import { gpt2, type Gpt2Config } from "../layers/gpt2.ts";
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
export function gpt2Parameters(config: Gpt2Config): readonly ModelParameter[] {
  const model = gpt2(config, 1);
  // Blocks are alike, and their number may be a stranger's word: one is compiled.
  const layers = model.layers.filter(({ block = "head" }) => ["block 0", "head"].includes(block));
  const { parameters } = compileModel({ ...model, layers }, "none");
  const block = parameters.filter(isOfBlock), at = parameters.findIndex(isOfBlock);
  const blocks = Array.from(
    { length: config.layers },
    (_, i) =>
      block.map((one) => ({ ...one, name: one.name.replace(BLOCK, `transformer.h.${i}.`) })),
  );
  return [...parameters.slice(0, at), ...blocks.flat(), ...parameters.slice(at + block.length)];
}

/** What the names of the first block's parameters begin with. */
const BLOCK = "transformer.h.0.";

const isOfBlock = ({ name }: ModelParameter): boolean => name.startsWith(BLOCK);
