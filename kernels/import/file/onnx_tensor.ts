/**
 * The tensors of an ONNX file as arrays.
 *
 * A file is a stranger's: that a tensor has as many bytes as its sizes say is checked before anything
 * is made of it.
 *
 * @module
 */

import type { DType, HostArray } from "../../devices/device.ts";
import { elementCount, ELEMENTS_MAX } from "../../graph/shapes.ts";
import { type TensorProto, TensorProto_DataLocation } from "../../onnx/onnx_pb.ts";
import { listed, quoted } from "./quoted.ts";

/** A tensor whose elements are known before any run. */
export interface Constant {
  /** The type of its elements. */
  readonly dtype: DType;
  /** Its sizes. */
  readonly shape: readonly number[];
  /** Its elements. */
  readonly data: HostArray;
}

/** The bytes of files that lie beside a model, by the names by which it knows them. */
export type ExternalFiles = Readonly<Record<string, Uint8Array>>;

/** How the elements of one of ONNX's types are read. */
interface ElementType {
  readonly bytes: number;
  readonly dtype: DType;
  /** The elements of memory that begins where an array may begin. */
  readonly view: (buffer: ArrayBuffer) => Exclude<HostArray, Float16Array> | NumberArray;
  /** Where they lie if not in `raw_data`. */
  readonly field: "floatData" | "int32Data" | "int64Data" | "doubleData" | "uint64Data";
}

type NumberArray =
  | Int8Array
  | Uint16Array
  | Int16Array
  | Uint32Array
  | BigUint64Array
  | Float64Array;

/** By ONNX's numbers of the types. What no device holds is widened; f64 is rounded. */
const ELEMENT_TYPES: Readonly<Record<number, ElementType>> = {
  1: { bytes: 4, dtype: "f32", view: (b) => new Float32Array(b), field: "floatData" },
  2: { bytes: 1, dtype: "i32", view: (b) => new Uint8Array(b), field: "int32Data" },
  3: { bytes: 1, dtype: "i32", view: (b) => new Int8Array(b), field: "int32Data" },
  4: { bytes: 2, dtype: "i32", view: (b) => new Uint16Array(b), field: "int32Data" },
  5: { bytes: 2, dtype: "i32", view: (b) => new Int16Array(b), field: "int32Data" },
  6: { bytes: 4, dtype: "i32", view: (b) => new Int32Array(b), field: "int32Data" },
  7: { bytes: 8, dtype: "i64", view: (b) => new BigInt64Array(b), field: "int64Data" },
  9: { bytes: 1, dtype: "bool", view: (b) => new Uint8Array(b), field: "int32Data" },
  11: { bytes: 8, dtype: "f32", view: (b) => new Float64Array(b), field: "doubleData" },
  12: { bytes: 4, dtype: "i64", view: (b) => new Uint32Array(b), field: "uint64Data" },
  13: { bytes: 8, dtype: "i64", view: (b) => new BigUint64Array(b), field: "uint64Data" },
};

/** The type of device that holds elements of one of ONNX's types; undefined where none does. */
export const dtypeOf = (type: number | undefined): DType | undefined =>
  ELEMENT_TYPES[type ?? 0]?.dtype;

/** Elements of any type as those of a device's. */
export function hostArray(dtype: DType, numbers: Iterable<number | bigint>): HostArray {
  if (dtype === "i64") return BigInt64Array.from(numbers, toInt64);
  const all = Array.isArray(numbers) ? numbers as number[] : Array.from(numbers, Number);
  if (dtype === "i32") return Int32Array.from(all);
  if (dtype === "bool") return Uint8Array.from(all, (one) => +(one !== 0));
  return Float32Array.from(all);
}

const INT64_MAX = 2n ** 63n - 1n;

/** The ends of slices are often the largest number that there is, which f64 does not hold. */
function toInt64(value: number | bigint): bigint {
  const whole = typeof value === "bigint" ? value : BigInt(Math.trunc(value));
  return whole > INT64_MAX ? INT64_MAX : whole < -INT64_MAX ? -INT64_MAX : whole;
}

/**
 * Reads a tensor.
 *
 * @param what it is called in messages.
 * @param external files beside the model.
 * @throws {TypeError} when its type is unknown, or its elements lie in a file that is not given.
 * @throws {RangeError} when its sizes and its bytes differ.
 */
export function readTensor(tensor: TensorProto, what: string, external: ExternalFiles): Constant {
  const refuse = (must: string, received: unknown): never => {
    throw new RangeError(
      `Cannot import the ONNX model: ${what} must ${must}, received ${received}`,
    );
  };
  const type = ELEMENT_TYPES[tensor.dataType ?? 0];
  if (!type) {
    throw new TypeError(
      `Cannot import the ONNX model: ${what} must hold f32, f64, whole numbers or bool, received ONNX type ${
        tensor.dataType ?? 0
      }`,
    );
  }
  const shape = tensor.dims.map(Number), elements = elementCount(shape);
  if (shape.some((size) => !(size >= 0)) || !(elements <= ELEMENTS_MAX)) {
    refuse(`have sizes from 0 whose product is at most ${ELEMENTS_MAX}`, `[${shape}]`);
  }
  const raw = rawBytes(tensor, what, external), bytes = elements * type.bytes;
  const listed = tensor[type.field];
  if (raw ? raw.length !== bytes : listed.length !== elements) {
    refuse(
      `have the ${bytes} bytes of its sizes [${shape}]`,
      raw ? `${raw.length} bytes` : `${listed.length} elements`,
    );
  }
  const values = raw ? type.view(raw.slice().buffer) : listed;
  // Weights are the bulk of a file: they are not walked.
  const data = values instanceof Float32Array || values instanceof Int32Array ||
      values instanceof BigInt64Array
    ? values
    : hostArray(type.dtype, values);
  return { dtype: type.dtype, shape, data };
}

/** The bytes of the elements; undefined where the tensor lists them. */
function rawBytes(
  { rawData, dataLocation, externalData }: TensorProto,
  what: string,
  external: ExternalFiles,
): Uint8Array | undefined {
  const isExternal = dataLocation === TensorProto_DataLocation.EXTERNAL || externalData.length > 0;
  if (!isExternal) return rawData;
  const said = new Map(externalData.map(({ key, value }) => [key ?? "", value ?? ""]));
  const location = said.get("location") ?? "", offset = Number(said.get("offset") ?? 0);
  const file = Object.hasOwn(external, location) ? external[location] : undefined;
  if (!file) {
    throw new TypeError(
      `Cannot import the ONNX model: ${what} lies in the file ${
        quoted(location)
      } beside it, which must be given as one of \`external\`, received [${
        listed(Object.keys(external))
      }]`,
    );
  }
  const length = Number(said.get("length") ?? file.length - offset);
  if (offset >= 0 && length >= 0 && offset + length <= file.length) {
    return file.subarray(offset, offset + length);
  }
  throw new RangeError(
    `Cannot import the ONNX model: ${what} must lie within the ${file.length} bytes of ${
      quoted(location)
    }, received ${length} bytes from ${offset} on`,
  );
}
