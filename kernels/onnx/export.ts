/**
 * Exports models as ONNX files, and replaces the weights of a file.
 *
 * @module
 */

import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { compileModel, gpt2Parameters, type ModelParameter } from "../compile/compile_model.ts";
import { joinArrays } from "../devices/tensor_memory.ts";
import { assertInput, refusal } from "../errors.ts";
import { elementCount } from "../graph/shapes.ts";
import { ONNX_DTYPE, type Value } from "../graph/value.ts";
import { MASKED } from "../layers/attention.ts";
import type { Gpt2Config } from "../layers/gpt2.ts";
import {
  type AnyLayer,
  buildLayer,
  type Handed,
  type Initializer,
  isValue,
  LayerGraph,
  type Tie,
} from "../layers/layer.ts";
import { mlp, type MlpConfig } from "../layers/mlp.ts";
import { lowerGraph, valueTypes } from "./lower.ts";
import { opOf } from "../ops/table.ts";
import { encodeModel, encodeValueInfo, IR_VERSION, OPSET } from "./encode.ts";
import {
  AttributeProto_AttributeType,
  type GraphProto,
  GraphProtoSchema,
  ModelProtoSchema,
  NodeProtoSchema,
  TensorProtoSchema,
} from "./onnx_pb.ts";
import { decodeModel, type OnnxInput, quoted } from "./read_file.ts";
import { arithmetic, type Rewrite, rewriteNodes, type Writer } from "./rewrite.ts";

/** An ONNX file to write. */
export interface OnnxFile {
  /** Its size in bytes. */
  readonly byteLength: number;
  /**
   * Yields its bytes in pieces; each weight is requested once.
   *
   * @throws {TypeError} when a weight is missing or has another number of elements.
   */
  pieces(weightOf: (name: string) => Float32Array | undefined): Generator<Uint8Array<ArrayBuffer>>;
}

/** A model without the values of its weights. */
interface OnnxModel {
  /** Its graph, in ONNX's own operations, without weights. */
  readonly graph: GraphProto;
  /** Its weights, with the names that nodes read. */
  readonly parameters: readonly Pick<ModelParameter, "name" | "shape">[];
  /** The `metadata_props` of the file. */
  readonly metadata: Readonly<Record<string, string | number | boolean>>;
}

/** Largest size of a message in protocol buffers. */
const BYTES_MAX = 2 ** 31 - 1;
const SIZE_MUST = "the file must be smaller than 2 GiB, the limit of the format";

/** Numbers of the fields that hold the weights, in onnx.proto. */
const MODEL_GRAPH = 7, GRAPH_INITIALIZER = 5, TENSOR_RAW_DATA = 9;

/** Largest number of bytes of a tag and a length. */
const FIELD_MAX = 10;

/** Returns the tag and the length of a field whose bytes follow. */
const field = (number: number, byteLength: number): Uint8Array<ArrayBuffer> =>
  new BinaryWriter().tag(number, WireType.LengthDelimited).uint32(byteLength).finish();

const lengthOf = (pieces: readonly Uint8Array[]) =>
  pieces.reduce((sum, { length }) => sum + length, 0);

/**
 * Returns the file of a model.
 *
 * [Note: weights last] Encoding everything as one message would copy each weight once per level of
 * the format. So only the rest is encoded; the fields of the weights, whose lengths are known, are
 * the last fields of the graph, and the graph is the last field of the model.
 *
 * @throws {RangeError} when it would be larger than the format allows.
 */
