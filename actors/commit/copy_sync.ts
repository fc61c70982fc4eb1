/**
 * The gradients of one copy of a stage on their way to the sums of all copies.
 *
 * @module
 */

import type { MessageArray, Stage } from "../../kernels/mod.ts";
import {
  openReducer,
  type ReduceAlgorithm,
  type ReduceMessage,
  type Reducer,
} from "./all_reduce/mod.ts";
import { sumsOf } from "./host_sums.ts";

/** How gradients are added. */
export interface ReduceOptions {
  /** `direct` adds in copy order, whatever the chunks; `fast` picks ring or Rabenseifner's;
   * `collective` leaves it to the network. */
  readonly algorithm: ReduceAlgorithm | "fast";
  /** Buckets of a chunk, k. */
  readonly coarsening: number;
  /** Rows of all copies of each stage, where workers share memory. */
  readonly shared: readonly (SharedArrayBuffer | undefined)[];
}

/** A parameter of a stage that has the same values as others. */
export interface TieEnd {
  /** Its name. */
  readonly name: string;
  /** All that are tied, the canonical one first: aliases are not counted in the norm, nor saved. */
  readonly members: readonly { readonly stage: number; readonly name: string }[];
  /** Its place among them. */
  readonly place: number;
}

/** What the copies of a stage must agree on, too. */
export interface SyncOptions extends ReduceOptions {
  /** Copies of each stage. */
  readonly size: number;
  /** For each stage its parameters that are tied. */
  readonly ties: readonly (readonly TieEnd[])[];
  readonly dtype: "f32" | "f16";
}

/** Sends a part of an all-reduce to the worker that holds copy `rank` of a stage. */
export type SendPart = (stage: number, rank: number, part: ReduceMessage) => void;

/** A copy of a stage, with what its gradients are reached by. */
export interface SyncedCopy {
  readonly stage: number;
  /** Its place in the copy order of the stage. */
  readonly rank: number;
  readonly kernels: Pick<
    Stage,
    | "buckets"
    | "rangeOf"
    | "sums"
    | "readGradients"
    | "writeGradients"
    | "gradientSquares"
    | "beginStep"
    | "stepBucket"
  >;
}

/** The gradient of one parameter of a tie, on its way to another. */
export interface TieTerm {
  /** The parameter to which it is added. */
  readonly name: string;
  readonly values: MessageArray;
  /** Its place among those that are tied; undefined where they are two. */
  readonly from: number | undefined;
}

/** What is still to do for one copy. */
export interface CopySync {
  readonly copy: SyncedCopy;
  readonly ties: readonly TieEnd[];
  /** Ranges of buckets: chunk c covers buckets `first` to `end` − 1. */
  readonly chunks: readonly { readonly first: number; readonly end: number }[];
  readonly reducer: Reducer;
  /** Gradients of tied parameters that came before this copy had its own sums. */
  readonly earlyTies: TieTerm[];
  /** For each tied parameter the gradients of the others that have come, by their places. */
  readonly tieTerms: ReadonlyMap<string, (MessageArray | undefined)[]>;
  /** Chunks whose sums have come since somebody last looked. */
  readonly summed: number[];
  /** Whether all copies have been told to add. */
  isReducing: boolean;
  /** Chunks that have been started, and those whose sums are there. */
  started: number;
  complete: number;
  tiesMissing: number;
  /** Buckets that may be stepped. */
  readonly due: number[];
}

/** Opens the all-reduce of one copy for one step. */
export function openCopySync(
  copy: SyncedCopy,
  { coarsening, size, algorithm, dtype, shared, ties }: SyncOptions,
  send: SendPart,
): CopySync {
  const { stage, rank, kernels } = copy, { buckets } = kernels, summed: number[] = [];
  const chunks = Array.from({ length: Math.ceil(buckets.length / coarsening) }, (_, c) => ({
    first: c * coarsening,
    end: Math.min((c + 1) * coarsening, buckets.length),
  }));
  const reducer = openReducer({
    rank,
    size,
    algorithm,
    dtype,
    shared: shared[stage],
    sums: kernels.sums,
    chunks: chunks.map(({ first, end }) => {
      const { offset } = buckets[first]!, last = buckets[end - 1]!;
      return { offset, length: last.offset + last.length - offset };
    }),
    read: (offset, length) => kernels.readGradients(offset, length),
    write: (offset, values) => kernels.writeGradients(offset, values),
    send: (to, part) => send(stage, to, part),
    onComplete: (chunk) => void summed.push(chunk),
  });
  return {
    copy,
    ties: ties[stage]!,
    chunks,
    reducer,
    earlyTies: [],
    tieTerms: new Map(
      ties[stage]!.map(({ name, members }) => [name, members.map(() => undefined)]),
    ),
    summed,
    isReducing: false,
    started: 0,
    complete: 0,
    tiesMissing: ties[stage]!.length,
    due: [],
  };
}

/** Starts the next chunk, unless `limit` have been started or there is none. */
export async function startChunk(sync: CopySync, limit = Infinity): Promise<boolean> {
  if (sync.started >= Math.min(limit, sync.chunks.length)) return false;
  await sync.reducer.start(sync.started++);
  return true;
}

/** A chunk has its sums: its buckets may be stepped. */
export function offerChunk({ chunks, due }: CopySync, chunk: number): void {
  const { first, end } = chunks[chunk]!;
  for (let bucket = first; bucket < end; bucket++) due.push(bucket);
}

/**
 * Keeps the gradient of another parameter of a tie. When those of all have come, they are added, in
 * the order that all have in common.
 *
 * @returns whether it was the last.
 */
export async function takeTie(
  { copy: { kernels }, ties, tieTerms }: CopySync,
  { name, values, from }: TieTerm,
): Promise<boolean> {
  const { place } = ties.find((tie) => tie.name === name)!, terms = tieTerms.get(name)!;
  terms[from ?? 1 - place] = values;
  if (terms.some((term, i) => !term && i !== place)) return false;
  await sumsOf(kernels).add(kernels.rangeOf(name).offset, terms);
  return true;
}

/** Sums of squares of a copy's gradients, each parameter once. */
export async function squaresOf({ copy: { kernels }, ties }: CopySync) {
  const aliases = new Set(ties.filter(({ place }) => place > 0).map(({ name }) => name));
  return [...await kernels.gradientSquares()].filter(([name]) => !aliases.has(name));
}
