/**
 * The dtypes and shapes of every value of a model, as far as its operations are known.
 *
 * Models say those of their inputs and outputs only; a rewrite needs some in between.
 *
 * @module
 */

import type { DType } from "../devices/device.ts";
import {
  broadcastShape,
  cutOf,
  elementCount,
  positiveAxis,
  productShape,
  reducedShape,
} from "../graph/shapes.ts";
import { type FusedOp, ONNX_DTYPE } from "../graph/value.ts";
import type { Border } from "./signature.ts";
import type { GraphProto, TensorProto } from "./onnx_pb.ts";
import { intOf, intsOf, type Known, output, type Rule, type ValueType } from "./value_rule.ts";
import { weightGradient, WINDOW_RULES } from "./window_rules.ts";

export { floatOf, intOf, intsOf, textOf, type ValueType } from "./value_rule.ts";

const dtypeOf = (number: number | undefined) =>
  (Object.keys(ONNX_DTYPE) as DType[]).find((dtype) => ONNX_DTYPE[dtype] === number);

const broadcast = (inputs: Known["inputs"]) =>
  inputs.reduce<readonly number[] | undefined>(
    (shape, input) => shape && input && broadcastShape(shape, input.shape),
    [],
  );

const elementwise: Rule = (known) => {
  const shape = broadcast(known.inputs);
  return shape && output(known, shape, known.inputs.at(-1)!.dtype);
};

const comparison: Rule = (known) => {
  const shape = broadcast(known.inputs);
  return shape && output(known, shape, "bool");
};

/** Outputs like the first input: also the base of a scatter. */
const likeFirst: Rule = (known) => {
  const shape = known.inputs[0]?.shape;
  return shape && output(known, shape);
};

const product: Rule = (known) => {
  const [a, b] = known.inputs;
  const transA = intOf(known.node, "transA", 0) === 1,
    transB = intOf(known.node, "transB", 0) === 1;
  return a && b && output(known, productShape(a.shape, b.shape, { transA, transB }));
};

const reduction: Rule = (known) => {
  const [x] = known.inputs;
  if (!x) return undefined;
  const given = known.numbers(1) ?? [], isNone = intOf(known.node, "noop_with_empty_axes", 0) === 1;
  const all = given.length === 0 && !isNone ? x.shape.map((_, axis) => axis) : given;
  const axes = all.map((axis) => positiveAxis(axis, x.shape.length));
  return output(known, reducedShape(x.shape, axes, intOf(known.node, "keepdims", 1) === 1));
};

/** Outputs like some of the inputs. */
const like = (...places: readonly number[]): Rule => ({ inputs }) =>
  places.map((place) => inputs[place]);

/** One number for each element of the last axis. */
const perColumn: Rule = ({ inputs: [dy] }) => {
  const column = dy && { ...dy, shape: dy.shape.slice(-1) };
  return [column, column];
};

const FUSED_RULES: Readonly<Record<FusedOp, Rule>> = {
  FastGeluGrad: likeFirst,
  SoftmaxGrad: likeFirst,
  LayerNormInputGrad: likeFirst,
  LayerNormWeightGrad: perColumn,
  ConvWeightGrad: weightGradient,
  MaxPoolGrad: like(1),
  CrossEntropy: ({ inputs: [logits, targets] }) => [
    logits && targets && { dtype: logits.dtype, shape: targets.shape },
  ],
  AdamW: like(0, 2, 3),
};

