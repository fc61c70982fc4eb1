/**
 * Sources of tensors: values in memory, in files, drawn, or in other processes. Reads them in pieces,
 * and locates the tensors of a file.
 *
 * [Note: credit] A piece is requested when the piece before it has arrived and the reader asks for
 * that one. At most two pieces are in memory: one in use and one in transit, even if the reader is
 * slow.
 *
 * @module
 */

import {
  type FloatDType,
  type ParameterSpec,
  SAFETENSORS_DTYPE_BYTES,
  type SafetensorsInfo,
  type StateOf,
  type TensorPart,
} from "../../kernels/mod.ts";
import {
  AVERAGE,
  builtin,
  decodeFloats,
  elementCount,
  openDraws,
  readFull,
  readHeader,
  readOpenSafetensors,
  refusal,
  type SafetensorsFile,
  type StageState,
} from "../../kernels/internal.ts";

const { createHash } = builtin("node:crypto");
const { resolve } = builtin("node:path");

/** Elements of a piece, 4 MiB: the cost of a message is negligible in comparison. */
export const PIECE_ELEMENTS = 1 << 20;

/** Weights and moments that are read in parts, usually from other processes. */
export interface HeldState {
  /** The sizes of each weight and of each moment, by name. */
  readonly shapes: Readonly<Record<FileKind, Shapes>>;
  /** Returns the holder of a tensor; parts of one holder are read together. */
  holderOf(name: string): number;
  /** Reads parts, one after the other, into a new array, which the caller may detach. */
  read(parts: readonly TensorPart[]): Promise<Float32Array<ArrayBuffer>>;
}

/** Returns a state that passes all values that are read to a function. */
export const watchReads = (
  state: HeldState,
  see: (values: Float32Array, parts: readonly TensorPart[]) => void,
): HeldState => ({
  ...state,
  async read(parts) {
    const values = await state.read(parts);
    see(values, parts);
    return values;
  },
});

/** A part that is read in a request with others. */
type RequestedPart = TensorPart & { readonly isLast: boolean };

/**
 * Reads tensors of one kind from their beginning to their end, one after the other. Yields the next
 * elements of a tensor, the number of those before them, and whether they are its last.
 *
 * @param names of the tensors, in the order of reading.
 */
export async function* readPieces(state: HeldState, kind: FileKind, names: readonly string[]) {
  const cuts = cutParts(state, kind, names);
  const begin = () => {
    const { value: parts } = cuts.next();
    if (!parts) return undefined;
    const values = state.read(parts);
    // A failure is handled when the values are awaited.
    values.catch(() => {});
    return { parts, values };
  };
  let next = begin();
  try {
    while (next) {
      const { parts } = next, values = await next.values;
      next = begin();
      let at = 0;
      for (const { name, from, to, isLast } of parts) {
        yield { name, values: values.subarray(at, at += to - from), from, isLast };
      }
      // Otherwise each isolate would hold up to 64 MiB of read pieces until V8 collects them.
      values.buffer.transfer(0);
    }
  } finally {
    // The holder accepts another request after this one.
    await next?.values.catch(() => {});
  }
}

/** Cuts tensors into requests: each to one holder and of limited size. */
function* cutParts(
  { shapes, holderOf }: HeldState,
  kind: FileKind,
  names: readonly string[],
): Generator<readonly RequestedPart[], undefined> {
  let parts: RequestedPart[] = [], room = PIECE_ELEMENTS;
  for (const name of names) {
    const count = elementCount(shapes[kind].get(name)!);
    if (parts[0] && holderOf(parts[0].name) !== holderOf(name)) room = 0;
    for (let from = 0, to; from === 0 || from < count; from = to) {
      if (room === 0) {
        yield parts;
        parts = [];
        room = PIECE_ELEMENTS;
      }
      to = Math.min(count, from + room);
      room -= to - from;
      parts.push({ name, from, to, isLast: to === count });
      if (count === 0) break;
    }
  }
  if (parts.length > 0) yield parts;
  return undefined;
}

/** The parameter of a moment, `h.0.w` of `h.0.w.exp_avg`. */
export const parameterOf = (moment: string): string => moment.slice(0, moment.lastIndexOf("."));

/** Returns whether a moment contains means of squares, which are at least 0. */
export const areSquares = (moment: string): boolean =>
  /\.(exp_avg_sq|row_var|col_var|variance)$/.test(moment);