function onnxFile(model: OnnxModel): OnnxFile {
  const entries = Object.entries(model.metadata);
  const rest = create(ModelProtoSchema, {
    irVersion: IR_VERSION,
    opsetImport: [{ domain: "", version: OPSET }],
    producerName: "troupe",
    metadataProps: entries.map(([key, value]) => ({ key, value: `${value}` })),
  });
  const frame = toBinary(ModelProtoSchema, rest);
  const graph = toBinary(GraphProtoSchema, withConstants(model.graph));
  const tensors = model.parameters.map(({ name, shape }) => {
    const tensor = create(TensorProtoSchema, {
      name,
      dataType: ONNX_DTYPE.f32,
      dims: shape.map(BigInt),
    });
    return { name, bytes: 4 * elementCount(shape), header: toBinary(TensorProtoSchema, tensor) };
  });
  const lengths = tensors.map(({ bytes, header }) => bytes + header.byteLength + 2 * FIELD_MAX);
  const most = lengths.reduce((sum, length) => sum + length, frame.length + graph.length);
  const received = `${(most / 2 ** 30).toFixed(1)} GiB`;
  assertInput(most <= BYTES_MAX, `export ${model.graph.name} as ONNX`, SIZE_MUST, received);
  const weights = tensors.map(({ name, bytes, header }) => {
    const values = field(TENSOR_RAW_DATA, bytes);
    const whole = field(GRAPH_INITIALIZER, header.length + values.length + bytes);
    return { name, bytes, head: [whole, header, values] };
  });
  const weightBytes = weights.reduce((sum, { bytes, head }) => sum + bytes + lengthOf(head), 0);
  const head = [frame, field(MODEL_GRAPH, graph.length + weightBytes), graph];
  return {
    byteLength: lengthOf(head) + weightBytes,
    *pieces(weightOf) {
      yield* head;
      for (const { name, bytes, head } of weights) {
        yield* head;
        yield bytesOf(name, weightOf(name), bytes);
      }
    },
  };
}

/** Turns constants into nodes, so that all initializers of the file are weights. */
function withConstants({ initializer, ...graph }: GraphProto): GraphProto {
  const constants = initializer.map((t) =>
    create(NodeProtoSchema, {
      opType: "Constant",
      name: `${t.name}`,
      output: [`${t.name}`],
      attribute: [{ name: "value", type: AttributeProto_AttributeType.TENSOR, t }],
    })
  );
  return { ...graph, initializer: [], node: [...constants, ...graph.node] };
}

function bytesOf(name: string, values: Float32Array | undefined, bytes: number) {
  const must = `the weight "${name}" must have ${bytes / 4} elements`, received = values?.length;
  assertInput(values?.byteLength === bytes, "export as ONNX", must, received ?? "none", TypeError);
  return new Uint8Array(values.buffer as ArrayBuffer, values.byteOffset, bytes);
}

/**
 * Returns a graph with one input and one output.
 *
 * @param build writes its nodes, in ONNX's own operations.
 */
function onnxGraph(name: string, input: OnnxInput, output: OnnxInput, build: Rewrite): GraphProto {
  const graph = create(GraphProtoSchema, {
    name,
    node: [{ name, input: [input.name], output: [output.name] }],
    input: [encodeValueInfo(input)],
    output: [encodeValueInfo(output)],
  });
  rewriteNodes(graph, new Map(), "value", () => build); // one node, which is the model
  return graph;
}

/**
 * Exports a GPT-2 as an ONNX file of opset 20: it maps `input_ids`, int64 [batch, sequence], to
 * `logits`, f32 [batch, sequence, vocabulary]. A sequence has from 1 to `seq` tokens. Pad shorter
 * sequences of a batch at the end with any ids: no token attends to a later one.
 *
 * Weights have the names of {@linkcode gpt2}; tied weights are stored once. `metadata_props` contains
 * `model` and the sizes, with the names of {@linkcode Gpt2Config}.
 *
 * @param metadata other entries of `metadata_props`, such as the tokenizer.
 * @throws {RangeError} as {@linkcode gpt2}; or when it would have 2 GiB or more.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { gpt2Onnx, gpt2Parameters } from "@troupe/troupe/kernels";
 *
 * const config = { layers: 1, hidden: 8, heads: 2, seq: 4, vocab: 16 };
 * const weights = new Map(
 *   gpt2Parameters(config).map(({ name, spec: { shape } }) => [
 *     name,
 *     new Float32Array(shape.reduce((length, size) => length * size)),
 *   ]),
 * );
 * const file = gpt2Onnx(config, { tokenizer: "bytes" });
 * const blob = new Blob([...file.pieces((name) => weights.get(name))]);
 * assert.equal(blob.size, file.byteLength);
 * ```
 */
