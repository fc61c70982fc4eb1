/**
 * Gradient synchronisation on one worker: the all-reduce of a step's gradients in chunks, overlapped
 * with the optimizer in buckets (AxoNN, section V-C).
 *
 * [Note: overlap] A chunk is k buckets. Two chunks are under way at a time: as one completes, the
 * next is sent, and then the buckets of the completed one are stepped, one for each message that
 * the worker sends to itself. What arrives meanwhile stands before the next such message, so sums
 * go on between any two buckets.
 *
 * @module
 */

import type { MessageArray } from "../../kernels/mod.ts";
import type { ReduceMessage } from "./all_reduce/mod.ts";
import {
  type CopySync,
  offerChunk,
  openCopySync,
  type SendPart,
  squaresOf,
  startChunk,
  type SyncedCopy,
  type SyncOptions,
  takeTie,
  type TieTerm,
} from "./copy_sync.ts";
import type { GradientSquares } from "./gradient_norm.ts";

/** Chunks of one stage copy that are under way at a time. */
export const CHUNKS_UNDER_WAY = 2;

/** What a synchronisation sends, and whom it tells. */
export interface SyncPorts {
  readonly sendPart: SendPart;
  /**
   * Sends the gradient of a tied parameter to copy `rank` of the stage of another one, `name`.
   *
   * @param from its place among those that are tied; undefined where they are two.
   */
  sendTie(stage: number, rank: number, name: string, values: MessageArray, from?: number): void;
  /** A bucket can be stepped: {@linkcode GradientSync.stepBucket} wants to be called in a later
   * step. */
  wake(): void;
  /** Every copy has its sums. */
  reduced(squares: GradientSquares): void;
}

/** A bucket of the parameters of a stage. */
export interface SteppedBucket {
  readonly stage: number;
  readonly bucket: number;
}

/** The gradients of one step, from the last backward to the last bucket. */
export interface GradientSync {
  /** Starts the all-reduce of these stages. */
  reduce(stages: readonly number[]): Promise<void>;
  /** Handles a part of an all-reduce. */
  receive(stage: number, rank: number, part: ReduceMessage): Promise<void>;
  /** Handles the gradient that another parameter of a tie has sent. */
  receiveTie(
    stage: number,
    rank: number,
    name: string,
    values: MessageArray,
    from?: number,
  ): Promise<void>;
  /** Lets the optimizer step every bucket that has its sums. */
  commit(update: number, learningRate: number, gradientScale: number): void;
  /**
   * The step is given up. The network matches sums by their order alone, so those of this step that
   * other copies may have begun are begun here too, whatever becomes of them.
   */
  giveUp(): Promise<void>;
  /** Steps one bucket. @returns which. */
  stepBucket(): Promise<SteppedBucket>;
  /** Whether every bucket has been stepped. */
  isStepped(): boolean;
}

/** How far it has come. */
interface Sync {
  readonly copies: readonly CopySync[];
  readonly ports: SyncPorts;
  readonly squares: Map<string, number>;
  copiesMissing: number;
  bucketsMissing: number;
  isCommitted: boolean;
  /** Whether a wake is on its way. */
  isAwake: boolean;
}

/** Begins the synchronisation of a step. */
export function openGradientSync(
  copies: readonly SyncedCopy[],
  options: SyncOptions,
  ports: SyncPorts,
): GradientSync {
  const sync: Sync = {
    copies: copies.map((copy) => openCopySync(copy, options, ports.sendPart)),
    ports,
    squares: new Map(),
    copiesMissing: copies.length,
    bucketsMissing: copies.reduce((sum, { kernels }) => sum + kernels.buckets.length, 0),
    isCommitted: false,
    isAwake: false,
  };
  return {
    async reduce(stages) {
      for (const one of sync.copies.filter(({ copy }) => stages.includes(copy.stage))) {
        one.isReducing = true;
        if (one.chunks.length === 0) await sumsComplete(sync, one);
        while (await startChunk(one, CHUNKS_UNDER_WAY));
        await takeSums(sync, one);
      }
    },
    async receive(stage, rank, part) {
      const one = find(sync, stage, rank);
      await one.reducer.receive(part);
      await takeSums(sync, one);
    },
    async receiveTie(stage, rank, name, values, from) {
      const one = find(sync, stage, rank);
      if (one.complete < one.chunks.length) one.earlyTies.push({ name, values, from });
      else await tie(sync, one, { name, values, from });
    },
    commit(update, learningRate, gradientScale) {
      sync.isCommitted = true;
      for (const { kernels } of copies) kernels.beginStep(update, learningRate, gradientScale);
      wake(sync);
    },
    async giveUp() {
      if (options.algorithm !== "collective") return;
      for (const one of sync.copies) {
        while (one.isReducing && await startChunk(one));
      }
    },
    async stepBucket() {
      sync.isAwake = false;
      const { copy, due } = sync.copies.find(({ due }) => due.length > 0)!;
      const bucket = due.shift()!;
      await copy.kernels.stepBucket(bucket);
      sync.bucketsMissing--;
      wake(sync);
      return { stage: copy.stage, bucket };
    },
    isStepped: () => sync.isCommitted && sync.bucketsMissing === 0,
  };
}

function find({ copies }: Sync, stage: number, rank: number): CopySync {
  const found = copies.find(({ copy }) => copy.stage === stage && copy.rank === rank);
  if (found) return found;
  throw new RangeError(`Cannot reduce: copy ${rank} of stage ${stage} must be held here`);
}

function wake(sync: Sync): void {
  if (sync.isAwake || !sync.isCommitted || sync.copies.every(({ due }) => due.length === 0)) return;
  sync.isAwake = true;
  sync.ports.wake();
}

/** The next chunk of a copy starts for each that has its sums, whose buckets may be stepped. */
async function takeSums(sync: Sync, one: CopySync): Promise<void> {
  for (let chunk = one.summed.shift(); chunk !== undefined; chunk = one.summed.shift()) {
    one.complete++;
    await startChunk(one);
    // Those of a stage with ties wait for the sums of all ties.
    if (one.ties.length === 0) offerChunk(one, chunk);
    wake(sync);
    if (one.complete === one.chunks.length) await sumsComplete(sync, one);
  }
}

async function sumsComplete(sync: Sync, one: CopySync): Promise<void> {
  const { copy: { kernels, rank }, ties, earlyTies } = one;
  for (const { name, members, place } of ties) {
    const { offset, length } = kernels.rangeOf(name), from = members.length > 2 ? place : undefined;
    for (const other of members.toSpliced(place, 1)) {
      const values = await kernels.readGradients(offset, length);
      sync.ports.sendTie(other.stage, rank, other.name, values, from);
    }
  }
  for (const early of earlyTies) await tie(sync, one, early);
  if (ties.length === 0) await reduced(sync, one);
}

async function tie(sync: Sync, one: CopySync, term: TieTerm): Promise<void> {
  if (!await takeTie(one, term) || --one.tiesMissing > 0) return;
  for (const chunk of one.chunks.keys()) offerChunk(one, chunk);
  wake(sync);
  await reduced(sync, one);
}

/** A copy has its sums; the first of a stage counts in the norm. */
async function reduced(sync: Sync, one: CopySync): Promise<void> {
  if (one.copy.rank === 0) {
    for (const [name, sum] of await squaresOf(one)) sync.squares.set(name, sum);
  }
  if (--sync.copiesMissing === 0) sync.ports.reduced(sync.squares);
}
