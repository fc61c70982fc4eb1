/**
 * What the WebGPU provider has no kernel for, said in operations that it has.
 *
 * [Note: one order of sums] A ScatterND that adds would add with atomic operations, in whatever order
 * the threads of a GPU come, where an index stands twice (as a token does in a text). So rows of the
 * same index are added by a product first, whose order is fixed: with e[i][j] = 1 where the indices i
 * and j are equal, row i of e·updates is the sum of all updates for that index, the same bits for
 * every i that has it. Each is added to the row of the base that it belongs to, and put there.
 *
 * @module
 */

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { DType } from "../../device.ts";
import { type Attribute, MICROSOFT, ONNX_DTYPE } from "../../../graph/value.ts";
import { encodeAttribute } from "../../../onnx/encode_model.ts";
import {
  type GraphProto,
  type NodeProto,
  NodeProtoSchema,
  type TensorProto,
  TensorProtoSchema,
} from "../../../onnx/onnx_pb.ts";
import { floatOf, intOf, textOf, type ValueType } from "./model_shapes.ts";

/** What a rewrite writes with. */
interface Writer {
  /** The dtype and shape of a value of the model as it was. */
  typeOf(name: string): ValueType;
  /** Adds a node with one output, which gets a name unless given, and returns the name. */
  node(
    op: string,
    inputs: readonly string[],
    attributes?: Readonly<Record<string, Attribute>>,
    output?: string,
  ): string;
  /** Adds a constant. */
  constant(
    dtype: "f32" | "i32" | "i64",
    values: readonly number[],
    shape?: readonly number[],
  ): string;
}

type Rewrite = (write: Writer, node: NodeProto) => void;

/** Updates of a scatter that are compared with all others at a time. */
const ROWS = 1024;

const isSet = (node: NodeProto, name: string) => intOf(node, name, 0) === 1;

const fusedMatMul: Rewrite = (write, node) => {
  const [a, b] = node.input as [string, string], [y] = node.output;
  const alpha = floatOf(node, "alpha", 1);
  const transA = +isSet(node, "transA"), transB = +isSet(node, "transB");
  const typeA = write.typeOf(a), typeB = write.typeOf(b);
  if (typeA.shape.length === 2 && typeB.shape.length === 2) {
    write.node("Gemm", [a, b], { transA, transB, alpha: { float: alpha } }, y);
    return;
  }
  const transposed = (name: string, { shape: { length: rank } }: ValueType) =>
    write.node("Transpose", [name], {
      perm: Array.from({ length: rank }, (_, i) => i < rank - 2 ? i : 2 * rank - 3 - i),
    });
  const left = transA ? transposed(a, typeA) : a, right = transB ? transposed(b, typeB) : b;
  if (alpha === 1) return void write.node("MatMul", [left, right], {}, y);
  const scaled = write.node("Mul", [left, write.constant("f32", [alpha], [])]);
  write.node("MatMul", [scaled, right], {}, y);
};

/** ln softmax x = (x − m) − ln Σ e^(x − m), where m is the largest x. */
function logSoftmax(write: Writer, x: string, axis: number, output?: string): string {
  const axes = write.constant("i64", [axis]);
  const shifted = write.node("Sub", [x, write.node("ReduceMax", [x, axes], { keepdims: 1 })]);
  const sum = write.node("ReduceSum", [write.node("Exp", [shifted]), axes], { keepdims: 1 });
  return write.node("Sub", [shifted, write.node("Log", [sum])], {}, output);
}

/** The loss of each row, 0 where the target is ignored; then their sum or mean where that is asked for. */
const crossEntropy: Rewrite = (write, node) => {
  const [logits, targets, weights] = node.input as [string, string, string?];
  const [loss, logProbabilities] = node.output, { shape } = write.typeOf(logits);
  if (weights || shape.length !== 2) {
    throw new Error("SoftmaxCrossEntropyLoss must have logits [n, classes] and no weights");
  }
  const ignored = intOf(node, "ignore_index", -1), rows = shape[0]!;
  const reduction = textOf(node, "reduction") ?? "mean";
  const logs = logSoftmax(write, logits, 1, logProbabilities || undefined);
  const wanted = write.typeOf(targets).dtype === "i32"
    ? targets
    : write.node("Cast", [targets], { to: ONNX_DTYPE.i32 });
  const zero = write.constant("f32", [0], []);
  const isIgnored = write.node("Equal", [wanted, write.constant("i32", [ignored], [])]);
  const safe = write.node("Where", [isIgnored, write.constant("i32", [0], []), wanted]);
  const column = write.node("Reshape", [safe, write.constant("i64", [rows, 1])]);
  const found = write.node("GatherElements", [logs, column], { axis: 1 });
  const row = write.node("Neg", [write.node("Reshape", [found, write.constant("i64", [rows])])]);
  const isWhole = reduction === "none";
  const losses = write.node("Where", [isIgnored, zero, row], {}, isWhole ? loss : undefined);
  if (isWhole) return;
  const total = write.node(
    "ReduceSum",
    [losses],
    { keepdims: 0 },
    reduction === "sum" ? loss : undefined,
  );
  if (reduction === "sum") return;
  const counted = write.node("Where", [isIgnored, zero, write.constant("f32", [1], [])]);
  write.node("Div", [total, write.node("ReduceSum", [counted], { keepdims: 0 })], {}, loss);
};

