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

import type { MessageArray, Stage } from "../../kernels/internal.ts";
import { analyze, type ListedSchedule, type Schedule } from "../../schedules/mod.ts";
import { parts } from "../../schedules/internal.ts";
import {
  openReducer,
  type ReduceAlgorithm,
  type ReduceMessage,
  type Reducer,
  sumsOf,
} from "./all_reduce.ts";
import type { GradientSquares } from "./commit.ts";

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
interface SyncOptions extends ReduceOptions {
  /** Copies of each stage. */
  readonly size: number;
  /** For each stage its parameters that are tied. */
  readonly ties: readonly (readonly TieEnd[])[];
  readonly dtype: "f32" | "f16";
}

/** Sends a part of an all-reduce to the worker that holds copy `rank` of a stage. */
type SendPart = (stage: number, rank: number, part: ReduceMessage) => void;

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
interface TieTerm {
  /** The parameter to which it is added. */
  readonly name: string;
  readonly values: MessageArray;
  /** Its place among those that are tied; undefined where they are two. */
  readonly from: number | undefined;
}

/** What is still to do for one copy. */
interface CopySync {
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
function openCopySync(
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
async function startChunk(sync: CopySync, limit = Infinity): Promise<boolean> {
  if (sync.started >= Math.min(limit, sync.chunks.length)) return false;
  await sync.reducer.start(sync.started++);
  return true;
}

/** A chunk has its sums: its buckets may be stepped. */
function offerChunk({ chunks, due }: CopySync, chunk: number): void {
  const { first, end } = chunks[chunk]!;
  for (let bucket = first; bucket < end; bucket++) due.push(bucket);
}

/**
 * Keeps the gradient of another parameter of a tie. When those of all have come, they are added, in
 * the order that all have in common.
 *
 * @returns whether it was the last.
 */
async function takeTie(
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
async function squaresOf({ copy: { kernels }, ties }: CopySync) {
  const aliases = new Set(ties.filter(({ place }) => place > 0).map(({ name }) => name));
  return [...await kernels.gradientSquares()].filter(([name]) => !aliases.has(name));
}

/**
 * When the all-reduce of a stage starts (Chimera, section 3.2): after the last backward of all
 * stages, after the last backward of this stage, or the latter only where the workers have idle
 * time before their own end, so that it does not keep them from computing.
 */
export type SyncStrategy = "end" | "eager" | "eager-opt";

/**
 * The stages whose all-reduce starts after their own last backward, in place of the step's.
 *
 * With `eager-opt` these are the stages after whose last backward each of their workers has idle
 * time before its own end: on the two middle workers of Chimera there is none, and there an early
 * all-reduce would only get in the way.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { createSchedule } from "@troupe/troupe/schedules";
 *
 * const chimera = createSchedule("chimera", { workers: 4, microBatches: 4 });
 * assert.deepEqual(eagerStages(chimera, "end"), []);
 * assert.deepEqual(eagerStages(chimera, "eager"), [0, 1, 2, 3]);
 * assert.deepEqual(eagerStages(chimera, "eager-opt"), [3]);
 * ```
 */
export function eagerStages(schedule: Schedule, sync: SyncStrategy): number[] {
  const stages = Array.from({ length: schedule.stages }, (_, stage) => stage);
  if (sync === "end") return [];
  if (sync === "eager") return stages;
  const { schedule: listed, execution: { timeline: { starts, ends } } } = analyze(schedule);
  return stages.filter((stage) =>
    listed.placement.every((held, worker) =>
      held.every((one) =>
        one.stage !== stage ||
        idleAfter(listed, worker, stage, starts[worker]!, ends[worker]!) > 0
      )
    )
  );
}

/** Idle time of a worker from a stage's last backward to the worker's last action. */
function idleAfter(
  { lists }: ListedSchedule,
  worker: number,
  stage: number,
  starts: Float64Array,
  ends: Float64Array,
): number {
  const last = [...lists[worker]!].findLastIndex((action) =>
    parts(action).some((part) => part.stage === stage && part.kind !== "F")
  );
  let idle = 0;
  for (let i = last + 1; i < starts.length; i++) idle += starts[i]! - ends[i - 1]!;
  return idle;
}

/** Chunks of one stage copy that are under way at a time. */
export const CHUNKS_UNDER_WAY = 2;

/** What a synchronisation sends, and whom it tells. */
interface SyncPorts {
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