/** Returns the name of the average of a weight. */
export const averageOf = (weight: string): string => `${weight}.${AVERAGE}`;

/** Returns moments together with averages, which have the names of their weights. */
export function withAverages<T>(
  moments: ReadonlyMap<string, T>,
  averages: ReadonlyMap<string, T>,
): Map<string, T> {
  const named = Array.from(averages, ([name, one]): [string, T] => [averageOf(name), one]);
  return new Map([...moments, ...named]);
}

/**
 * Returns a state in memory as a readable state.
 *
 * @param shapes Shapes of its parameters, and of moments whose shape differs from the parameter's.
 */
export function heldValues({ weights, moments }: StageState, shapes: Shapes): HeldState {
  const all = new Map([...weights, ...moments]), names = [...all.keys()];
  return {
    shapes: {
      model: new Map(Array.from(weights.keys(), (name) => [name, shapes.get(name)!])),
      optimizer: new Map(
        Array.from(moments.keys(), (name) => [
          name,
          (shapes.get(name) ?? shapes.get(parameterOf(name)))!,
        ]),
      ),
    },
    holderOf: (name) => names.indexOf(name),
    read([part]) {
      const { name, from, to } = part!;
      return Promise.resolve(all.get(name)!.slice(from, to));
    },
  };
}

/** Gathers a small state in memory. @param into Arrays to reuse. */
export async function gatherState(
  state: HeldState,
  into: StateOf<Float32Array> = { weights: new Map(), moments: new Map() },
): Promise<StageState> {
  const gather = async (kind: FileKind, known: ReadonlyMap<string, Float32Array>) => {
    const shapes = state.shapes[kind], values = new Map<string, Float32Array>();
    for (const [name, shape] of shapes) {
      values.set(name, known.get(name) ?? new Float32Array(elementCount(shape)));
    }
    for await (const { name, values: piece, from } of readPieces(state, kind, [...shapes.keys()])) {
      values.get(name)!.set(piece, from);
    }
    return values;
  };
  return {
    weights: await gather("model", into.weights),
    moments: await gather("optimizer", into.moments),
  };
}

/** A tensor that begins with drawn values. */
export interface DrawnTensor {
  /** Kind of the source. */
  readonly kind: "drawn";
  /** Parameter to draw. */
  readonly spec: ParameterSpec;
  /** The full name of its parameter, which keys the draws. */
  readonly name: string;
  /** Seed of all draws. */
  readonly seed: number;
}

/** A tensor in a file. */
export interface PlacedTensor {
  /** Kind of the source. */
  readonly kind: "placed";
  /** The file. */
  readonly path: string;
  /** Offset of its bytes. */
  readonly at: number;
  /** Number of bytes. */
  readonly bytes: number;
  /** Type of the values. Default F32. */
  readonly dtype?: FloatDType | undefined;
  /**
   * SHA-256 of the bytes in hexadecimal, so that a reader notices a changed file. Absent if this run
   * has written them on this host.
   */
  readonly sha256?: string | undefined;
}

/** A tensor: its values, or where they come from. */
export type TensorSource = Float32Array | DrawnTensor | PlacedTensor;

/** Bytes of a tensor in F32. */
export function bytesOfSource(source: TensorSource): number {
  if (source instanceof Float32Array) return source.byteLength;
  if (source.kind === "drawn") return 4 * elementCount(source.spec.shape);
  return 4 * source.bytes / SAFETENSORS_DTYPE_BYTES[source.dtype ?? "F32"];
}

/**
 * The values of a tensor.
 *
 * @throws {Error} when it cannot be read, or its file holds other bytes.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { initialValues } from "../../kernels/layers/layer.ts";
 *
 * const spec = { name: "w", shape: [2], initializer: { kind: "normal", deviation: 1 } } as const;
 * const values = readTensor({ kind: "drawn", spec, name: "h.0.w", seed: 1 });
 * assert.deepEqual(values, initialValues(spec, "h.0.w", 1));
 * ```
 */
export function readTensor(source: TensorSource): Float32Array {
  if (source instanceof Float32Array) return source;
  const values = new Float32Array(bytesOfSource(source) / 4);
  for (const _ of piecesOf(source, values));
  return values;
}

