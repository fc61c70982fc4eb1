/**
 * What a safetensors file holds: an 8-byte header length, a JSON header, then the tensors' bytes.
 *
 * @module
 */

/** Bytes of one element of each dtype that a safetensors file may hold. */
export const SAFETENSORS_DTYPE_BYTES = {
  BOOL: 1,
  U8: 1,
  I8: 1,
  F8_E5M2: 1,
  F8_E4M3: 1,
  I16: 2,
  U16: 2,
  F16: 2,
  BF16: 2,
  I32: 4,
  U32: 4,
  F32: 4,
  I64: 8,
  U64: 8,
  F64: 8,
} as const;

/** Element types of a safetensors file, as its header spells them. */
export type SafetensorsDType = keyof typeof SAFETENSORS_DTYPE_BYTES;

/** What a header says of one tensor. */
export interface SafetensorsInfo {
  /** The type of its elements. */
  readonly dtype: SafetensorsDType;
  /** Its sizes; empty for a scalar. */
  readonly shape: readonly number[];
}

/** Text that a file carries beside its tensors. */
export type SafetensorsMetadata = Readonly<Record<string, string>>;

/** The most sizes of a shape; ONNX and NumPy stop there too. */
const RANK_MAX = 64;

/** The name that a header keeps for its metadata. */
export const METADATA_KEY = "__metadata__";

/** Bytes of a tensor. */
export function tensorBytes(dtype: SafetensorsDType, shape: readonly number[]): number {
  return shape.reduce((product, size) => product * size, SAFETENSORS_DTYPE_BYTES[dtype]);
}

/** A tensor in words. */
export function describe(dtype: SafetensorsDType, shape: readonly number[]): string {
  return `${dtype} of shape [${shape.join(", ")}]`;
}

/** Whether a file may hold elements of this type. */
export function isDType(value: unknown): value is SafetensorsDType {
  return typeof value === "string" && Object.hasOwn(SAFETENSORS_DTYPE_BYTES, value);
}

/** Whether something is a list of whole numbers from 0, as shapes and offsets are. */
export function isSizes(value: unknown): value is number[] {
  return Array.isArray(value) && value.length <= RANK_MAX &&
    value.every((size) => Number.isSafeInteger(size) && size >= 0);
}

/** A received value, short enough for one sentence. */
export function show(value: unknown): string {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length <= 80 ? text : `${text.slice(0, 77)}...`;
}
