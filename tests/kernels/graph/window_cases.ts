/** Graphs of convolutions, pooling, padding and norms, at least one for each gradient of a window. */

import { elementCount, type Graph, type Value } from "../../../kernels/mod.ts";
import type { Case } from "./slopes.ts";

/** Adds to each element so much that none is near another, and no slope is in doubt. */
function apart(g: Graph, x: Value): Value {
  const count = elementCount(x.shape);
  const far = Float32Array.from({ length: count }, (_, i) => 3 * ((i * 7) % count));
  return g.add(x, g.constant(far, x.shape));
}

const squared = (g: Graph, x: Value) => g.mul(x, x);

/** By operation. */
export const WINDOW_CASES: Readonly<Record<string, readonly Case[]>> = {
  Conv: [
    {
      shapes: [[2, 3, 5, 6], [4, 3, 3, 2], [4]],
      build: (g, x, w, b) => squared(g, g.conv(x!, w!, b!)),
    },
    {
      shapes: [[2, 4, 7, 6], [6, 2, 3, 3]],
      build: (g, x, w) =>
        g.conv(x!, w!, undefined, {
          groups: 2,
          strides: [2, 3],
          pads: [1, 0, 2, 1],
          dilations: [2, 1],
        }),
    },
    {
      shapes: [[2, 3, 9], [2, 3, 4], [2]],
      build: (g, x, w, b) => g.conv(x!, w!, b!, { strides: 3 }),
    },
    {
      shapes: [[1, 2, 6, 5], [2, 1, 3, 4]],
      build: (g, x, w) => g.conv(x!, w!, undefined, { groups: 2, strides: 2, pads: "SAME_UPPER" }),
    },
    {
      shapes: [[1, 2, 6, 5], [3, 2, 2, 4]],
      build: (g, x, w) => g.conv(x!, w!, undefined, { pads: "SAME_LOWER", dilations: 2 }),
    },
    {
      shapes: [[2, 4, 4, 3], [10, 2, 2, 2], [10]],
      build: (g, x, w, b) => g.conv(x!, w!, b!, { groups: 2 }),
    },
    {
      shapes: [[1, 2, 5, 4], [4, 1, 3, 3]],
      build: (g, x, w) => g.conv(x!, w!, undefined, { groups: 2, strides: 2, pads: 1 }),
    },
    {
      shapes: [[1, 64, 4, 4], [3, 64, 2, 2]],
      build: (g, x, w) => g.conv(x!, w!, undefined, { strides: 2, pads: 1 }),
    },
    {
      shapes: [[2, 3, 2, 2], [2, 3, 1, 1]],
      build: (g, x, w) => g.conv(x!, w!, undefined, { pads: 1 }),
    },
  ],
  ConvTranspose: [
    {
      shapes: [[2, 3, 4, 3], [3, 2, 3, 2], [2]],
      build: (g, x, w, b) => squared(g, g.convTranspose(x!, w!, b!)),
    },
    {
      shapes: [[2, 4, 3, 4], [4, 3, 3, 3]],
      build: (g, x, w) =>
        g.convTranspose(x!, w!, undefined, {
          groups: 2,
          strides: [3, 2],
          pads: [1, 2, 0, 1],
          dilations: [1, 2],
          outputPadding: [2, 1],
        }),
    },
    {
      shapes: [[2, 4, 3, 3], [4, 1, 2, 2], [2]],
      build: (g, x, w, b) => g.convTranspose(x!, w!, b!, { groups: 2 }),
    },
    {
      shapes: [[1, 12, 3, 3], [12, 1, 2, 2]],
      build: (g, x, w) => g.convTranspose(x!, w!, undefined, { groups: 2 }),
    },
    {
      shapes: [[2, 3, 5], [3, 2, 4]],
      build: (g, x, w) => g.convTranspose(x!, w!, undefined, { strides: 2, pads: "SAME_UPPER" }),
    },
  ],
  MaxPool: [
    {
      shapes: [[2, 3, 4, 6]],
      build: (g, x) => squared(g, g.maxPool(apart(g, x!), 2, { strides: 2 })),
    },
    {
      shapes: [[2, 2, 6, 7]],
      build: (g, x) => g.maxPool(apart(g, x!), [3, 2], { strides: [2, 1], pads: [1, 0, 1, 1] }),
    },
    {
      shapes: [[1, 2, 8]],
      build: (g, x) => g.maxPool(apart(g, x!), 3, { strides: 2, dilations: 2, ceilMode: true }),
    },
    { shapes: [[2, 3, 3, 4]], build: (g, x) => g.globalMaxPool(apart(g, x!)) },
  ],
  AveragePool: [
    { shapes: [[2, 3, 4, 6]], build: (g, x) => squared(g, g.averagePool(x!, 2, { strides: 2 })) },
    {
      shapes: [[2, 2, 6, 7]],
      build: (g, x) => g.averagePool(x!, [3, 2], { strides: [2, 1], pads: [1, 0, 1, 1] }),
    },
    {
      shapes: [[1, 2, 8]],
      build: (g, x) =>
        g.averagePool(x!, 3, { strides: 2, pads: 1, ceilMode: true, countIncludePad: true }),
    },
    { shapes: [[1, 2, 5, 7]], build: (g, x) => g.averagePool(x!, 2, { strides: 2 }) },
  ],
  Resize: [
    { shapes: [[2, 3, 2, 3]], build: (g, x) => squared(g, g.upsample(x!, [2, 3])) },
    { shapes: [[2, 3, 4]], build: (g, x) => squared(g, g.upsample(x!, 2)) },
  ],
  Pad: [{ shapes: [[2, 3, 4]], build: (g, x) => squared(g, g.pad(x!, [1, 0, 2, 0, 1, 3], 0.5)) }],
};

