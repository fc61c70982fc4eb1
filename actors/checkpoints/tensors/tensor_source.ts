/**
 * Where tensors come from: who needs one gets its values by itself, so that nobody else holds them.
 *
 * @module
 */

import { createHash } from "node:crypto";
import {
  elementCount,
  initialValues,
  type ParameterSpec,
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

/** A tensor that lies in a file, in F32. */
export interface PlacedTensor {
  /** Which source it is. */
  readonly kind: "placed";
  /** The file. */
  readonly path: string;
  /** Where its bytes begin. */
  readonly at: number;
  /** How many there are. */
  readonly bytes: number;
  /**
   * SHA-256 of them, in hexadecimal: whoever reads them gets what was looked at before. Absent where
   * the run has written them itself, on this host.
   */
  readonly sha256?: string | undefined;
}

/** A tensor: its values, or where they come from. */
export type TensorSource = Float32Array | DrawnTensor | PlacedTensor;

/** Bytes of a tensor. */
export function bytesOfSource(source: TensorSource): number {
  if (source instanceof Float32Array) return source.byteLength;
  return source.kind === "placed" ? source.bytes : 4 * elementCount(source.spec.shape);
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
 * Gives the tensors of a state to whoever needs them, one after the other; those with one source are
 * read once. No more than one is in memory.
 */
export function eachTensor(
  { weights, moments }: StateOf<TensorSource>,
  take: (name: string, values: Float32Array) => void,
): void {
  const names = new Map<TensorSource, string[]>();
  for (const [name, source] of [...weights, ...moments]) {
    names.set(source, [...names.get(source) ?? [], name]);
  }
  for (const [source, same] of names) {
    const values = readTensor(source);
    for (const name of same) take(name, values);
  }
}

/** The values of a state. */
export function readState({ weights, moments }: StateOf<TensorSource>): StageState {
  return { weights: readTensors(weights), moments: readTensors(moments) };
}

function readPlaced({ path, at, bytes, sha256 }: PlacedTensor): Float32Array {
  const values = new Float32Array(bytes / 4), into = new Uint8Array(values.buffer);
  let filled = 0;
  try {
    using file = Deno.openSync(path);
    file.seekSync(at, Deno.SeekMode.Start);
    for (let read; filled < bytes && (read = file.readSync(into.subarray(filled))) !== null;) {
      filled += read;
    }
  } catch (cause) {
    throw new Error(
      `Cannot read ${path}: it must be readable by every worker that needs a part of it, received ${
        (cause as Error).message
      }`,
      { cause },
    );
  }
  if (sha256 === undefined && filled === bytes) return values;
  if (createHash("sha256").update(into.subarray(0, filled)).digest("hex") === sha256) return values;
  throw new Error(
    `Cannot read ${path}: the ${bytes} bytes from ${at} on must ${
      sha256 === undefined ? "be there" : `have the hash ${sha256}`
    }, received others; it was changed`,
  );
}
