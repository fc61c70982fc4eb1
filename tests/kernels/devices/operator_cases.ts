/** One model for each operation that Troupe uses, of any size, to compare devices with. */

import type { DType } from "../../../kernels/devices/device.ts";
import { type Attribute, MICROSOFT, ONNX_DTYPE } from "../../../kernels/graph/value.ts";

/** An operand: random numbers in a range, or given ones that become a constant of the model. */
export interface Operand {
  readonly shape: readonly number[];
  readonly dtype: DType;
  /** Random numbers are in low .. high; whole ones for integer dtypes. */
  readonly range?: readonly [low: number, high: number];
  readonly constant?: readonly number[];
}

/** One operation on operands of some shapes. */
export interface OperatorCase {
  readonly op: string;
  readonly domain?: string;
  readonly inputs: readonly Operand[];
  readonly outputs: readonly { readonly shape: readonly number[]; readonly dtype: DType }[];
  readonly attributes?: Record<string, Attribute>;
}

/** Random sizes of the axes of a case. */
export interface Sizes {
  readonly b: number;
  readonly n: number;
  readonly m: number;
  readonly k: number;
}

/** Of a case: inputs, outputs, attributes. */
type Row = readonly [Operand[], Operand[], Record<string, Attribute>?];
/** By the name of the case, which begins with its operation. */
type Rows = Record<string, (sizes: Sizes) => Row>;

type Shape = readonly number[];

const of = (shape: Shape, dtype: DType, low: number, high: number): Operand => ({
  shape,
  dtype,
  range: [low, high],
});
const f32 = (...shape: Shape) => of(shape, "f32", -2, 2);
const unit = (...shape: Shape) => of(shape, "f32", -1, 1);
const positive = (...shape: Shape) => of(shape, "f32", 0.5, 3);
const f16 = (...shape: Shape) => of(shape, "f16", -2, 2);
const i32 = (...shape: Shape) => of(shape, "i32", -5, 5);
const i64 = (...shape: Shape) => of(shape, "i64", -1000, 1000);
const bool = (...shape: Shape) => of(shape, "bool", 0, 1);
/** Indices of an axis of `size`. */
const index = (size: number, dtype: "i32" | "i64", ...shape: Shape) =>
  of(shape, dtype, 0, size - 1);
const given = (dtype: DType, shape: Shape, ...constant: number[]) => ({ shape, dtype, constant });
/** Shapes, axes. */
const ints = (...constant: number[]) => given("i64", [constant.length], ...constant);
const place = (axis: number) => given("i64", [], axis);
const float = (value: number): Attribute => ({ float: value });

const NUMBERS = ["f32", "i32", "i64"] as const;
const WHOLE = ["i32", "i64"] as const;

/** The same for each of several names. */
const each = <T extends string | number>(all: readonly T[], rows: (one: T) => Rows): Rows =>
  Object.assign({}, ...all.map(rows));

const SMOOTH = ["Identity", "Neg", "Exp", "Tanh", "Erf", "Sigmoid", "Relu", "Sin", "Cos"];
const STEPS = ["Softplus", "HardSwish", "Abs", "Sign", "Floor", "Ceil", "Round"];

