/**
 * What a module exports as `data`: where the micro-batches of a run come from.
 *
 * @module
 */

import type {
  Batch,
  FileTokenizer,
  KnownTokens,
  Tokenizer,
  TokenizerName,
} from "../../kernels/mod.ts";
import type { Data } from "../run/data/data.ts";

/** How a run cuts its data, and what it says of it. */
export interface DataOptions {
  /** B: samples of a micro-batch. */
  readonly microBatch: number;
  /** N: micro-batches of a step and a replica. */
  readonly microBatches: number;
  /** W: data-parallel replicas. A step has W·N micro-batches. */
  readonly replicas: number;
  /** Steps of the whole run. */
  readonly steps: number;
  /** Tokens of a sample. */
  readonly seq: number;
  /** Number of token ids, where that was given. */
  readonly vocab: number | undefined;
  /** What the tokens of a text are, where that was said. */
  readonly tokenizer: TokenizerName | Tokenizer | FileTokenizer | undefined;
  /** Of the order of the samples. */
  readonly seed: number;
  /**
   * A file that the user named: its path, to be shown, what it holds, read when it is asked for, and
   * of one that may be larger than memory what `openTokenFile` and `openRanges` want to know.
   */
  readonly file: {
    readonly path: string;
    readonly content: Uint8Array;
    readonly known?: KnownTokens | undefined;
  } | undefined;
  /** Told in words of what is fetched. */
  readonly announce: (line: string) => void;
}

/** Data that is open. */
export interface OpenedData {
  /**
   * Micro-batches in global order, from step 1: those of steps already done are skipped, unless they
   * have `from`, which begins anywhere.
   */
  readonly batches: Data;
  /** Micro-batches of so many samples that are never trained on. Default: nothing is held out. */
  heldOut?(microBatch: number): readonly Batch[];
  /** What a model may have to know: `vocab` of tokens, `inputs` and `classes` of samples. */
  readonly sizes?: Readonly<Record<string, number>>;
  /** What turns text into its tokens and back. */
  readonly tokenizer?: Tokenizer | FileTokenizer;
}

/**
 * Data that a module exports by the name `data`, found by a name in a registry or by the module's
 * specifier: `troupe train --data jsr:@you/data`.
 */
export interface DataPart {
  /** What it is called: letters, digits, `.`, `_` and `-`. */
  readonly name: string;
  /** Its version, as people read it. */
  readonly version: string;
  /** SHA-256 of what it reads, in hexadecimal, where that is always the same. */
  readonly sha256?: string;
  /**
   * Opens it for a run.
   *
   * @throws {RangeError} {@linkcode TypeError} when there is too little of it, or not what is asked for.
   */
  open(options: DataOptions): OpenedData | Promise<OpenedData>;
}

/**
 * Gives a data part its types. A package that does not want to import Troupe exports the same record
 * as it is.
 *
 * @example
 * ```ts
 * import { defineData } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * export const data = defineData({
 *   name: "signs",
 *   version: "1.0.0",
 *   open: ({ microBatch }) => ({
 *     sizes: { inputs: 1, classes: 2 },
 *     batches: function* () {
 *       for (let i = 0;; i++) {
 *         const features = new Float32Array(microBatch).fill(i % 2 ? 1 : -1);
 *         yield { features, labels: new Int32Array(microBatch).fill(i % 2) };
 *       }
 *     }(),
 *   }),
 * });
 * assert.equal(data.name, "signs");
 * ```
 */
export function defineData(part: DataPart): DataPart {
  return part;
}
