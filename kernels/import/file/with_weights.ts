/**
 * An ONNX file with other weights, all else as it was.
 *
 * @module
 */

import { fromBinary } from "@bufbuild/protobuf";
import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { elementCount } from "../../graph/shapes.ts";
import { TensorProtoSchema } from "../../onnx/onnx_pb.ts";
import { decodeModel } from "./onnx_graph.ts";
import { quoted } from "./quoted.ts";

/** Numbers of fields in onnx.proto. */
const MODEL_GRAPH = 7, GRAPH_INITIALIZER = 5, TENSOR_RAW_DATA = 9;

/** Those that hold the elements of an f32 tensor, or say in which file they lie. */
const TENSOR_DATA = new Set([4, TENSOR_RAW_DATA, 13, 14]);

/** What protocol buffers can address. */
const BYTES_MAX = 2 ** 31 - 1;

/** ONNX's number of f32. */
const FLOAT = 1;

/**
 * The file with other values of some weights, such as a model of it that was trained.
 *
 * Everything else stays byte for byte, and the file as long as it was, unless weights lay in files
 * beside it, or as lists: then they lie in it, as raw data.
 *
 * @param weights by the names of the file's f32 initializers; those that are not named stay.
 * @throws {TypeError} when it is no ONNX file, has no such initializer, or one of another type.
 * @throws {RangeError} when a weight has another number of elements, or the file would have 2 GiB.
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
      if (dataType === FLOAT && values.length === elements) return withData(tensor, values);
      throw new RangeError(
        `Cannot write the ONNX model: the weight ${
          quoted(name)
        } must be f32 of ${elements} elements, received ${values.length} for ONNX type ${dataType}`,
      );
    }),
  ])];
  const [unknown] = missing;
  if (unknown !== undefined) {
    throw new TypeError(
      `Cannot write the ONNX model: weights must be among its initializers, received ${
        quoted(unknown)
      }`,
    );
  }
  return joined(pieces);
}

/**
 * The fields of a message, those of one number with other contents.
 *
 * @param contentOf the pieces of the new content; undefined where it stays.
 */
function* rewritten(
  message: Uint8Array,
  number: number,
  contentOf: (content: Uint8Array) => readonly Uint8Array[] | undefined,
): Generator<Uint8Array> {
  const reader = new BinaryReader(message);
  let kept = 0;
  while (reader.pos < reader.len) {
    const from = reader.pos, [field, wireType] = reader.tag();
    if (field !== number || wireType !== WireType.LengthDelimited) {
      reader.skip(wireType, field);
      continue;
    }
    const content = contentOf(reader.bytes());
    if (!content) continue;
    yield message.subarray(kept, from);
    yield header(number, content);
    yield* content;
    kept = reader.pos;
  }
  yield message.subarray(kept);
}

/** The tag and the length of a field. */
const header = (number: number, content: readonly Uint8Array[]): Uint8Array =>
  new BinaryWriter().tag(number, WireType.LengthDelimited).uint32(lengthOf(content)).finish();

const lengthOf = (pieces: readonly Uint8Array[]) =>
  pieces.reduce((sum, { length }) => sum + length, 0);

/** A tensor with other elements, where the old ones were. */
function withData(tensor: Uint8Array, values: Float32Array): Uint8Array[] {
  const raw = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  const data = [header(TENSOR_RAW_DATA, [raw]), raw], pieces: Uint8Array[] = [];
  const reader = new BinaryReader(tensor);
  let isWritten = false;
  while (reader.pos < reader.len) {
    const from = reader.pos, [field, wireType] = reader.tag();
    reader.skip(wireType, field);
    if (!TENSOR_DATA.has(field)) pieces.push(tensor.subarray(from, reader.pos));
    else if (!isWritten) isWritten = pieces.push(...data) > 0;
  }
  return isWritten ? pieces : [...pieces, ...data];
}

function joined(pieces: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const length = lengthOf(pieces);
  if (length > BYTES_MAX) {
    throw new RangeError(
      `Cannot write the ONNX model: the file must be smaller than 2 GiB, the most that its format holds, received ${length} bytes`,
    );
  }
  const bytes = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    bytes.set(piece, at);
    at += piece.length;
  }
  return bytes;
}