export function gpt2Onnx(
  config: Gpt2Config,
  metadata: Readonly<Record<string, string>> = {},
): OnnxFile {
  const { layers, hidden, heads, seq, vocab, tie = false } = config;
  const parameters = gpt2Parameters(config);
  const input = { name: "input_ids", dtype: "i64", shape: ["batch", "sequence"] } as const;
  const output = { name: "logits", dtype: "f32", shape: ["batch", "sequence", vocab] } as const;
  const names = parameters.map(({ name }) => name);
  return onnxFile({
    graph: onnxGraph("gpt2", input, output, (write) => buildGpt2(write, config, names)),
    parameters,
    metadata: { model: "gpt2", layers, hidden, heads, seq, vocab, tie, ...metadata },
  });
}

function buildGpt2(write: Writer, config: Gpt2Config, parameters: readonly string[]): void {
  const { layers, hidden, heads, vocab } = config, { node } = write, { add } = arithmetic(write);
  const int = (...values: number[]) => write.constant("i64", values);
  const count = (value: number) => write.constant("i64", [value], []);
  const shape = node("Shape", ["input_ids"]);
  const length = node("Gather", [shape, count(1)]);
  // For a longer sequence the table has no row, and the runtime fails.
  const positions = node("Range", [count(0), length, count(1)]);
  const tokens = node("Gather", ["transformer.wte.weight", "input_ids"]);
  const sum = add(tokens, node("Gather", ["transformer.wpe.weight", positions]));
  // Values that all blocks share: the shape of a stream [batch · sequence, hidden] divided into heads, and
  // where a token may attend to another, [sequence, sequence].
  const shared = {
    byHead: node("Concat", [shape, int(heads, hidden / heads)], { axis: 0 }),
    isSeen: node("GreaterOrEqual", [node("Unsqueeze", [positions, int(1)]), positions]),
  };
  let x = node("Reshape", [sum, int(-1, hidden)]);
  for (let i = 0; i < layers; i++) {
    x = add(x, attention(write, x, `transformer.h.${i}.`, config, shared));
    x = add(x, feedForward(write, x, `transformer.h.${i}.`));
  }
  const normal = layerNorm(write, x, "transformer.ln_f");
  // A head is whole, in slices of the vocabulary, or the table of the embedding.
  const own = parameters.filter((name) => name.startsWith("lm_head."));
  const parts = (own.length > 0 ? own : ["transformer.wte.weight"])
    .map((name) => node("Gemm", [normal, name], { transB: 1 }));
  const all = parts.length > 1 ? node("Concat", parts, { axis: 1 }) : parts[0]!;
  const logits = node("Concat", [shape, int(vocab)], { axis: 0 });
  node("Reshape", [all, logits], {}, "logits");
}

const layerNorm = ({ node }: Writer, x: string, name: string): string =>
  node("LayerNormalization", [x, `${name}.weight`, `${name}.bias`], {
    axis: -1,
    epsilon: { float: 1e-5 },
  });

const linear = ({ node }: Writer, x: string, name: string): string =>
  node("Gemm", [x, `${name}.weight`, `${name}.bias`]);

function attention(
  write: Writer,
  x: string,
  prefix: string,
  { hidden, heads }: Gpt2Config,
  { byHead, isSeen }: Readonly<Record<"byHead" | "isSeen", string>>,
): string {
  const { node } = write, { mul, scalar, reshape } = arithmetic(write);
  const qkv = linear(write, layerNorm(write, x, `${prefix}ln_1`), `${prefix}attn.c_attn`);
  const parts = write.nodes("Split", [qkv], { axis: 1, num_outputs: 3 }, 3);
  // Queries and values [batch, heads, sequence, width], keys with the last two axes exchanged.
  const [q, k, v] = [[0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]].map((perm, i) =>
    node("Transpose", [node("Reshape", [parts[i]!, byHead])], { perm })
  ) as [string, string, string];
  const scores = mul(node("MatMul", [q, k]), scalar(1 / Math.sqrt(hidden / heads)));
  const masked = node("Where", [isSeen, scores, scalar(MASKED)]);
  const mixed = node("MatMul", [node("Softmax", [masked], { axis: -1 }), v]);
  const joined = node("Transpose", [mixed], { perm: [0, 2, 1, 3] });
  return linear(write, reshape(joined, [-1, hidden]), `${prefix}attn.c_proj`);
}