/** Returns the values of tensors by name; tensors with the same source share an array. */
export function readTensors(
  sources: ReadonlyMap<string, TensorSource>,
): ReadonlyMap<string, Float32Array> {
  const known = new Map<TensorSource, Float32Array>();
  const valuesOf = (source: TensorSource) =>
    known.getOrInsertComputed(source, () => readTensor(source));
  return new Map(Array.from(sources, ([name, source]) => [name, valuesOf(source)]));
}

/**
 * Calls back with the tensors of a state, one after another; tensors with one source are read once.
 * Only one piece is in memory, in an array that is reused.
 *
 * @param take Gets values; the index of the first one is absent if they are the whole tensor.
 * @param most Limit of the elements of a piece.
 */
export function eachTensor(
  { weights, moments }: StateOf<TensorSource>,
  take: (name: string, values: Float32Array, from?: number) => void,
  most: number,
): void {
  const read = openPieces(most);
  for (const [source, same] of Map.groupBy([...weights, ...moments], ([, source]) => source)) {
    read(source, (values, from) => {
      for (const [name] of same) take(name, values, from);
    });
  }
}

/**
 * Returns a reader of tensors in pieces, in an array that is reused. A tensor in memory is one piece
 * without an offset.
 *
 * @param most Limit of the elements of a piece.
 */
export function openPieces(
  most: number,
): (source: TensorSource, take: (values: Float32Array, from?: number) => void) => void {
  let piece = new Float32Array();
  return (source, take) => {
    const length = source instanceof Float32Array ? 0 : Math.min(most, bytesOfSource(source) / 4);
    if (piece.length < length) piece = new Float32Array(length);
    for (const { values, from } of piecesOf(source, piece.subarray(0, length))) take(values, from);
  };
}

/**
 * Yields a tensor in pieces, each with the index of its first value; a tensor in memory is one piece
 * without an index.
 *
 * @param piece Array for each piece.
 */
export function* piecesOf(
  source: TensorSource,
  piece: Float32Array<ArrayBuffer>,
): Generator<{ readonly values: Float32Array; readonly from?: number }, void> {
  if (source instanceof Float32Array) return yield { values: source };
  const count = bytesOfSource(source) / 4;
  using values = openValues(source);
  for (let from = 0; from < count; from += piece.length) {
    const part = piece.subarray(0, count - from);
    values.fill(part);
    yield { values: part, from };
  }
  values.check();
}

/** The values of a tensor from the first to the last. */
interface Values extends Disposable {
  /** Fills an array with the next values. */
  fill(into: Float32Array): void;
  /** Checks, after the last value, that the values were the expected ones. */
  check(): void;
}

function openValues(source: DrawnTensor | PlacedTensor): Values {
  if (source.kind === "placed") return openPlaced(source);
  const fill = openDraws(source.spec, source.name, source.seed);
  return { fill, check: () => {}, [Symbol.dispose]: () => {} };
}

/** The values of a state. */
export function readState({ weights, moments }: StateOf<TensorSource>): StageState {
  return { weights: readTensors(weights), moments: readTensors(moments) };
}

const READABLE = "it must be readable by every worker that needs a part of it";

function openPlaced({ path, at, bytes, sha256, dtype = "F32" }: PlacedTensor): Values {
  const hash = sha256 === undefined ? undefined : createHash("sha256");
  let found = 0;
  const attempt = <T>(read: () => T): T => {
    try {
      return read();
    } catch (cause) {
      throw refusal(`read ${path}`, READABLE, cause, Error);
    }
  };
  const file = attempt(() => {
    const opened = Deno.openSync(path);
    opened.seekSync(at, Deno.SeekMode.Start);
    return opened;
  });
  return {
    fill: (values) =>
      attempt(() => {
        const into = dtype === "F32"
          ? new Uint8Array(values.buffer, values.byteOffset, values.byteLength)
          : new Uint8Array(values.length * SAFETENSORS_DTYPE_BYTES[dtype]);
        let filled = 0;
        for (let read; (read = file.readSync(into.subarray(filled))) !== null && read > 0;) {
          filled += read;
        }
        hash?.update(into.subarray(0, filled));
        found += filled;
        if (dtype !== "F32") values.set(decodeFloats(dtype, into));
      }),
    check() {
      if (found === bytes && hash?.digest("hex") === sha256) return;
      const right = sha256 === undefined ? "be there" : `have the hash ${sha256}`;
      const must = `the ${bytes} bytes from ${at} on must ${right}`;
      throw refusal(`read ${path}`, must, "others; it was changed", Error);
    },
    [Symbol.dispose]: () => file.close(),
  };
}