const ELEMENTWISE: Rows = {
  ...each([...SMOOTH, ...STEPS], (op) => ({ [op]: ({ n, m }) => [[f32(n, m)], [f32(n, m)]] })),
  ...each(["Sin", "Cos"], (op) => ({
    [`${op} of large numbers`]: ({ n, m }) => [[of([n, m], "f32", -300, 300)], [f32(n, m)]],
  })),
  "Round of halves": () => [[given("f32", [6], -3.5, -2.5, -1.5, 0.5, 1.5, 2.5)], [f32(6)]],
  ...each(["Log", "Sqrt", "Reciprocal"], (op) => ({
    [op]: ({ n, m }) => [[positive(n, m)], [f32(n, m)]],
  })),
  ...each(["Add", "Sub", "Mul", "Div", "Pow"], (op) => ({
    [op]: ({ b, n, m }) => [[positive(b, n, m), positive(n, 1)], [f32(b, n, m)]],
  })),
  ...each(["Add", "Sub", "Mul", "Div"], (op) => ({
    [`${op} of i32`]: ({ n, m }) => [[i32(n, m), of([m], "i32", 1, 9)], [i32(n, m)]],
    [`${op} of i64`]: ({ n }) => [[i64(n), of([n], "i64", 1, 1000)], [i64(n)]],
  })),
  "Add of f16": ({ n, m }) => [[f16(n, m), f16()], [f16(n, m)]],
  ...each(["Min", "Max", "Mod"], (op) =>
    each(NUMBERS, (dtype) => ({
      [`${op} of ${dtype}`]: ({ n, m }) => [
        [of([n, m], dtype, -3, 9), of([m], dtype, 1, 5)],
        [of([n, m], dtype, 0, 0)],
        op === "Mod" && dtype === "f32" ? { fmod: 1 } : {},
      ],
    }))),
  "Mod of i32 with fmod": ({ n, m }) => [[i32(n, m), of([m], "i32", 1, 5)], [i32(n, m)], {
    fmod: 1,
  }],
  ...each(
    ["Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"],
    (op) =>
      each(NUMBERS, (dtype) => ({
        [`${op} of ${dtype}`]: ({ n, m }) => [
          [of([n, m], dtype, -2, 2), of([n, 1], dtype, -2, 2)],
          [bool(n, m)],
        ],
      })),
  ),
  ...each(["And", "Or", "Xor", "Equal"], (op) => ({
    [`${op} of bool`]: ({ n, m }) => [[bool(n, m), bool(m)], [bool(n, m)]],
  })),
  IsNaN: () => [[given("f32", [4], 1, NaN, Infinity, -0)], [bool(4)]],
  Not: ({ n }) => [[bool(n)], [bool(n)]],
  ...each(NUMBERS, (dtype) => ({
    [`Where of ${dtype}`]: ({ n, m }) => [
      [bool(n, m), of([n, m], dtype, -9, 9), of([], dtype, -9, 9)],
      [of([n, m], dtype, 0, 0)],
    ],
  })),
};

const CASTS = [
  ...["f32 to f16", "f16 to f32", "f32 to i32", "f32 to i64", "i32 to f32", "i64 to i32"],
  ...["i32 to i64", "i32 to bool", "bool to f32", "bool to i64", "i64 to f32"],
];

const ACTIVATIONS: Rows = {
  ...each(["none", "tanh"], (approximate) => ({
    [`Gelu ${approximate}`]: ({ n, m }) => [[f32(n, m)], [f32(n, m)], { approximate }],
  })),
  ...each(["HardSigmoid", "LeakyRelu", "Elu"], (op) => ({
    [op]: ({ n, m }) => [[f32(n, m)], [f32(n, m)], { alpha: float(0.3) }],
    [`${op} by default`]: ({ n, m }) => [[f32(n, m)], [f32(n, m)]],
  })),
  PRelu: ({ n, m }) => [[f32(n, m), f32(m)], [f32(n, m)]],
  Clip: ({ n, m }) => [[f32(n, m), given("f32", [], -0.5), given("f32", [], 1)], [f32(n, m)]],
  FastGelu: ({ n, m }) => [[f32(n, m), f32(m)], [f32(n, m)]],
  QuickGelu: ({ n, m }) => [[f32(n, m)], [f32(n, m)], { alpha: float(1.5) }],
  ...each(CASTS, (cast) => {
    const [from, to] = cast.split(" to ") as [DType, DType];
    return {
      [`Cast of ${cast}`]: ({ n, m }) => [
        [from === "bool" ? bool(n, m) : of([n, m], from, -3, 3)],
        [of([n, m], to, 0, 0)],
        { to: ONNX_DTYPE[to] },
      ],
    };
  }),
};