function feedForward(write: Writer, x: string, prefix: string): string {
  const wide = linear(write, layerNorm(write, x, `${prefix}ln_2`), `${prefix}mlp.c_fc`);
  return linear(write, write.node("Gelu", [wide], { approximate: "tanh" }), `${prefix}mlp.c_proj`);
}

/** Options of {@linkcode layersOnnx}. */
export interface LayersOnnxOptions {
  /** The kind of the model. Default `layers`. */
  readonly name?: string;
  /** Ties of the layers' parameters; the file contains the first parameter of each tie. */
  readonly ties?: readonly Tie[];
  /** Other entries of `metadata_props`. */
  readonly metadata?: Readonly<Record<string, string>>;
}

/**
 * Exports layers as an ONNX file of opset 20. Its inputs are the fields of the micro-batch that the
 * layers read, with their names and sizes; `output` is the result of the last layer.
 *
 * @param layers as for {@linkcode openPredictor}: the last layer returns predictions, not a loss.
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
  const must = "there must be at least one layer, and the last must return one value";
  if (!isValue(x)) throw refusal("export as ONNX", must, x ? "a record" : "none");
  const weights = g.parameters.map(({ spec: { name }, value }) => ({ name, value }));
  const fields = g.fields.map(({ spec: { name }, value }) => ({ name, value }));
  const bytes = encodeModel(g, [...fields, ...weights], [{ name: "output", value: x }]);
  const { graph } = fromBinary(ModelProtoSchema, bytes);
  lowerGraph(graph!);
  rewriteNodes(graph!, valueTypes(graph!), "own", (node) => opOf(node.opType, node.domain)?.lower);
  const read = new Set(graph!.input.map(({ name }) => name));
  const parameters = g.parameters.map(({ spec }) => spec).filter(({ name }) => read.has(name));
  const isWeight = new Set(parameters.map(({ name }) => name));
  graph!.input = graph!.input.filter(({ name }) => !isWeight.has(name!));
  graph!.name = name;
  return onnxFile({ graph: graph!, parameters, metadata: { model: name, ...metadata } });
}

/** The graph of all layers. Parameters have their full names; tied parameters are declared once. */
class ModelGraph extends LayerGraph {
  /** Prefix of the names of parameters. */
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

  /** Returns the value itself, because all layers are in one graph. */
  override take(name: string): Value {
    return this.gives.get(name) ?? super.take(name);
  }

  /** Exported models have no dropout. */
  override dropout(x: Value): Value {
    return x;
  }
}

/**
 * Exports an MLP classifier as an ONNX file of opset 20: it maps `pixels`, f32 [batch, inputs], to
 * `logits`, f32 [batch, classes]. Weights have the names of {@linkcode mlp}; `metadata_props`
 * contains `model` and the sizes, with the names of {@linkcode MlpConfig}.
 *
 * @throws {RangeError} as {@linkcode mlp}; or when it would have 2 GiB or more.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { mlpOnnx } from "@troupe/troupe/kernels";
 *
 * const file = mlpOnnx({ inputs: 2, hidden: 3, layers: 1, classes: 2 });
 * const sizes = new Map([["0.weight", 6], ["0.bias", 3], ["1.weight", 6], ["1.bias", 2]]);
 * const pieces = file.pieces((name) => new Float32Array(sizes.get(name.slice("layers.".length))!));
 * assert.equal(new Blob([...pieces]).size, file.byteLength);
 * ```
 */
export function mlpOnnx(config: MlpConfig): OnnxFile {
  const { inputs, hidden, layers, classes } = config;
  const input = { name: "pixels", dtype: "f32", shape: ["batch", inputs] } as const;
  const output = { name: "logits", dtype: "f32", shape: ["batch", classes] } as const;
  return onnxFile({
    graph: onnxGraph("mlp", input, output, ({ node }) => {
      let x = input.name as string;
      for (let i = 0; i <= layers; i++) {
        const read = [x, `layers.${i}.weight`, `layers.${i}.bias`];
        x = i === layers
          ? node("Gemm", read, {}, output.name)
          : node("Gelu", [node("Gemm", read)], { approximate: "tanh" });
      }
    }),
    parameters: compileModel(mlp(config, 1), "none").parameters,
    metadata: { model: "mlp", inputs, hidden, layers, classes },
  });
}

