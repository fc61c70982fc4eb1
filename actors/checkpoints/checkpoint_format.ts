/**
 * What a checkpoint is: one folder for each saved step, complete or not there at all.
 *
 * `step-00000040/` holds `model.safetensors` and `optimizer.safetensors` (F32, keyed by parameter
 * name, never by worker), `config.json` (what rebuilds model and tokenizer) and `manifest.json`,
 * which is written last and holds the others' hashes. Everything is written to a folder with a
 * temporary name, synced, and renamed.
 *
 * @module
 */

import { ELEMENTS_MAX, type StageState } from "../../kernels/mod.ts";

/** Version of the folder's layout. */
export const FORMAT = 1;

/** What a checkpoint's folder holds beside its manifest. */
export const FILES = ["model.safetensors", "optimizer.safetensors", "config.json"] as const;

/** The most bytes of each file: two moments of each parameter, and the headers of the tensors. */
export const BYTES_MAX = {
  "model.safetensors": 4 * ELEMENTS_MAX + 2 ** 27,
  "optimizer.safetensors": 8 * ELEMENTS_MAX + 2 ** 27,
  "config.json": 2 ** 24,
  "manifest.json": 2 ** 16,
} as const;

/** What `manifest.json` holds. */
export interface Manifest {
  /** Version of the layout. */
  readonly format: number;
  /** Optimizer steps done. */
  readonly step: number;
  /** Size and hash of each of the others. */
  readonly files: Readonly<
    Record<typeof FILES[number], { readonly bytes: number; readonly sha256: string }>
  >;
}

/** The sizes of tensors by name. */
export type Shapes = ReadonlyMap<string, readonly number[]>;

/** A checkpoint that was read. */
export interface Checkpoint {
  /** Optimizer steps done. */
  readonly step: number;
  /** Weights and moments. */
  readonly state: StageState;
  /** The sizes of each of them. */
  readonly shapes: { readonly weights: Shapes; readonly moments: Shapes };
  /** What `config.json` holds. */
  readonly config: Readonly<Record<string, unknown>>;
  /** Its folder. */
  readonly path: string;
}
