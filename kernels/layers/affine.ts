/**
 * LayerNorm and linear maps, each with parameters of its own.
 *
 * @module
 */

import type { Value } from "../graph/value.ts";
import type { Initializer, LayerGraph } from "./layer.ts";

const ZERO: Initializer = { kind: "constant", value: 0 };
const ONE: Initializer = { kind: "constant", value: 1 };

/** LayerNorm with the parameters `${name}.weight` and `${name}.bias`. */
export function layerNorm(g: LayerGraph, x: Value, name: string): Value {
  const size = x.shape.slice(-1);
  return g.layerNorm(
    x,
    g.parameter(`${name}.weight`, size, ONE),
    g.parameter(`${name}.bias`, size, ZERO),
  );
}

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
