/**
 * Layers of one's own as an ONNX file.
 *
 * @module
 */

import { fromBinary } from "@bufbuild/protobuf";
import type { DType } from "../devices/device.ts";
import type { Value } from "../graph/value.ts";
import { buildLayer, isValue } from "../layers/build_layer.ts";
import {
  type AnyLayer,
  type Handed,
  type Initializer,
  LayerGraph,
  type Tie,
} from "../layers/layer.ts";
import { encodeModel } from "../onnx/encode_model.ts";
import { arithmetic, lowerGraph } from "../onnx/fused_ops.ts";
import { type Rewrite, rewriteNodes } from "../onnx/graph_writer.ts";
import { type GraphProto, ModelProtoSchema } from "../onnx/onnx_pb.ts";
import { signatureOf } from "../onnx/signature.ts";
import { floatOf, intOf, valueTypes } from "../onnx/value_types.ts";
import { type OnnxFile, onnxFile } from "./onnx_file.ts";

/** What else is known of the layers. */
export interface LayersOnnxOptions {
  /** What kind of model it is; `layers` unless given. */
  readonly name?: string;
  /** Ties of the layers' parameters: of those that are one the file holds the first. */
  readonly ties?: readonly Tie[];
  /** What else the file tells: its `metadata_props`. */
  readonly metadata?: Readonly<Record<string, string>>;
}

/**
 * Layers as an ONNX file, of operations of opset 20 only. Inputs are the fields of the micro-batch
 * that they read, by name, in the sizes that the layers have; `output` is what the last returns.
 *
 * @param layers as for {@linkcode openPredictor}: the last returns what is asked for, no loss.
 * @throws {TypeError} {@linkcode RangeError} when a layer cannot be built.
 * @throws {RangeError} when the file would have 2 GiB or more.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { type Layer, layersOnnx } from "@troupe/troupe/kernels";
 *
 * const double: Layer = {
 *   name: "double",
 *   build: (g) => g.mul(g.batch("x", [2]), g.parameter("factor", [1])),
 * };
 * const file = layersOnnx([double]);
 * const pieces = file.pieces((name) => name === "double.factor" ? Float32Array.of(2) : undefined);
 * assert.equal(new Blob([...pieces]).size, file.byteLength);
 * ```
 */
export function layersOnnx(layers: readonly AnyLayer[], options: LayersOnnxOptions = {}): OnnxFile {
  const { name = "layers", ties = [], metadata = {} } = options;
  const g = new ModelGraph(ties);
  let x: Handed | undefined;
  for (const layer of layers) {
    g.prefix = layer.prefix ?? `${layer.name}.`;
    x = buildLayer(layer, g, x);
  }
  if (!isValue(x)) {
    const received = x ? "a record" : "none";
    throw new RangeError(
      `Cannot export as ONNX: there must be one layer or more, of which the last returns one value, received ${received}`,
    );
  }
  const weights = g.parameters.map(({ spec: { name }, value }) => ({ name, value }));
  const fields = g.fields.map(({ spec: { name }, value }) => ({ name, value }));
  const bytes = encodeModel(g, [...fields, ...weights], [{ name: "output", value: x }]);
  const { graph } = fromBinary(ModelProtoSchema, bytes);
  lowerGraph(graph!);
  useOnnxOnly(graph!);
  const read = new Set(graph!.input.map(({ name }) => name));
  const parameters = g.parameters.map(({ spec }) => spec).filter(({ name }) => read.has(name));
  const isWeight = new Set(parameters.map(({ name }) => name));
  graph!.input = graph!.input.filter(({ name }) => !isWeight.has(name!));
  graph!.name = name;
  return onnxFile({ graph: graph!, parameters, metadata: { model: name, ...metadata } });
}

/** The graph of all layers: parameters have their full names, and what is one is declared once. */
class ModelGraph extends LayerGraph {
  /** Put before the names of parameters. */
  prefix = "";
  readonly #canonical: ReadonlyMap<string, string>;

  constructor(ties: readonly Tie[]) {
    super();
    this.#canonical = new Map(ties.map(([name, alias]) => [alias, name]));
  }

  override parameter(name: string, shape: readonly number[], initializer?: Initializer): Value {
    const own = `${this.prefix}${name}`, full = this.#canonical.get(own) ?? own;
    const known = this.parameters.find(({ spec }) => spec.name === full);
    return known?.value ?? super.parameter(full, shape, initializer);
  }

  override batch(name: string, shape: readonly number[], dtype?: DType): Value {
    return this.fields.find(({ spec }) => spec.name === name)?.value ??
      super.batch(name, shape, dtype);
  }

  /** All layers are of one graph. */
  override take(name: string): Value {
    return this.gives.get(name) ?? super.take(name);
  }

  /** Nothing is left out of a model that is used. */
  override dropout(x: Value): Value {
    return x;
  }
}

/** Operations of ONNX Runtime's own, in those of ONNX 20. */
const IN_ONNX: Readonly<Record<string, Rewrite>> = {
  FastGelu: (write, { input, output }) =>
    void write.node("Gelu", input, { approximate: "tanh" }, output[0]),
  SimplifiedLayerNormalization(write, node) {
    const [x, weight] = node.input as [string, string],
      { add, mul, div, scalar } = arithmetic(write);
    const last = write.constant("i64", [-1]);
    const square = write.node("ReduceMean", [mul(x, x), last], { keepdims: 1 });
    const root = write.node("Sqrt", [add(square, scalar(floatOf(node, "epsilon", 1e-5)))]);
    mul(div(x, root), weight, node.output[0]);
  },
  QuickGelu(write, node) {
    const [x] = node.input as [string], factor = floatOf(node, "alpha", 1.702);
    const inner = factor === 1 ? x : write.node("Mul", [x, write.constant("f32", [factor], [])]);
    write.node("Mul", [x, write.node("Sigmoid", [inner])], {}, node.output[0]);
  },
  FusedMatMul(write, node) {
    const [a, b] = ["transA", "transB"].map((name, i) => {
      const operand = node.input[i]!, { length } = write.typeOf(operand).shape;
      if (intOf(node, name, 0) === 0) return operand;
      const perm = Array.from({ length }, (_, i) => i < length - 2 ? i : 2 * length - 3 - i);
      return write.node("Transpose", [operand], { perm });
    }) as [string, string];
    const factor = write.constant("f32", [floatOf(node, "alpha", 1)], []);
    write.node("Mul", [write.node("MatMul", [a, b]), factor], {}, node.output[0]);
  },
};

function useOnnxOnly(graph: GraphProto): void {
  const types = valueTypes(graph, signatureOf(graph).inputs);
  rewriteNodes(
    graph,
    types,
    "own",
    ({ opType }) => IN_ONNX[opType!],
  );
}
