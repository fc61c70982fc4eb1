/**
 * The end of a step on one worker: the all-reduce of its gradients in chunks, overlapped with the
 * optimizer in buckets (AxoNN, section V-C).
 *
 * [Note: overlap] A chunk is k buckets. Two chunks are under way at a time: as one completes, the
 * next is sent, and then the buckets of the completed one are stepped, one for each message that
 * the worker sends to itself. What arrives meanwhile stands before the next such message, so sums
 * go on between any two buckets.
 *
 * @module
 */

import type { MessageArray } from "../../kernels/mod.ts";
import {
  openReducer,
  type ReduceAlgorithm,
  type ReduceMessage,
  type Reducer,
} from "./all_reduce/mod.ts";
import type { PeerMessage } from "../pipeline/protocol.ts";
import type { OpenCopy } from "../pipeline/stage_copies.ts";

/** Chunks of one stage copy that are under way at a time. */
export const CHUNKS_UNDER_WAY = 2;

/** How gradients are added. */
export interface ReduceOptions {
  /** `direct` adds in copy order, whatever the chunks; `fast` picks ring or Rabenseifner's. */
  readonly algorithm: ReduceAlgorithm | "fast";
  /** Buckets of a chunk, k. */
  readonly coarsening: number;
  /** Rows of all copies of each stage, where workers share memory. */
  readonly shared: readonly (SharedArrayBuffer | undefined)[];
}

/** A parameter of a stage that has the same values as one of another. */
export interface TieEnd {
  /** Its name. */
  readonly name: string;
  /** Whether it is the alias: not counted in the norm, not saved. */
  readonly isAlias: boolean;
  /** The other parameter. */
  readonly other: { readonly stage: number; readonly name: string };
}

/** What the closing sends, and whom it tells. */
export interface ClosingPorts {
  /** To the worker that holds copy `rank` of a stage; this one included. */
  send(stage: number, rank: number, message: PeerMessage, values: MessageArray | undefined): void;
  /** A bucket can be stepped: {@linkcode Closing.stepBucket} wants to be called in a later step. */
  wake(): void;
  /** Every copy has its sums. */
  reduced(squares: ReadonlyMap<string, number>): void;
  /** Every bucket has been stepped. */
  stepped(): void;
}

/** One end of a step. */
export interface Closing {
  /** Starts the all-reduce of these stages. */
  reduce(stages: readonly number[]): Promise<void>;
  /** Handles a part of an all-reduce. */
  receive(stage: number, rank: number, part: ReduceMessage): Promise<void>;
  /** Handles the gradient of the other end of a tie. */
  receiveTie(stage: number, rank: number, name: string, values: MessageArray): Promise<void>;
  /** Lets the optimizer step every bucket that has its sums. */
  commit(update: number, learningRate: number, gradientScale: number): void;
  /** Steps one bucket. */
  stepBucket(): Promise<void>;
}

/** What is still to do for one copy. */
interface CopyState {
  readonly copy: OpenCopy;
  readonly ties: readonly TieEnd[];
  /** Ranges of buckets: chunk c covers buckets `first` to `end` − 1. */
  readonly chunks: readonly { readonly first: number; readonly end: number }[];
  readonly reducer: Reducer;
  /** Gradients of the other ends of ties that came before this copy had its sums. */
  readonly tieGradients: Map<string, MessageArray>;
  /** Chunks whose sums have come since the closing last looked. */
  readonly news: number[];
  started: number;
  complete: number;
  tiesMissing: number;
  /** Buckets whose sums are there. */
  readonly due: number[];
}