const MOVEMENT: Rows = {
  Reshape: ({ n, m, k }) => [[f32(n, m, k), ints(0, -1)], [f32(n, m * k)]],
  Transpose: ({ b, n, m, k }) => [[f32(b, n, m, k)], [f32(b, m, n, k)], { perm: [0, 2, 1, 3] }],
  Expand: ({ b, n, m }) => [[f32(n, 1), ints(b, n, m)], [f32(b, n, m)]],
  "Split into equal parts": ({ n, m }) => [
    [f32(n, 3 * m)],
    [f32(n, m), f32(n, m), f32(n, m)],
    { axis: 1, num_outputs: 3 },
  ],
  "Split into given parts": ({ n, m, k }) => [
    [f32(n + k, m), ints(n, k)],
    [f32(n, m), f32(k, m)],
    { axis: 0 },
  ],
  Concat: ({ b, n, m, k }) => [[f32(b, n, k), f32(b, m, k)], [f32(b, n + m, k)], { axis: -2 }],
  Slice: ({ n, m }) => [[f32(n, m + 2), ints(1), ints(-1), ints(1), ints(1)], [f32(n, m)]],
  "Slice backwards": ({ n, m }) => [
    [f32(n, 2 * m), ints(-1), ints(-1000), ints(1), ints(-2)],
    [f32(n, m)],
  ],
  // Indices and masks.
  ...each(["i32", "i64", "bool"] as const, (dtype) => {
    const whole = (...shape: Shape) => of(shape, dtype, 0, dtype === "bool" ? 1 : 9);
    return {
      [`Slice of ${dtype}`]: ({ n, m }) => [
        [whole(n, 2 * m, 3), ints(0, 1), ints(1000, 3), ints(1, 2), ints(2, 1)],
        [whole(n, m, 2)],
      ],
      [`Expand of ${dtype}`]: ({ b, n, m }) => [[whole(n, 1), ints(b, n, m)], [whole(b, n, m)]],
      [`Concat of ${dtype}`]: ({ n, m, k }) => [
        [whole(n, k), whole(m, k)],
        [whole(n + m, k)],
        { axis: 0 },
      ],
      [`Transpose of ${dtype}`]: ({ n, m }) => [[whole(n, m)], [whole(m, n)], { perm: [1, 0] }],
      [`Gather of ${dtype}`]: ({ n, m, k }) => [[whole(n, m), index(n, "i32", k)], [whole(k, m)]],
    };
  }),
  ...each(WHOLE, (dtype) => ({
    [`Gather by ${dtype}`]: ({ b, n, m, k }) => [
      [f32(n, m), index(n, dtype, b, k)],
      [f32(b, k, m)],
    ],
    [`Gather along the last axis by ${dtype}`]: ({ b, n, m, k }) => [
      [f32(b, n, m), index(m, dtype, k)],
      [f32(b, n, k)],
      { axis: -1 },
    ],
    [`GatherElements by ${dtype}`]: ({ n, m }) => [
      [f32(n, m), index(m, dtype, n, 1)],
      [f32(n, 1)],
      { axis: 1 },
    ],
    [`GatherElements by ${dtype} from the end`]: ({ n, m }) => [
      [f32(n, m), of([n, 1], dtype, -m, -1)],
      [f32(n, 1)],
      { axis: 1 },
    ],
    [`ScatterElements by ${dtype}`]: ({ n, m }) => [
      [f32(n, m), index(m, dtype, n, 1), f32(n, 1)],
      [f32(n, m)],
      { axis: 1 },
    ],
    [`ScatterElements with add by ${dtype}`]: ({ n, m, k }) => [
      [f32(n, m), index(n, dtype, k, m), f32(k, m)],
      [f32(n, m)],
      { axis: 0, reduction: "add" },
    ],
  })),
  ScatterND: ({ n, m }) => [[f32(n, m), index(n, "i64", 1, 1), f32(1, m)], [f32(n, m)]],
  "ScatterND with add": ({ b, n, m, k }) => [
    [f32(n, m), index(n, "i64", b, k, 1), f32(b, k, m)],
    [f32(n, m)],
    { reduction: "add" },
  ],
};

const REDUCED = ["Sum", "Mean", "Max", "Min", "SumSquare", "L2", "LogSumExp"];

