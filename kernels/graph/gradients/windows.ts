/**
 * Gradients of operations on windows: convolutions and pooling.
 *
 * @module
 */

import type { Graph } from "../graph.ts";
import { elementCount } from "../shapes.ts";
import { type Node, TROUPE, type Value } from "../value.ts";
import { unreadBehind, windowAttributes, windowsOfNode } from "../windows.ts";
import { type GradientRule, unary } from "./rule.ts";

/** The sum over everything but channels. */
function channelSums(g: Graph, dy: Value): Value {
  return g.sum(dy, dy.shape.flatMap((_, axis) => axis === 1 ? [] : [axis]));
}

/**
 * The gradient of a weight between images: `wide`, over which windows move, and `narrow`, of which
 * each element is one window's.
 */
function weightGradient(g: Graph, node: Node, narrow: Value, wide: Value): Value {
  const attributes = { ...windowAttributes(windowsOfNode(node)), group: node.attributes.group! };
  const shape = node.inputs[1]!.shape;
  return g.node("ConvWeightGrad", [narrow, wide], [shape], attributes, TROUPE)[0]!;
}

/** dx is the transposed convolution of dy. */
const conv: GradientRule = (g, node, [dy], needed) => {
  const [x, weight] = node.inputs as [Value, Value], windows = windowsOfNode(node);
  const { kernel: _, ...moves } = windows, groups = node.attributes.group as number;
  const outputPadding = unreadBehind(x.shape.slice(2), windows);
  return [
    needed[0]
      ? g.convTranspose(dy!, weight, undefined, { ...moves, groups, outputPadding })
      : undefined,
    needed[1] ? weightGradient(g, node, dy!, x) : undefined,
    needed[2] ? channelSums(g, dy!) : undefined,
  ];
};

/** dx is the convolution of dy. */
const convTranspose: GradientRule = (g, node, [dy], needed) => {
  const [x, weight] = node.inputs as [Value, Value];
  const { kernel: _, ...moves } = windowsOfNode(node), groups = node.attributes.group as number;
  return [
    needed[0] ? g.conv(dy!, weight, undefined, { ...moves, groups }) : undefined,
    needed[1] ? weightGradient(g, node, x, dy!) : undefined,
    needed[2] ? channelSums(g, dy!) : undefined,
  ];
};

const maxPool: GradientRule = (g, node, [dy]) => {
  const [x] = node.inputs as [Value], attributes = windowAttributes(windowsOfNode(node));
  return g.node("MaxPoolGrad", [dy!, x], [x.shape], attributes, TROUPE);
};

/** Each element gets its share of every window in which it is. */
const averagePool = unary((g, dy, x, _, node) => {
  const windows = windowsOfNode({
    attributes: { dilations: x.shape.slice(2).map(() => 1), ...node.attributes },
  });
  const [n = 0, channels = 0, ...sizes] = x.shape, counts = dy.shape.slice(2);
  const { kernel, strides, pads } = windows;
  const share = g.mul(dy, g.scalar(1 / elementCount(kernel)));
  const areApart = kernel.every((size, axis) =>
    size === strides[axis] && size * counts[axis]! === sizes[axis]
  ) && pads.every((pad) => pad === 0);
  if (areApart) return g.upsample(share, kernel);
  const ones = g.constant(new Float32Array(elementCount(kernel)).fill(1), [1, 1, ...kernel]);
  const { kernel: __, ...moves } = windows;
  const spread = g.convTranspose(g.reshape(share, [n * channels, 1, ...counts]), ones, undefined, {
    ...moves,
    outputPadding: unreadBehind(sizes, windows),
  });
  return g.reshape(spread, x.shape);
});

/** Each element gets the sum of what its copies get. */
const repeat = unary((g, dy, x) => {
  const [n = 0, channels = 0, ...sizes] = x.shape, images = n * channels;
  const wide = dy.shape.slice(2), factors = wide.map((size, axis) => size / sizes[axis]!);
  const ones = g.constant(new Float32Array(elementCount(factors)).fill(1), [1, 1, ...factors]);
  const sums = g.conv(g.reshape(dy, [images, 1, ...wide]), ones, undefined, { strides: factors });
  return g.reshape(sums, x.shape);
});

/** What was padded is cut off. */
const pad = unary((g, dy, x, _, node) => {
  const pads = [...node.inputs[1]!.data as BigInt64Array].map(Number), rank = x.shape.length;
  const ends = x.shape.map((size, axis) => pads[axis]! + size);
  return g.node("Slice", [dy, g.int64(pads.slice(0, rank)), g.int64(ends)], [x.shape])[0]!;
});

/** Rules of operations on windows. */
export const WINDOWS: Readonly<Record<string, GradientRule>> = {
  Conv: conv,
  ConvTranspose: convTranspose,
  MaxPool: maxPool,
  AveragePool: averagePool,
  Pad: pad,
  Resize: repeat,
};