/** Numbers of the fields with the elements of an f32 tensor, or with the file that contains them. */
const TENSOR_DATA = new Set([4, TENSOR_RAW_DATA, 13, 14]);

const WRITE = "write the ONNX model";

/**
 * Returns an ONNX file with other values of some weights, such as those of a trained model.
 *
 * All other bytes are unchanged, and so is the size, unless weights were in separate files or were
 * stored as lists: they become raw data within the file.
 *
 * @param weights by the names of the file's f32 initializers; others are unchanged.
 * @throws {TypeError} when it is not an ONNX file, or has no such initializer.
 * @throws {RangeError} when a weight has another type or size, or the file would have 2 GiB or more.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { fromOnnx, type Layer, layersOnnx, onnxWithWeights } from "@troupe/troupe/kernels";
 *
 * const line: Layer = {
 *   name: "line",
 *   build: (g) => g.mul(g.batch("x", [2, 1]), g.parameter("slope", [1])),
 * };
 * const bytes = await new Blob([...layersOnnx([line]).pieces(() => Float32Array.of(3))]).bytes();
 * const weights = new Map([["line.slope", Float32Array.of(4)]]);
 * const other = onnxWithWeights(bytes, weights);
 * assert.equal(other.length, bytes.length);
 * assert.deepEqual(fromOnnx(other, { loss: "mse" }).weights, weights);
 * ```
 */
export function onnxWithWeights(
  bytes: Uint8Array,
  weights: ReadonlyMap<string, Float32Array>,
): Uint8Array<ArrayBuffer> {
  decodeModel(bytes);
  const missing = new Set(weights.keys());
  const pieces = [...rewritten(bytes, MODEL_GRAPH, (graph) => [
    ...rewritten(graph, GRAPH_INITIALIZER, (tensor) => {
      const { name = "", dims, dataType } = fromBinary(TensorProtoSchema, tensor);
      const values = weights.get(name);
      if (!values) return undefined;
      missing.delete(name);
      const elements = elementCount(dims.map(Number));
      const holds = dataType === ONNX_DTYPE.f32 && values.length === elements;
      const must = `the weight ${quoted(name)} must be f32 of ${elements} elements`;
      assertInput(holds, WRITE, must, `${values.length} for ONNX type ${dataType}`);
      return withData(tensor, values);
    }),
  ])];
  const [unknown] = missing;
  const must = "weights must be among its initializers";
  if (unknown !== undefined) throw refusal(WRITE, must, quoted(unknown), TypeError);
  const length = lengthOf(pieces);
  assertInput(length <= BYTES_MAX, WRITE, SIZE_MUST, `${length} bytes`);
  return joinArrays(Uint8Array, pieces);
}

/** Yields the fields of a message: their numbers, bytes, and contents if they have a length. */
function* fieldsOf(message: Uint8Array) {
  const reader = new BinaryReader(message);
  while (reader.pos < reader.len) {
    const from = reader.pos, [tag, wireType] = reader.tag();
    const content = wireType === WireType.LengthDelimited ? reader.bytes() : undefined;
    if (!content) reader.skip(wireType, tag);
    yield { tag, content, bytes: message.subarray(from, reader.pos) };
  }
}

/**
 * Yields the bytes of a message, with new contents of the fields of one number.
 *
 * @param contentOf returns the pieces of the new content, or undefined to keep the old one.
 */
function* rewritten(
  message: Uint8Array,
  number: number,
  contentOf: (content: Uint8Array) => readonly Uint8Array[] | undefined,
): Generator<Uint8Array> {
  for (const { tag, content, bytes } of fieldsOf(message)) {
    const changed = tag === number && content && contentOf(content);
    if (changed) yield* [field(number, lengthOf(changed)), ...changed];
    else yield bytes;
  }
}

/** Replaces the elements of a tensor. */
function withData(tensor: Uint8Array, values: Float32Array): Uint8Array[] {
  const raw = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  const fields = [...fieldsOf(tensor)], first = fields.findIndex(({ tag }) => TENSOR_DATA.has(tag));
  const kept = fields.filter(({ tag }) => !TENSOR_DATA.has(tag)).map(({ bytes }) => bytes);
  return kept.toSpliced(
    first < 0 ? kept.length : first,
    0,
    field(TENSOR_RAW_DATA, raw.length),
    raw,
  );
}