const REDUCTIONS: Rows = {
  ...each(REDUCED.map((how) => `Reduce${how}`), (op) => ({
    [op]: ({ b, n, m }) => [[f32(b, n, m), ints(0, -1)], [f32(n)], { keepdims: 0 }],
    [`${op} of one axis, kept`]: ({ b, n, m }) => [[f32(b, n, m), ints(1)], [f32(b, 1, m)]],
    [`${op} of all axes`]: ({ n, m }) => [[f32(n, m)], [f32()], { keepdims: 0 }],
  })),
  // Whole numbers are often equal.
  ...each(["f32", "i32"] as const, (dtype) => ({
    [`ArgMax of ${dtype}`]: ({ b, n, m }) => [
      [of([b, n, m], dtype, -2, 2)],
      [i64(b, m)],
      { axis: 1, keepdims: 0 },
    ],
  })),
  ...each(["Softmax", "LogSoftmax"], (op) => ({
    [op]: ({ b, n, m }) => [[f32(b, n, m)], [f32(b, n, m)]],
    [`${op} of an inner axis`]: ({ b, n, m }) => [[f32(b, n, m)], [f32(b, n, m)], { axis: 1 }],
  })),
  // Rows of two may be nearly equal: an error of their difference grows by up to 1/√epsilon.
  LayerNormalization: ({ b, n, m }) => [
    [f32(b, n, m + 1), f32(m + 1), f32(m + 1)],
    [f32(b, n, m + 1), f32(b, n, 1), f32(b, n, 1)],
    { axis: -1, epsilon: float(0.25) },
  ],
  SimplifiedLayerNormalization: ({ b, n, m }) => [
    [f32(b, n, m + 1), f32(m + 1)],
    [f32(b, n, m + 1)],
    { axis: -1, epsilon: float(0.25) },
  ],
  ...each(WHOLE, (dtype) =>
    each(["none", "sum", "mean"], (reduction) => ({
      [`SoftmaxCrossEntropyLoss ${reduction} by ${dtype}`]: ({ n, m }) => [
        [f32(n, m), index(m, dtype, n)],
        [f32(...reduction === "none" ? [n] : []), f32(n, m)],
        { reduction },
      ],
    }))),
  ...each(["none", "sum", "mean"], (reduction) => ({
    [`SoftmaxCrossEntropyLoss ${reduction} but for a class`]: ({ m }) => [
      [f32(3, m + 1), given("i32", [3], 1, 0, 1)],
      [f32(...reduction === "none" ? [3] : []), f32(3, m + 1)],
      { reduction, ignore_index: 0 },
    ],
  })),
  ...each([0, 1], (exclusive) =>
    each([0, 1], (reverse) => ({
      [`CumSum exclusive ${exclusive}, reverse ${reverse}`]: ({ b, n, m }) => [
        [f32(b, n, m), place(1)],
        [f32(b, n, m)],
        { exclusive, reverse },
      ],
    }))),
  "CumSum of i32": ({ n, m }) => [[i32(n, m), place(-1)], [i32(n, m)]],
};

const PRODUCTS: Rows = {
  MatMul: ({ n, m, k }) => [[f32(n, k), f32(k, m)], [f32(n, m)]],
  "MatMul of batches": ({ b, n, m, k }) => [[f32(b, 2, n, k), f32(2, k, m)], [f32(b, 2, n, m)]],
  "MatMul of f16": ({ n, m, k }) => [[f16(n, k), f16(k, m)], [f16(n, m)]],
  "Gemm with a bias": ({ n, m, k }) => [[f32(n, k), f32(k, m), f32(m)], [f32(n, m)]],
  ...each([0, 1], (transA) =>
    each([0, 1], (transB) => {
      const name = `transA ${transA}, transB ${transB}`, alpha = float(0.5);
      const factors = ({ n, m, k }: Sizes, ...b: number[]) => [
        f32(...b, ...transA ? [k, n] : [n, k]),
        f32(...b, ...transB ? [m, k] : [k, m]),
      ];
      return {
        [`FusedMatMul ${name}`]: (sizes) => [
          factors(sizes, sizes.b),
          [f32(sizes.b, sizes.n, sizes.m)],
          { transA, transB, alpha },
        ],
        [`Gemm ${name}`]: (sizes) => [
          [...factors(sizes), f32(sizes.n, sizes.m)],
          [f32(sizes.n, sizes.m)],
          { transA, transB, alpha, beta: float(2) },
        ],
      };
    })),
};

