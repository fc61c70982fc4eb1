/** One model for each operation on windows, of any size: continues `operator_cases.ts`. */

import type { OperatorCase, Sizes } from "./operands.ts";

const f32 = (...shape: number[]) => ({ shape, dtype: "f32", range: [-1, 1] }) as const;
const ints = (...constant: number[]) =>
  ({ shape: [constant.length], dtype: "i64", constant }) as const;
const number = (value: number) => ({ shape: [], dtype: "f32", constant: [value] }) as const;
const none = { shape: [0], dtype: "f32", constant: [] } as const;
const out = (...shape: number[]) => ({ shape, dtype: "f32" }) as const;

const pool = { kernel_shape: [3, 2], strides: [2, 1], pads: [1, 0, 1, 1] };

/** The cases by name; a name begins with its operation. */
export const WINDOW_OPERATORS: Readonly<Record<string, (sizes: Sizes) => OperatorCase>> = {
  Conv: ({ b, n, m, k }) => ({
    op: "Conv",
    inputs: [f32(b, k, n + 1, m), f32(n, k, 2, 1), f32(n)],
    outputs: [out(b, n, n, m)],
  }),
  "Conv of groups": ({ b, n, m, k }) => ({
    op: "Conv",
    inputs: [f32(b, 2 * k, n + 4, m), f32(2 * n, k, 3, 2)],
    outputs: [out(b, 2 * n, Math.floor(n / 2) + 1, m + 1)],
    attributes: { group: 2, strides: [2, 1], pads: [1, 1, 0, 1], dilations: [2, 1] },
  }),
  "Conv of one axis": ({ b, n, m, k }) => ({
    op: "Conv",
    inputs: [f32(b, k, m), f32(n, k, 3)],
    outputs: [out(b, n, m)],
    attributes: { auto_pad: "SAME_UPPER" },
  }),
  ConvTranspose: ({ b, n, m, k }) => ({
    op: "ConvTranspose",
    inputs: [f32(b, k, n, m), f32(k, m, 3, 2), f32(m)],
    outputs: [out(b, m, 2 * n + 1, m)],
    attributes: { strides: [2, 1], pads: [0, 0, 1, 1], output_padding: [1, 0] },
  }),
  "ConvTranspose of groups": ({ b, n, m, k }) => ({
    op: "ConvTranspose",
    inputs: [f32(b, 2 * k, n, m), f32(2 * k, n, 2, 2)],
    outputs: [out(b, 2 * n, 2 * n, 2 * m)],
    attributes: { group: 2, strides: [2, 2] },
  }),
  "ConvTranspose of one axis": ({ b, n, m, k }) => ({
    op: "ConvTranspose",
    inputs: [f32(b, k, m), f32(k, n, 3)],
    outputs: [out(b, n, 2 * m)],
    attributes: { strides: [2], auto_pad: "SAME_UPPER" },
  }),
  MaxPool: ({ b, n, m, k }) => ({
    op: "MaxPool",
    inputs: [f32(b, k, n + 1, m)],
    outputs: [out(b, k, Math.floor(n / 2) + 1, m)],
    attributes: pool,
  }),
  "MaxPool with places": ({ b, n, m, k }) => ({
    op: "MaxPool",
    inputs: [f32(b, k, n + 1, m)],
    outputs: [
      out(b, k, Math.floor(n / 2) + 1, m),
      { shape: [b, k, Math.floor(n / 2) + 1, m], dtype: "i64" },
    ],
    attributes: pool,
  }),
  ...Object.fromEntries([0, 1].map((count_include_pad) => [
    `AveragePool, count_include_pad ${count_include_pad}`,
    ({ b, n, m, k }: Sizes): OperatorCase => ({
      op: "AveragePool",
      inputs: [f32(b, k, n + 1, m)],
      outputs: [out(b, k, Math.floor(n / 2) + 1, m)],
      attributes: { ...pool, count_include_pad },
    }),
  ])),
  Resize: ({ b, n, m, k }) => ({
    op: "Resize",
    inputs: [f32(b, n, m, k), none, none, ints(b, n, 2 * m, 3 * k)],
    outputs: [out(b, n, 2 * m, 3 * k)],
    attributes: {
      mode: "nearest",
      coordinate_transformation_mode: "asymmetric",
      nearest_mode: "floor",
    },
  }),
  Pad: ({ n, m, k }) => ({
    op: "Pad",
    inputs: [f32(n, m), ints(k, 0, 1, 2), number(0.5)],
    outputs: [out(n + k + 1, m + 2)],
  }),
};
