/** Graphs of convolutions, pooling, padding and norms, at least one for each gradient of a window. */

import type {
  AveragePoolOptions,
  ConvOptions,
  ConvTransposeOptions,
  Graph,
  PoolOptions,
  Value,
} from "../../../kernels/mod.ts";
import { elementCount } from "../../../kernels/graph/shapes.ts";
import { type Case, on } from "./slopes.ts";

/** Moves elements apart, so that all maxima are unique. */
function apart(g: Graph, x: Value): Value {
  const count = elementCount(x.shape);
  const far = Float32Array.from({ length: count }, (_, i) => 3 * ((i * 7) % count));
  return g.add(x, g.constant(far, x.shape));
}

/** A case whose result is squared, so that its gradient depends on it. */
const squared = (shapes: Case["shapes"], build: Parameters<typeof on>[1]): Case =>
  on(shapes, (g, x, w, b) => {
    const y = build(g, x, w, b);
    return g.mul(y, y);
  });

const conv = (shapes: Case["shapes"], options?: ConvOptions): Case =>
  squared(shapes, (g, x, w, b) => g.conv(x, w, b, options));

const transposed = (shapes: Case["shapes"], options?: ConvTransposeOptions): Case =>
  squared(shapes, (g, x, w, b) => g.convTranspose(x, w, b, options));

const maxPool = (shape: readonly number[], size: number | number[], options: PoolOptions): Case =>
  on([shape], (g, x) => g.maxPool(apart(g, x), size, options));

const averagePool = (
  shape: readonly number[],
  size: number | number[],
  options: AveragePoolOptions,
): Case => squared([shape], (g, x) => g.averagePool(x, size, options));

/** By operation. */
export const WINDOW_CASES: Readonly<Record<string, readonly Case[]>> = {
  Conv: [
    conv([[2, 3, 5, 6], [4, 3, 3, 2], [4]]),
    conv([[2, 4, 7, 6], [6, 2, 3, 3]], {
      ...{ groups: 2, strides: [2, 3], pads: [1, 0, 2, 1], dilations: [2, 1] },
    }),
    conv([[2, 3, 9], [2, 3, 4], [2]], { strides: 3 }),
    conv([[1, 2, 6, 5], [2, 1, 3, 4]], { groups: 2, strides: 2, pads: "SAME_UPPER" }),
    conv([[1, 2, 6, 5], [3, 2, 2, 4]], { pads: "SAME_LOWER", dilations: 2 }),
    conv([[2, 4, 4, 3], [10, 2, 2, 2], [10]], { groups: 2 }),
    conv([[1, 2, 5, 4], [4, 1, 3, 3]], { groups: 2, strides: 2, pads: 1 }),
    conv([[1, 64, 4, 4], [3, 64, 2, 2]], { strides: 2, pads: 1 }),
    conv([[2, 3, 2, 2], [2, 3, 1, 1]], { pads: 1 }),
    conv([[1, 6, 3, 4], [4, 6, 2, 2], [4]]),
  ],
  ConvTranspose: [
    transposed([[2, 3, 4, 3], [3, 2, 3, 2], [2]]),
    transposed([[2, 4, 3, 4], [4, 3, 3, 3]], {
      ...{ groups: 2, strides: [3, 2], pads: [1, 2, 0, 1], dilations: [1, 2] },
      outputPadding: [2, 1],
    }),
    transposed([[2, 4, 3, 3], [4, 1, 2, 2], [2]], { groups: 2 }),
    transposed([[1, 12, 3, 3], [12, 1, 2, 2]], { groups: 2 }),
    transposed([[2, 3, 5], [3, 2, 4]], { strides: 2, pads: "SAME_UPPER" }),
  ],
  MaxPool: [
    squared([[2, 3, 4, 6]], (g, x) => g.maxPool(apart(g, x), 2, { strides: 2 })),
    maxPool([2, 2, 6, 7], [3, 2], { strides: [2, 1], pads: [1, 0, 1, 1] }),
    maxPool([1, 2, 8], 3, { strides: 2, dilations: 2, ceilMode: true }),
    on([[2, 3, 3, 4]], (g, x) => g.globalMaxPool(apart(g, x))),
  ],
  AveragePool: [
    averagePool([2, 3, 4, 6], 2, { strides: 2 }),
    averagePool([2, 2, 6, 7], [3, 2], { strides: [2, 1], pads: [1, 0, 1, 1] }),
    averagePool([1, 2, 8], 3, { strides: 2, pads: 1, ceilMode: true, countIncludePad: true }),
    averagePool([1, 2, 5, 7], 2, { strides: 2 }),
  ],
  Resize: [
    squared([[2, 3, 2, 3]], (g, x) => g.upsample(x, [2, 3])),
    squared([[2, 3, 4]], (g, x) => g.upsample(x, 2)),
  ],
  Pad: [squared([[2, 3, 4]], (g, x) => g.pad(x, [1, 0, 2, 0, 1, 3], 0.5))],
};

/** Of whole numbers, windows in which several are the largest: no slope can be measured there. */
export const TIES: Case = on([[2, 3, 7, 6]], (g, x) => g.maxPool(x, 3, { strides: 2, pads: 1 }));

/** Composed operations; PyTorch's images have more of them. */
export const COMPOSED_CASES: Readonly<Record<string, Case>> = {
  groupNorm: squared([[2, 6, 3, 4], [6], [6]], (g, x, w, b) => g.groupNorm(x, 3, w, b)),
  "resize by lines": squared([[2, 3, 5, 4]], (g, x) => g.resize(x, [7, 3], { mode: "linear" })),
  "pad whole numbers": on([[4]], (g, x) => {
    const ends = g.pad(g.constant(Int32Array.of(1, 2), [2], "i32"), [1, 1], 5);
    return g.mul(x, g.cast(ends, "f32"));
  }),
  "losses of i64 targets": on([[2, 3]], (g, x) => {
    const targets = g.constant(BigInt64Array.of(2n, -1n), [2], "i64");
    return g.crossEntropy(x, targets);
  }),
  "sum of no elements": on([[2, 0, 3]], (g, x) => g.sum(x, [0])),
  "mean of no elements": on([[0, 3]], (g, x) => g.mean(x, [1])),
  "gelu of a scalar": on([[]], (g, x) => g.gelu(x)),
  "pad a scalar": on([[]], (g, x) => g.pad(g.mul(x, x), [])),
  "gelu of no elements": on([[0, 3]], (g, x) => g.gelu(x)),
  "convolution of no images": on([[0, 3, 5, 5], [2, 3, 3, 3]], (g, x, w) => g.conv(x, w)),
  "losses of no rows": on(
    [[0, 4]],
    (g, x) => g.crossEntropy(x, g.constant(new Int32Array(0), [0], "i32")),
  ),
  "pad by reflection": squared([[2, 3, 4]], (g, x) => g.pad(x, [0, 1, 2, 0, 0, 3], "reflect")),
};
