/**
 * Linear maps as GPT-2 has them, whose weights are [in, out].
 *
 * @module
 */

import type { Value } from "../graph/value.ts";
import type { Initializer, LayerGraph } from "./layer.ts";

const ZERO: Initializer = { kind: "constant", value: 0 };

/** x·W + b with the parameters `${name}.weight` and `${name}.bias`. */
export function linear(
  g: LayerGraph,
  x: Value,
  name: string,
  outputs: number,
  deviation = 0.02,
): Value {
  const weight = g.parameter(`${name}.weight`, [x.shape[1]!, outputs], {
    kind: "normal",
    deviation,
  });
  return g.gemm(x, weight, g.parameter(`${name}.bias`, [outputs], ZERO));
}