/** See the note above; indices are [n, 1]. */
const scatterAdd: Rewrite = (write, node) => {
  const [base, indices, updates] = node.input as [string, string, string], [y] = node.output;
  const { shape: [count] } = write.typeOf(indices), { shape, dtype } = write.typeOf(updates);
  const width = shape.slice(1).reduce((product, size) => product * size, 1);
  const flat = write.node("Reshape", [updates, write.constant("i64", [count!, width])]);
  const rows = write.node("Cast", [
    write.node("Reshape", [indices, write.constant("i64", [count!])]),
  ], { to: ONNX_DTYPE.i32 });
  const across = write.node("Reshape", [rows, write.constant("i64", [1, count!])]);
  const sums: string[] = [];
  for (let from = 0; from < count!; from += ROWS) {
    const to = Math.min(from + ROWS, count!);
    const some = to - from === count
      ? rows
      : write.node("Slice", [rows, write.constant("i64", [from]), write.constant("i64", [to])]);
    const down = write.node("Reshape", [some, write.constant("i64", [to - from, 1])]);
    const equal = write.node("Cast", [write.node("Equal", [down, across])], {
      to: ONNX_DTYPE[dtype],
    });
    sums.push(write.node("MatMul", [equal, flat]));
  }
  const sum = sums.length === 1 ? sums[0]! : write.node("Concat", sums, { axis: 0 });
  const shaped = write.node("Reshape", [sum, write.constant("i64", shape)]);
  const before = write.node("Gather", [base, rows], { axis: 0 });
  write.node("ScatterND", [base, indices, write.node("Add", [before, shaped])], {}, y);
};

/** By operation; those of another domain with its name before them. */
const REWRITES: Readonly<
  Record<string, (node: NodeProto, second: ValueType | undefined) => Rewrite | undefined>
> = {
  [`${MICROSOFT}.FusedMatMul`]: () => fusedMatMul,
  LogSoftmax: () => (write, node) =>
    void logSoftmax(write, node.input[0]!, intOf(node, "axis", -1), node.output[0]),
  SoftmaxCrossEntropyLoss: () => crossEntropy,
  ScatterND: (node, indices) =>
    textOf(node, "reduction") === "add" && indices?.shape.length === 2 && indices.shape[1] === 1
      ? scatterAdd
      : undefined,
};

const BYTES = { f32: Float32Array, i32: Int32Array } as const;

function encodeConstant(
  name: string,
  dtype: "f32" | "i32" | "i64",
  values: readonly number[],
  dims: readonly number[],
): TensorProto {
  const array = dtype === "i64" ? BigInt64Array.from(values, BigInt) : BYTES[dtype].from(values);
  return create(TensorProtoSchema, {
    name,
    dataType: ONNX_DTYPE[dtype],
    dims: dims.map(BigInt),
    rawData: new Uint8Array(array.buffer),
  });
}

/**
 * Rewrites the nodes of a graph in place.
 *
 * @throws {Error} when an operation has a form that is not known here.
 */
export function rewriteGraph(graph: GraphProto, types: ReadonlyMap<string, ValueType>): void {
  let names = 0;
  const constants = new Map<string, string>(), nodes: NodeProto[] = [];
  const writerOf = (node: NodeProto): Writer => ({
    typeOf(name) {
      const type = types.get(name);
      if (type) return type;
      throw new Error(
        `${node.opType} needs the shape of "${name}", which follows from an operation that is not known here`,
      );
    },
    node(op, inputs, attributes = {}, output = `webgpu.${names++}`) {
      const made: MessageInitShape<typeof NodeProtoSchema> = {
        opType: op,
        name: `${node.name}.${names++}`,
        input: [...inputs],
        output: [output],
        attribute: Object.entries(attributes).map(([name, value]) => encodeAttribute(name, value)),
      };
      nodes.push(create(NodeProtoSchema, made));
      return output;
    },
    constant(dtype: DType & ("f32" | "i32" | "i64"), values, shape = [values.length]) {
      const key = `${dtype} ${values} [${shape}]`, known = constants.get(key);
      if (known) return known;
      const name = `webgpu.${names++}`;
      graph.initializer.push(encodeConstant(name, dtype, values, shape));
      constants.set(key, name);
      return name;
    },
  });
  for (const node of graph.node) {
    const op = node.domain ? `${node.domain}.${node.opType}` : node.opType ?? "";
    const rewrite = REWRITES[op]?.(node, types.get(node.input[1] ?? ""));
    if (rewrite) rewrite(writerOf(node), node);
    else nodes.push(node);
  }
  graph.node = nodes;
}
