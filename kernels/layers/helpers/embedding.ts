/**
 * Tables of vectors: `nn.Embedding` of PyTorch.
 *
 * @module
 */

import type { Value } from "../../graph/value.ts";
import type { Initializer, LayerGraph } from "../layer.ts";
import { parameterName } from "./parameter_name.ts";

/** Options of {@linkcode embedding}. */
export interface EmbeddingOptions {
  /** Put before the name of the parameter, with a dot; nothing unless given. */
  readonly name?: string | undefined;
  /** Vectors of the table. */
  readonly rows: number;
  /** Numbers of a vector. */
  readonly width: number;
  /** First values of the table; normal with deviation 1 unless given. */
  readonly initializer?: Initializer;
}

/**
 * The vectors of ids: int32 [...] gives [..., width]. The parameter is `weight` [rows, width].
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { embedding, LayerGraph } from "@troupe/troupe/kernels";
 *
 * const g = new LayerGraph(), ids = g.batch("ids", [2, 5], "i32");
 * assert.deepEqual(embedding(g, ids, { name: "wte", rows: 100, width: 8 }).shape, [2, 5, 8]);
 * assert.deepEqual(g.parameters.map(({ spec }) => spec.name), ["wte.weight"]);
 * ```
 */
export function embedding(
  g: LayerGraph,
  ids: Value,
  { name, rows, width, initializer = { kind: "normal", deviation: 1 } }: EmbeddingOptions,
): Value {
  return g.gather(g.parameter(parameterName(name, "weight"), [rows, width], initializer), ids);
}
