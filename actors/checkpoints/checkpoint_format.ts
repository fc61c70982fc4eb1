/**
 * What a checkpoint is: one folder for each saved step, complete or not there at all.
 *
 * `step-00000040/` holds `model.safetensors` and `optimizer.safetensors` (F32, keyed by parameter
 * name, never by worker), `config.json` (what rebuilds model and tokenizer) and `manifest.json`,
 * which is written last and holds the others' hashes. Everything is written to a folder with a
 * temporary name, synced, and renamed.
 *
 * In format 2 the tensors lie in shards, one for each worker that wrote some, named and indexed as
 * Hugging Face does it: `model-00001-of-00002.safetensors`, `model.safetensors.index.json`.
 *
 * @module
 */

import { ELEMENTS_MAX, type StateOf } from "../../kernels/mod.ts";

/** Version of the folder's layout: one file of each kind of tensors. */
export const FORMAT = 1;

/** Version of the layout with shards. */
export const SHARDED_FORMAT = 2;

/** What a file of tensors holds: weights, or moments. */
export type FileKind = "model" | "optimizer";

/** The files of tensors, or of what lies in shards. */
export const KINDS: readonly FileKind[] = ["model", "optimizer"];

/** The most bytes of all files of a kind: two moments of each parameter, and the tensors' headers. */
export const TENSOR_BYTES_MAX: Readonly<Record<FileKind, number>> = {
  model: 4 * ELEMENTS_MAX + 2 ** 27,
  optimizer: 8 * ELEMENTS_MAX + 2 ** 27,
};

/** The most bytes of the other files. */
export const BYTES_MAX = {
  "config.json": 2 ** 24,
  "manifest.json": 2 ** 20,
  index: 2 ** 25,
} as const;

/** The file of all tensors of a kind. */
export const fileName = (kind: FileKind): string => `${kind}.safetensors`;

/** The file that says which shard each tensor is in. */
export const indexName = (kind: FileKind): string => `${fileName(kind)}.index.json`;

/** The file of the `nth` of `count` shards, counted from 1. */
export function shardName(kind: FileKind, nth: number, count: number): string {
  const [n, all] = [nth, count].map((number) => String(number).padStart(5, "0"));
  return `${kind}-${n}-of-${all}.safetensors`;
}

/** The names of all shards of a kind. */
export const shardNames = (kind: FileKind, count: number): string[] =>
  Array.from({ length: count }, (_, i) => shardName(kind, i + 1, count));

/** What a manifest says of a file. */
export interface ManifestEntry {
  /** Its size. */
  readonly bytes: number;
  /** SHA-256 of its bytes, in hexadecimal. */
  readonly sha256: string;
}

/** What `manifest.json` holds. */
export interface Manifest {
  /** Version of the layout. */
  readonly format: number;
  /** Optimizer steps done. */
  readonly step: number;
  /** Each of the others. */
  readonly files: Readonly<Record<string, ManifestEntry>>;
}

/** The sizes of tensors by name. */
export type Shapes = ReadonlyMap<string, readonly number[]>;

/** A checkpoint that was read, or whose tensors were looked for. */
export interface Checkpoint<T = Float32Array> {
  /** Optimizer steps done. */
  readonly step: number;
  /** Weights and moments. */
  readonly state: StateOf<T>;
  /** The sizes of each of them. */
  readonly shapes: { readonly weights: Shapes; readonly moments: Shapes };
  /** What `config.json` holds. */
  readonly config: Readonly<Record<string, unknown>>;
  /** Its folder. */
  readonly path: string;
}