/** Of whole numbers, windows in which several are the largest: no slope can be measured there. */
export const TIES: Case = {
  shapes: [[2, 3, 7, 6]],
  build: (g, x) => g.maxPool(x!, 3, { strides: 2, pads: 1 }),
};

/** What is composed of other operations. */
export const COMPOSED_CASES: Readonly<Record<string, Case>> = {
  groupNorm: {
    shapes: [[2, 6, 3, 4], [6], [6]],
    build: (g, x, w, b) => squared(g, g.groupNorm(x!, 3, w!, b!)),
  },
  instanceNorm: {
    shapes: [[2, 3, 4, 4], [3], [3]],
    build: (g, x, w, b) => squared(g, g.instanceNorm(x!, w!, b!)),
  },
  "batchNorm by its batch": {
    shapes: [[3, 4, 3, 2], [4], [4]],
    build: (g, x, w, b) => squared(g, g.batchNorm(x!, w!, b!)),
  },
  "batchNorm by given statistics": {
    shapes: [[3, 4, 5], [4], [4]],
    build: (g, x, w, b) => {
      const given = (...numbers: number[]) => g.constant(Float32Array.from(numbers), [4]);
      const statistics = { mean: given(0.1, -0.2, 0, 0.5), variance: given(0.5, 1, 2, 0.25) };
      return squared(g, g.batchNorm(x!, w!, b!, statistics));
    },
  },
  "resize by lines": {
    shapes: [[2, 3, 5, 4]],
    build: (g, x) => squared(g, g.resize(x!, [7, 3], { mode: "linear" })),
  },
  "resize to the nearest": {
    shapes: [[1, 2, 5, 4]],
    build: (g, x) =>
      squared(g, g.resize(x!, [3, 4], { coordinates: "asymmetric", nearest: "floor" })),
  },
  "pad by reflection": {
    shapes: [[2, 3, 4]],
    build: (g, x) => squared(g, g.pad(x!, [0, 1, 2, 0, 0, 3], "reflect")),
  },
  "pad by the edge": {
    shapes: [[2, 3, 4]],
    build: (g, x) => squared(g, g.pad(x!, [0, 1, 2, 0, 0, 5], "edge")),
  },
  globalAveragePool: {
    shapes: [[2, 3, 4, 5]],
    build: (g, x) => squared(g, g.globalAveragePool(x!)),
  },
};
