/**
 * A whole model as one ONNX file: a graph with its weights, for any program that runs ONNX.
 *
 * @module
 */

import { create, toBinary } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import type { ModelParameter } from "../compile/compile_model.ts";
import type { DType } from "../devices/device.ts";
import { elementCount } from "../graph/shapes.ts";
import { ONNX_DTYPE } from "../graph/value.ts";
import { encodeValueInfo, IR_VERSION, OPSET } from "../onnx/encode_model.ts";
import { rewriteNodes, type Writer } from "../onnx/graph_writer.ts";
import {
  AttributeProto_AttributeType,
  type GraphProto,
  GraphProtoSchema,
  ModelProtoSchema,
  NodeProtoSchema,
  TensorProtoSchema,
} from "../onnx/onnx_pb.ts";

/** A file that is not written yet. */
export interface OnnxFile {
  /** How long it is. */
  readonly byteLength: number;
  /**
   * Its bytes, piece by piece, with the weights as they are asked for, each once.
   *
   * @throws {TypeError} when a weight is missing or has another number of elements.
   */
  pieces(weightOf: (name: string) => Float32Array | undefined): Generator<Uint8Array<ArrayBuffer>>;
}

/** What crosses the border of a model; sizes that only a run knows have names. */
export interface OnnxPort {
  /** Its name. */
  readonly name: string;
  /** The type of its elements. */
  readonly dtype: DType;
  /** Its sizes. */
  readonly shape: readonly (number | string)[];
}

/** A model, but for the values of its weights. */
export interface OnnxModel {
  /** What it computes, in ONNX's own operations; its weights are missing. */
  readonly graph: GraphProto;
  /** Its weights; each has the name by which nodes read it. */
  readonly parameters: readonly Pick<ModelParameter, "name" | "shape">[];
  /** What else the file tells: `metadata_props`. */
  readonly metadata: Readonly<Record<string, string | number | boolean>>;
}

/** What protocol buffers can address. */
const BYTES_MAX = 2 ** 31 - 1;

/** Numbers of the fields that hold the weights, in onnx.proto. */
const MODEL_GRAPH = 7, GRAPH_INITIALIZER = 5, TENSOR_RAW_DATA = 9;

/** The most bytes of a tag and a length. */
const FIELD_MAX = 10;

/** The tag and the length of a field whose bytes follow. */
const field = (number: number, byteLength: number): Uint8Array<ArrayBuffer> =>
  new BinaryWriter().tag(number, WireType.LengthDelimited).uint32(byteLength).finish();

const lengthOf = (pieces: readonly Uint8Array[]) =>
  pieces.reduce((sum, { length }) => sum + length, 0);

/**
 * The file of a model.
 *
 * [Note: weights last] Encoding all of it as one message would copy every weight once for each level
 * of the format. So only the rest is encoded, and the weights' fields, whose lengths are known,
 * follow as the last ones of the graph, which is the last field of the model.
 *
 * @throws {RangeError} when it would be larger than the format allows.
 */
export function onnxFile(model: OnnxModel): OnnxFile {
  const frame = toBinary(ModelProtoSchema, frameOf(model));
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
  checkLength(model, lengths.reduce((sum, length) => sum + length, frame.length + graph.length));
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

/** A graph whose constants are nodes: initializers are weights, for whoever trains it. */
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

function checkLength({ graph: { name } }: OnnxModel, byteLength: number): void {
  if (byteLength <= BYTES_MAX) return;
  throw new RangeError(
    `Cannot export ${name} as ONNX: the file must be smaller than 2 GiB, the most that its format holds, received ${
      (byteLength / 2 ** 30).toFixed(1)
    } GiB`,
  );
}

function bytesOf(name: string, values: Float32Array | undefined, bytes: number) {
  if (values?.byteLength !== bytes) {
    throw new TypeError(
      `Cannot export as ONNX: the weight "${name}" must have ${bytes / 4} elements, received ${
        values?.length ?? "none"
      }`,
    );
  }
  return new Uint8Array(values.buffer as ArrayBuffer, values.byteOffset, bytes);
}

const frameOf = ({ metadata }: OnnxModel) =>
  create(ModelProtoSchema, {
    irVersion: IR_VERSION,
    opsetImport: [{ domain: "", version: OPSET }],
    producerName: "troupe",
    metadataProps: Object.entries(metadata).map(([key, value]) => ({ key, value: `${value}` })),
  });

/**
 * A graph with one input and one output.
 *
 * @param build writes its nodes, in ONNX's own operations.
 */
export function onnxGraph(
  name: string,
  input: OnnxPort,
  output: OnnxPort,
  build: (write: Writer) => void,
): GraphProto {
  const border = ({ name, dtype, shape }: OnnxPort) => encodeValueInfo(name, dtype, shape);
  const graph = create(GraphProtoSchema, {
    name,
    node: [{ name, input: [input.name], output: [output.name] }],
    input: [border(input)],
    output: [border(output)],
  });
  rewriteNodes(graph, new Map(), "value", () => build); // one node, which is the model
  return graph;
}