const RULES: Readonly<Record<string, Rule>> = {
  ...FUSED_RULES,
  Where: ({ inputs, ...known }) => elementwise({ inputs, ...known }),
  Cast: (known) => {
    const [x] = known.inputs;
    return x && output(known, x.shape, dtypeOf(intOf(known.node, "to", 0)));
  },
  LayerNormalization: (known) => {
    const [x] = known.inputs;
    if (!x) return undefined;
    const axis = positiveAxis(intOf(known.node, "axis", -1), x.shape.length);
    const stats = x.shape.map((size, i) => i < axis ? size : 1);
    const stat = { dtype: "f32" as const, shape: stats };
    return [x, stat, stat];
  },
  SoftmaxCrossEntropyLoss: (known) => {
    const [logits, targets] = known.inputs;
    return logits && targets && [{ dtype: logits.dtype, shape: targets.shape }, logits];
  },
  ...WINDOW_RULES,
  MatMul: product,
  FusedMatMul: product,
  Gemm: product,
  Reshape: (known) => {
    const [x] = known.inputs, wanted = known.numbers(1);
    if (!x || !wanted) return undefined;
    const sizes = wanted.map((size, i) => size === 0 ? x.shape[i]! : size);
    const rest = elementCount(x.shape) / elementCount(sizes.filter((size) => size > 0));
    return output(known, sizes.map((size) => size < 0 ? rest : size));
  },
  Expand: (known) => {
    const [x] = known.inputs, wanted = known.numbers(1);
    return x && wanted && output(known, broadcastShape(x.shape, wanted));
  },
  Transpose: (known) => {
    const [x] = known.inputs;
    if (!x) return undefined;
    const order = intsOf(known.node, "perm");
    return output(
      known,
      (order ?? x.shape.map((_, i) => x.shape.length - 1 - i)).map((i) => x.shape[i]!),
    );
  },
  Concat: (known) => {
    const [x] = known.inputs;
    if (!x || known.inputs.includes(undefined)) return undefined;
    const axis = positiveAxis(intOf(known.node, "axis", 0), x.shape.length);
    const size = known.inputs.reduce((sum, one) => sum + one!.shape[axis]!, 0);
    return output(known, x.shape.map((own, i) => i === axis ? size : own));
  },
  Split: (known) => {
    const [x] = known.inputs, sizes = known.numbers(1), count = known.node.output.length;
    if (!x) return undefined;
    const axis = positiveAxis(intOf(known.node, "axis", 0), x.shape.length);
    return known.node.output.map((_, part) => ({
      dtype: x.dtype,
      shape: x.shape.map((own, i) => i === axis ? sizes?.[part] ?? own / count : own),
    }));
  },
  Slice: (known) => {
    const [x] = known.inputs, [starts, ends] = [known.numbers(1), known.numbers(2)];
    const axes = known.node.input.length > 3 ? known.numbers(3) : starts?.map((_, axis) => axis);
    const steps = known.node.input.length > 4 ? known.numbers(4) : starts?.map(() => 1);
    if (!x || !starts || !ends || !axes || !steps) return undefined;
    const cuts = new Map(axes.map((axis, i) => {
      const at = positiveAxis(axis, x.shape.length);
      return [at, cutOf(x.shape[at]!, starts[i]!, ends[i]!, steps[i]!)];
    }));
    return output(known, x.shape.map((size, axis) => cuts.get(axis)?.count ?? size));
  },
  Gather: (known) => {
    const [x, indices] = known.inputs;
    if (!x || !indices) return undefined;
    const axis = positiveAxis(intOf(known.node, "axis", 0), x.shape.length);
    return output(known, [...x.shape.slice(0, axis), ...indices.shape, ...x.shape.slice(axis + 1)]);
  },
  ArgMax: (known) => {
    const [x] = known.inputs;
    if (!x) return undefined;
    const axis = positiveAxis(intOf(known.node, "axis", 0), x.shape.length);
    return output(
      known,
      reducedShape(x.shape, [axis], intOf(known.node, "keepdims", 1) === 1),
      "i64",
    );
  },
  GatherElements: (known) => known.inputs[1] && output(known, known.inputs[1].shape),
  Unsqueeze: (known) => {
    const [x] = known.inputs, axes = known.numbers(1);
    if (!x || !axes) return undefined;
    const rank = x.shape.length + axes.length, rest = [...x.shape];
    const added = new Set(axes.map((axis) => positiveAxis(axis, rank)));
    return output(known, Array.from({ length: rank }, (_, i) => added.has(i) ? 1 : rest.shift()!));
  },
  Squeeze: (known) => {
    const [x] = known.inputs, axes = known.numbers(1);
    if (!x) return undefined;
    const gone = axes?.map((axis) => positiveAxis(axis, x.shape.length));
    return output(known, x.shape.filter((size, i) => gone ? !gone.includes(i) : size !== 1));
  },
  ...Object.fromEntries(
    [
      ...["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceL2"],
      "ReduceLogSumExp",
    ].map((op) => [op, reduction]),
  ),
  ...Object.fromEntries(
    ["Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "IsNaN"]
      .map((op) => [op, comparison]),
  ),
  ...Object.fromEntries(
    [
      "Clip",
      "CumSum",
      "PRelu",
      "SimplifiedLayerNormalization",
      "ScatterND",
      "ScatterElements",
      "Trilu",
    ]
      .map((op) => [op, likeFirst]),
  ),
  ...Object.fromEntries(
    [
      ...["Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Identity", "Neg", "Exp", "Log", "Sqrt"],
      ...["Reciprocal", "Tanh", "Erf", "Sigmoid", "Relu", "Gelu", "FastGelu", "Softmax"],
      ...["LogSoftmax", "Abs", "Not", "And", "Or", "Xor", "Mod", "Sign", "Floor", "Ceil", "Round"],
      ...["Sin", "Cos", "HardSigmoid", "LeakyRelu", "Elu", "Softplus", "HardSwish", "QuickGelu"],
    ].map((op) => [op, elementwise]),
  ),
};

/** The whole numbers of a constant; undefined where it holds others. */
export function wholeNumbers(
  { dataType, rawData, int64Data }: TensorProto,
): readonly number[] | undefined {
  if (dataType !== ONNX_DTYPE.i64) return undefined;
  return [
    ...int64Data.length
      ? int64Data
      : new BigInt64Array((rawData ?? new Uint8Array()).slice().buffer),
  ]
    .map(Number);
}

/** What is known of the values of a graph, by name. */
export function valueTypes(
  { initializer, node: nodes }: GraphProto,
  inputs: readonly Border[],
): Map<string, ValueType> {
  const types = new Map<string, ValueType>(
    inputs.map(({ name, dtype, shape }) => [name, { dtype, shape }]),
  );
  const constants = new Map(initializer.map((one) => [one.name ?? "", one]));
  for (const [name, { dataType, dims }] of constants) {
    const dtype = dtypeOf(dataType);
    if (dtype) types.set(name, { dtype, shape: dims.map(Number) });
  }
  for (const node of nodes) {
    const numbers = (input: number) => {
      const constant = constants.get(node.input[input] ?? "");
      return constant && wholeNumbers(constant);
    };
    const known = { node, inputs: node.input.map((name) => types.get(name)), numbers };
    RULES[node.opType ?? ""]?.(known)?.forEach((type, i) => {
      if (type && node.output[i]) types.set(node.output[i], type);
    });
  }
  return types;
}