/** Begins the end of a step. */
export function openClosing(
  round: number,
  copies: readonly OpenCopy[],
  options: ReduceOptions & {
    /** Copies of each stage. */
    readonly size: number;
    /** For each stage its ends of ties. */
    readonly ties: readonly (readonly TieEnd[])[];
    readonly dtype: "f32" | "f16";
  },
  ports: ClosingPorts,
): Closing {
  const squares = new Map<string, number>();
  let copiesMissing = copies.length, isCommitted = false, isAwake = false;
  let bucketsMissing = copies.reduce((sum, { kernels }) => sum + kernels.buckets.length, 0);

  const states = copies.map((copy): CopyState => {
    const { stage, rank, kernels: { buckets } } = copy, ties = options.ties[stage]!;
    const { coarsening, size, algorithm, dtype } = options, shared = options.shared[stage];
    const news: number[] = [];
    const chunks = Array.from({ length: Math.ceil(buckets.length / coarsening) }, (_, c) => ({
      first: c * coarsening,
      end: Math.min((c + 1) * coarsening, buckets.length),
    }));
    const reducer = openReducer({
      rank,
      size,
      algorithm,
      dtype,
      ...shared && { shared },
      chunks: chunks.map(({ first, end }) => {
        const { offset } = buckets[first]!, last = buckets[end - 1]!;
        return { offset, length: last.offset + last.length - offset };
      }),
      read: (offset, length) => copy.kernels.readGradients(offset, length),
      write: (offset, values) => copy.kernels.writeGradients(offset, values),
      send: (to, part) =>
        ports.send(stage, to, { type: "ReducePart", round, stage, rank: to, part }, part.values),
      onComplete: (chunk) => void news.push(chunk),
    });
    return {
      copy,
      ties,
      chunks,
      reducer,
      tieGradients: new Map(),
      news,
      started: 0,
      complete: 0,
      tiesMissing: ties.length,
      due: [],
    };
  });
  const stateOf = (stage: number, rank: number) => {
    const state = states.find(({ copy }) => copy.stage === stage && copy.rank === rank);
    if (state) return state;
    throw new RangeError(`Cannot reduce: copy ${rank} of stage ${stage} must be held here`);
  };

  const wake = () => {
    if (isAwake || !isCommitted || states.every(({ due }) => due.length === 0)) return;
    isAwake = true;
    ports.wake();
  };

  /** Buckets may be stepped when their sums are there, and those of the stage's ties. */
  const offer = (state: CopyState, chunk: number) => {
    const { first, end } = state.chunks[chunk]!;
    for (let bucket = first; bucket < end; bucket++) state.due.push(bucket);
    wake();
  };

  /** Goes on with a copy whose chunks have completed. */
  const goOn = async (state: CopyState) => {
    for (let chunk = state.news.shift(); chunk !== undefined; chunk = state.news.shift()) {
      state.complete++;
      if (state.started < state.chunks.length) await state.reducer.start(state.started++);
      if (state.ties.length === 0) offer(state, chunk);
      if (state.complete === state.chunks.length) await sumsComplete(state);
    }
  };

  const sumsComplete = async (state: CopyState) => {
    const { copy: { kernels, rank }, ties, tieGradients } = state;
    for (const { name, other } of ties) {
      const { offset, length } = kernels.rangeOf(name);
      const values = await kernels.readGradients(offset, length);
      const message = { type: "TieGradient", round, rank, ...other, values } as const;
      ports.send(other.stage, rank, message, values);
    }
    for (const [name, values] of tieGradients) await addTie(state, name, values);
    if (ties.length === 0) await reduced(state);
  };

  const addTie = async (state: CopyState, name: string, values: MessageArray) => {
    const { kernels } = state.copy, { offset, length } = kernels.rangeOf(name);
    const own = await kernels.readGradients(offset, length);
    // Both ends add the same two numbers, and a sum of two does not depend on their order.
    for (let i = 0; i < length; i++) own[i]! += values[i]!;
    kernels.writeGradients(offset, own);
    if (--state.tiesMissing > 0) return;
    state.chunks.forEach((_, chunk) => offer(state, chunk));
    await reduced(state);
  };

  const reduced = async ({ copy: { rank, kernels }, ties }: CopyState) => {
    if (rank === 0) {
      const aliases = new Set(ties.filter((tie) => tie.isAlias).map(({ name }) => name));
      for (const [name, sum] of await kernels.gradientSquares()) {
        if (!aliases.has(name)) squares.set(name, sum);
      }
    }
    if (--copiesMissing === 0) ports.reduced(squares);
  };

  return {
    async reduce(stages) {
      for (const state of states.filter(({ copy }) => stages.includes(copy.stage))) {
        if (state.chunks.length === 0) await sumsComplete(state);
        while (state.started < Math.min(CHUNKS_UNDER_WAY, state.chunks.length)) {
          await state.reducer.start(state.started++);
        }
        await goOn(state);
      }
    },
    async receive(stage, rank, part) {
      const state = stateOf(stage, rank);
      state.reducer.receive(part);
      await goOn(state);
    },
    async receiveTie(stage, rank, name, values) {
      const state = stateOf(stage, rank);
      if (state.complete === state.chunks.length) return await addTie(state, name, values);
      state.tieGradients.set(name, values);
    },
    commit(update, learningRate, gradientScale) {
      isCommitted = true;
      for (const { kernels } of copies) kernels.beginStep(update, learningRate, gradientScale);
      if (bucketsMissing === 0) return ports.stepped();
      wake();
    },
    async stepBucket() {
      isAwake = false;
      const state = states.find(({ due }) => due.length > 0)!;
      await state.copy.kernels.stepBucket(state.due.shift()!);
      if (--bucketsMissing === 0) return ports.stepped();
      wake();
    },
  };
}
