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
 * const parameters = gpt2Parameters({ layers: 1, hidden: 8, heads: 2, seq: 4, vocab: 16 });
 * const { name, shape } = parameters.at(-1)!;
 * assert.deepEqual([name, shape], ["lm_head.weight", [16, 8]]);
 * ```
 */
export function gpt2Parameters(config: Gpt2Config): readonly ModelParameter[] {
  return compileModel(gpt2(config, 1), "none").parameters;
}
