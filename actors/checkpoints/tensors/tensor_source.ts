/**
 * Where tensors come from: who needs one gets its values by itself, so that nobody else holds them.
 *
 * @module
 */

import { createHash } from "node:crypto";
import {
  decodeFloats,
  elementCount,
  type FloatDType,
  initialValues,
  openDraws,
  type ParameterSpec,
  SAFETENSORS_DTYPE_BYTES,
  type StageState,
  type StateOf,
} from "../../../kernels/mod.ts";

/** A tensor that begins with drawn values. */
export interface DrawnTensor {
  /** Which source it is. */
  readonly kind: "drawn";
  /** What is drawn. */
  readonly spec: ParameterSpec;
  /** The full name of its parameter, which keys the draws. */
  readonly name: string;
  /** Seed of all draws. */
  readonly seed: number;
}

/** A tensor that lies in a file. */
export interface PlacedTensor {
  /** Which source it is. */
  readonly kind: "placed";
  /** The file. */
  readonly path: string;
  /** Where its bytes begin. */
  readonly at: number;
  /** How many there are. */
  readonly bytes: number;
  /** What they are; F32 where not given. */
  readonly dtype?: FloatDType | undefined;
  /**
   * SHA-256 of them, in hexadecimal: whoever reads them gets what was looked at before. Absent where
   * the run has written them itself, on this host.
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
 * import { readTensor } from "@troupe/troupe/actors";
 * import { initialValues } from "@troupe/troupe/kernels";
 *
 * const spec = { name: "w", shape: [2], initializer: { kind: "normal", deviation: 1 } } as const;
 * const values = readTensor({ kind: "drawn", spec, name: "h.0.w", seed: 1 });
 * assert.deepEqual(values, initialValues(spec, "h.0.w", 1));
 * ```
 */
export function readTensor(source: TensorSource): Float32Array {
  if (source instanceof Float32Array) return source;
  if (source.kind === "placed") return readPlaced(source);
  return initialValues(source.spec, source.name, source.seed);
}

/** The values of tensors by name; those with one source have one array. */
export function readTensors(
  sources: ReadonlyMap<string, TensorSource>,
): ReadonlyMap<string, Float32Array> {
  const known = new Map<TensorSource, Float32Array>();
  return new Map(Array.from(sources, ([name, source]) => {
    const values = known.get(source) ?? readTensor(source);
    known.set(source, values);
    return [name, values];
  }));
}

/**
 * Takes values of a tensor.
 *
 * @param from where they lie in it; absent where they are all of it.
 */
export type TakeValues = (name: string, values: Float32Array, from?: number) => void;

/**
 * Gives the tensors of a state to whoever needs them, one after the other; those with one source are
 * read once. No more than a piece of one is in memory, in an array that is used again.
 *
 * @param most elements of a piece.
 */
export function eachTensor(
  { weights, moments }: StateOf<TensorSource>,
  take: TakeValues,
  most: number,
): void {
  const names = new Map<TensorSource, string[]>();
  for (const [name, source] of [...weights, ...moments]) {
    names.set(source, [...names.get(source) ?? [], name]);
  }
  const read = openPieces(most);
  for (const [source, same] of names) {
    read(source, (values, from) => {
      for (const name of same) take(name, values, from);
    });
  }
}

/**
 * What reads tensors piece by piece into an array that is used again; one that is here already is one
 * piece, without a place in the tensor.
 *
 * @param most elements of a piece.
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

/** Values of a tensor, one piece of it after the other. */
interface TensorPiece {
  readonly values: Float32Array;
  /** Where they lie in it; absent where they are all of it. */
  readonly from?: number;
}

/**
 * A tensor, piece by piece; one that is here already is one piece.
 *
 * @param piece what each is read into.
 */
export function* piecesOf(
  source: TensorSource,
  piece: Float32Array<ArrayBuffer>,
): Generator<TensorPiece, void> {
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
  /** Fills an array with those that follow. */
  fill(into: Float32Array): void;
  /** Makes sure, at the end, that they were the right ones. */
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

function readPlaced(source: PlacedTensor): Float32Array {
  using placed = openPlaced(source);
  const values = new Float32Array(bytesOfSource(source) / 4);
  placed.fill(values);
  placed.check();
  return values;
}

function openPlaced({ path, at, bytes, sha256, dtype = "F32" }: PlacedTensor): Values {
  const hash = sha256 === undefined ? undefined : createHash("sha256");
  let found = 0;
  const attempt = <T>(read: () => T): T => {
    try {
      return read();
    } catch (cause) {
      throw new Error(
        `Cannot read ${path}: it must be readable by every worker that needs a part of it, received ${
          (cause as Error).message
        }`,
        { cause },
      );
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
      throw new Error(
        `Cannot read ${path}: the ${bytes} bytes from ${at} on must ${
          sha256 === undefined ? "be there" : `have the hash ${sha256}`
        }, received others; it was changed`,
      );
    },
    [Symbol.dispose]: () => file.close(),
  };
}
