/**
 * Gradients of operations that normalise along axes.
 *
 * @module
 */

import { numberOf, type Value } from "../value.ts";
import { fused, type GradientRule, unary, unbroadcast } from "./rule.ts";

/** The gradients of x, and of weight and bias: two operations, as I needs one of them and W the other. */
const layerNorm: GradientRule = (g, node, [dy], needed) => {
  const [x, weight, bias] = node.inputs as [Value, Value, Value];
  const [, mean, inverseDeviation] = node.outputs as [Value, Value, Value];
  const statistics = [x, mean, inverseDeviation];
  const [dWeight, dBias] = needed[1] || needed[2]
    ? fused(g, "LayerNormWeightGrad", [dy!, ...statistics], [weight.shape, bias.shape])
    : [];
  return [
    needed[0] ? fused(g, "LayerNormInputGrad", [dy!, ...statistics, weight])[0] : undefined,
    needed[1] ? dWeight : undefined,
    needed[2] ? dBias : undefined,
  ];
};

/**
 * With x̂ = x/r, r² = mean x² + ε and f = dy·w: dx = (f − x̂·mean(f·x̂))/r, dw = Σ dy·x̂. Each makes x̂ for
 * itself, as I needs one of them and W the other, and keeping it for both takes more.
 */
const rmsNorm: GradientRule = (g, node, [dy], needed) => {
  const [x, weight] = node.inputs as [Value, Value], last = [x.shape.length - 1];
  const epsilon = g.scalar(numberOf(node, "epsilon", 1e-5)), size = g.scalar(1 / weight.shape[0]!);
  const mean = (sum: Value) => g.mul(sum, size);
  const inverse = () => g.reciprocal(g.sqrt(g.add(mean(g.sumOfSquares(x, last, true)), epsilon)));
  const dx = () => {
    const scale = inverse(), normal = g.mul(x, scale), f = g.mul(dy!, weight);
    return g.mul(g.sub(f, g.mul(normal, mean(g.sum(g.mul(f, normal), last, true)))), scale);
  };
  return [
    needed[0] ? dx() : undefined,
    needed[1] ? unbroadcast(g, g.mul(dy!, g.mul(x, inverse())), weight.shape) : undefined,
  ];
};

/** Rules of normalisations. */
export const NORMALIZATION: Readonly<Record<string, GradientRule>> = {
  Softmax: unary((g, dy, _, y, node) => {
    const axis = node.attributes.axis as number;
    if (axis === y.shape.length - 1) return fused(g, "SoftmaxGrad", [dy, y])[0]!;
    const weighted = g.mul(y, dy);
    return g.sub(weighted, g.mul(y, g.sum(weighted, [axis], true)));
  }),
  LogSoftmax: unary((g, dy, _, y, node) =>
    g.sub(dy, g.mul(g.exp(y), g.sum(dy, [node.attributes.axis as number], true)))
  ),
  LayerNormalization: layerNorm,
  SimplifiedLayerNormalization: rmsNorm,
};