const half = (n: number) => Math.floor(n / 2) + 1;
const POOL = { kernel_shape: [3, 2], strides: [2, 1], pads: [1, 0, 1, 1] };

const WINDOWS: Rows = {
  Conv: ({ b, n, m, k }) => [[unit(b, k, n + 1, m), unit(n, k, 2, 1), unit(n)], [unit(b, n, n, m)]],
  "Conv of groups": ({ b, n, m, k }) => [
    [unit(b, 2 * k, n + 4, m), unit(2 * n, k, 3, 2)],
    [unit(b, 2 * n, half(n), m + 1)],
    { group: 2, strides: [2, 1], pads: [1, 1, 0, 1], dilations: [2, 1] },
  ],
  "Conv of one axis": ({ b, n, m, k }) => [
    [unit(b, k, m), unit(n, k, 3)],
    [unit(b, n, m)],
    { auto_pad: "SAME_UPPER" },
  ],
  ConvTranspose: ({ b, n, m, k }) => [
    [unit(b, k, n, m), unit(k, m, 3, 2), unit(m)],
    [unit(b, m, 2 * n + 1, m)],
    { strides: [2, 1], pads: [0, 0, 1, 1], output_padding: [1, 0] },
  ],
  "ConvTranspose of groups": ({ b, n, m, k }) => [
    [unit(b, 2 * k, n, m), unit(2 * k, n, 2, 2)],
    [unit(b, 2 * n, 2 * n, 2 * m)],
    { group: 2, strides: [2, 2] },
  ],
  "ConvTranspose of one axis": ({ b, n, m, k }) => [
    [unit(b, k, m), unit(k, n, 3)],
    [unit(b, n, 2 * m)],
    { strides: [2], auto_pad: "SAME_UPPER" },
  ],
  MaxPool: ({ b, n, m, k }) => [[unit(b, k, n + 1, m)], [unit(b, k, half(n), m)], POOL],
  "MaxPool with places": ({ b, n, m, k }) => [
    [unit(b, k, n + 1, m)],
    [unit(b, k, half(n), m), i64(b, k, half(n), m)],
    POOL,
  ],
  ...each([0, 1], (count_include_pad) => ({
    [`AveragePool, count_include_pad ${count_include_pad}`]: ({ b, n, m, k }) => [
      [unit(b, k, n + 1, m)],
      [unit(b, k, half(n), m)],
      { ...POOL, count_include_pad },
    ],
  })),
  Resize: ({ b, n, m, k }) => [
    [unit(b, n, m, k), given("f32", [0]), given("f32", [0]), ints(b, n, 2 * m, 3 * k)],
    [unit(b, n, 2 * m, 3 * k)],
    { mode: "nearest", coordinate_transformation_mode: "asymmetric", nearest_mode: "floor" },
  ],
  Pad: ({ n, m, k }) => [
    [unit(n, m), ints(k, 0, 1, 2), given("f32", [], 0.5)],
    [unit(n + k + 1, m + 2)],
  ],
};

const OF_MICROSOFT = ["FusedMatMul", "FastGelu", "QuickGelu"];

const ROWS: Rows = {
  ...{ ...ELEMENTWISE, ...ACTIVATIONS, ...MOVEMENT, ...REDUCTIONS, ...PRODUCTS, ...WINDOWS },
};

/** The cases by name; a name begins with its operation. */
export const OPERATOR_CASES: Record<string, (sizes: Sizes) => OperatorCase> = Object.fromEntries(
  Object.entries(ROWS).map(([name, row]) => {
    const op = /^\w+/.exec(name)![0], domain = OF_MICROSOFT.includes(op) ? MICROSOFT : "";
    return [name, (sizes) => {
      const [inputs, outputs, attributes = {}] = row(sizes);
      return { op, domain, inputs, outputs, attributes };
    }];
  }),
);