/** Tensors of a file by name. */
export interface TensorsOf<T> {
  /** Values of tensors, or their places. */
  readonly values: Map<string, T>;
  /** Their sizes. */
  readonly shapes: Map<string, readonly number[]>;
}

/** Tensors of a file by name, with their elements. */
export type Floats = TensorsOf<Float32Array>;

/** Reads an open file, or looks where its tensors are. */
export type ReadTensors<T> = (file: SafetensorsFile, path: string) => Promise<TensorsOf<T>>;

/** Reads an open file whose tensors are all F32. */
export async function readFloats(file: SafetensorsFile, path: string): Promise<Floats> {
  const { tensors } = await readOpenSafetensors(file, path, (name, info, bytes) => {
    checkF32(path, name, info);
    return new Uint8Array(bytes);
  });
  const floatsOf = ({ buffer, byteOffset, byteLength }: Uint8Array) =>
    new Float32Array(buffer, byteOffset, byteLength / 4);
  return {
    values: new Map([...tensors].map(([name, { data }]) => [name, floatsOf(data)])),
    shapes: new Map([...tensors].map(([name, { shape }]) => [name, shape])),
  };
}

/**
 * Locates the tensors of an open file, which must be F32 and finite.
 *
 * @throws {RangeError} when a value is not finite.
 */
export async function locateFloats(
  file: SafetensorsFile,
  path: string,
): Promise<TensorsOf<PlacedTensor>> {
  await file.seek(0, Deno.SeekMode.Start);
  const { dataStart, entries } = await readHeader(file, path);
  const values = new Map<string, PlacedTensor>(), shapes = new Map<string, readonly number[]>();
  for (const { name, begin, end, ...info } of entries) {
    checkF32(path, name, info);
    const place = { path: resolve(path), at: dataStart + begin, bytes: end - begin };
    const check = (values: Float32Array) => checkKeepable(path, name, values);
    values.set(name, { kind: "placed", ...place, sha256: await hashPart(file, place, check) });
    shapes.set(name, info.shape);
  }
  return { values, shapes };
}

/** Bytes of a read. */
const PIECE_BYTES = 1 << 20;

/**
 * The hash of a part of a file.
 *
 * @param look receives the values as F32, piece by piece.
 * @throws {RangeError} when the file is too short.
 */
export async function hashPart(
  file: SafetensorsFile,
  { path, at, bytes, dtype = "F32" }: Pick<PlacedTensor, "path" | "at" | "bytes" | "dtype">,
  look: (values: Float32Array) => void = () => {},
): Promise<string> {
  const hash = createHash("sha256"), piece = new Uint8Array(Math.min(bytes, PIECE_BYTES));
  await file.seek(at, Deno.SeekMode.Start);
  for (let left = bytes; left > 0; left -= piece.length) {
    const part = piece.subarray(0, left);
    if (!await readFull(file, part)) {
      throw new RangeError(`Cannot read ${path}: it must have ${at + bytes} bytes, was cut`);
    }
    hash.update(part);
    look(decodeFloats(dtype, part));
  }
  return hash.digest("hex");
}

function checkKeepable(path: string, name: string, values: Float32Array): void {
  const least = areSquares(name) ? 0 : -Infinity;
  const wrong = values.find((value) => !Number.isFinite(value) || value < least);
  if (wrong === undefined) return;
  const must = Number.isFinite(wrong)
    ? "means of squares must be at least 0"
    : "weights and moments must be finite";
  throw refusal(`use ${path}`, must, `${wrong} in ${JSON.stringify(name)}`);
}

/** Refuses other types than F32. @throws {TypeError} with the remedy. */
function checkF32(path: string, name: string, { dtype }: SafetensorsInfo): void {
  if (dtype !== "F32") throw wrongDType(path, name, "F32", dtype);
}

/** Returns the error for a tensor whose dtype cannot be read. */
export function wrongDType(path: string, name: string, right: string, dtype: string): Error {
  const must = `tensor ${JSON.stringify(name)} must have dtype ${right}`;
  return refusal(`read ${path}`, must, `${dtype}; convert the file to F32`, TypeError);
}

/** Contents of a tensor file: weights or moments. */
export type FileKind = "model" | "optimizer";

/** The sizes of tensors by name. */
export type Shapes = ReadonlyMap<string, readonly number[]>;
