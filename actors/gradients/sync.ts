/**
 * Gradient synchronization on one worker: the all-reduce of a step's gradients in chunks, overlapped
 * with the optimizer in buckets (AxoNN, section V-C).
 *
 * [Note: overlap] A chunk is k buckets. Two chunks are in transit at a time: when one completes, the
 * next is sent, and then the buckets of the completed one are stepped, one for each message that
 * the worker sends to itself. Messages that arrive meanwhile come before the next such message, so
 * sums continue between any two buckets.
 *
 * @module
 */

import type { MessageArray } from "../../kernels/mod.ts";
import type { Stage } from "../../kernels/internal.ts";
import { analyze, type Schedule } from "../../schedules/mod.ts";
import { parts } from "../../schedules/internal.ts";
import {
  openReducer,
  type ReduceAlgorithm,
  type ReduceMessage,
  type Reducer,
  sumsOf,
} from "./all_reduce.ts";
import { type CopyDigest, digestOfStage, type GradientSquares } from "./commit.ts";

/** Options of the all-reduce. */
export interface ReduceOptions {
  /**
   * `direct` adds in copy order, whatever the chunks; `fast` picks ring or Rabenseifner's; with
   * `collective` the network adds.
   */
  readonly algorithm: ReduceAlgorithm | "fast";
  /** Buckets of a chunk, k. */
  readonly coarsening: number;
  /** Rows of all copies of each stage, if workers share memory. */
  readonly shared: readonly (SharedArrayBuffer | undefined)[];
}

/** A parameter of a stage that has the same values as others. */
export interface TieEnd {
  /** Its name. */
  readonly name: string;
  /** All tied parameters, the canonical one first: aliases are neither counted in the norm nor saved. */
  readonly members: readonly { readonly stage: number; readonly name: string }[];
  /** Its place among them. */
  readonly place: number;
}

/** Options of a synchronization, equal on all copies of a stage. */
interface SyncOptions extends ReduceOptions {
  /** Copies of each stage. */
  readonly size: number;
  /** For each stage, its tied parameters. */
  readonly ties: readonly (readonly TieEnd[])[];
  readonly dtype: "f32" | "f16";
  /** True to report the digests of all sums. */
  readonly digests?: boolean | undefined;
  /** The stages whose sums a buddy gets; its mirror has a rank after those of the copies. */
  readonly mirrored?: ReadonlySet<number> | undefined;
}

/** A copy of a stage, with access to its gradients. */
export interface SyncedCopy {
  readonly stage: number;
  /** Its place in the copy order of the stage. */
  readonly rank: number;
  readonly kernels: Omit<Stage, "inFlight" | "gradients">;
}

/** The gradient of a tied parameter, in transit to another one of its tie. */
interface TieTerm {
  /** The parameter to which it is added. */
  readonly name: string;
  readonly values: MessageArray;
  /** Its place among the tied parameters; undefined if there are two. */
  readonly from: number | undefined;
}

/** The all-reduce of one copy in one step. */
class CopySync {
  readonly ties: readonly TieEnd[];
  readonly reducer: Reducer;
  /** Chunks whose sums have arrived and were not handled yet. */
  readonly summed: number[] = [];
  /** Buckets that may be stepped. */
  readonly due: number[] = [];
  /** True once all copies received the request to add. */
  isReducing = false;
  /** Chunks that were started, and chunks that have their sums. */
  #started = 0;
  complete = 0;
  #tiesMissing: number;
  /** Gradients of tied parameters that arrived before this copy had its own sums. */
  readonly earlyTies: TieTerm[] = [];
  /** For each tied parameter, the gradients of the others that have arrived, by their places. */
  readonly #tieTerms: ReadonlyMap<string, (MessageArray | undefined)[]>;
  /** Chunk c covers the buckets `first` to `end` − 1. */
  readonly #chunks: readonly { readonly first: number; readonly end: number }[];

  constructor(readonly copy: SyncedCopy, options: SyncOptions, send: SyncPorts["sendPart"]) {
    const { stage, rank, kernels } = copy, { buckets } = kernels, { coarsening, shared } = options;
    // The sums that a mirror gets have all terms.
    this.ties = rank < options.size ? options.ties[stage]! : [];
    this.#tiesMissing = this.ties.length;
    this.#tieTerms = new Map(
      this.ties.map(({ name, members }) => [name, members.map(() => undefined)]),
    );
    this.#chunks = Array.from({ length: Math.ceil(buckets.length / coarsening) }, (_, c) => ({
      first: c * coarsening,
      end: Math.min((c + 1) * coarsening, buckets.length),
    }));
    this.reducer = openReducer({
      ...options,
      rank: Math.min(rank, options.size - 1),
      shared: shared[stage],
      sums: kernels.sums,
      chunks: this.#chunks.map(({ first, end }) => {
        const { offset } = buckets[first]!, last = buckets[end - 1]!;
        return { offset, length: last.offset + last.length - offset };
      }),
      read: (offset, length) => kernels.readGradients(offset, length),
      copy: (offset, into) => kernels.copyGradients(offset, into),
      write: (offset, values) => kernels.writeGradients(offset, values),
      send: (to, part) => send(stage, to, part),
      onComplete: (chunk) => void this.summed.push(chunk),
    });
  }

  /** True if every chunk has its sums. */
  get isSummed(): boolean {
    return this.complete === this.#chunks.length;
  }

  /** Starts the next chunk. @returns false if `limit` chunks were started or no chunk is left. */
  async startChunk(limit = Infinity): Promise<boolean> {
    if (this.#started >= Math.min(limit, this.#chunks.length)) return false;
    await this.reducer.start(this.#started++);
    return true;
  }

  /** Lets the buckets of a chunk be stepped. */
  offerChunk(chunk: number): void {
    const { first, end } = this.#chunks[chunk]!;
    for (let bucket = first; bucket < end; bucket++) this.due.push(bucket);
  }

  /**
   * Keeps the gradient of another parameter of a tie. When all have arrived, adds them, in the order
   * that all tied parameters have in common; after the last tie lets all buckets be stepped.
   *
   * @returns true after the last tie.
   */
  async takeTie({ name, values, from }: TieTerm): Promise<boolean> {
    const { kernels } = this.copy, terms = this.#tieTerms.get(name)!;
    const { place } = this.ties.find((tie) => tie.name === name)!;
    terms[from ?? 1 - place] = values;
    if (terms.some((term, i) => !term && i !== place)) return false;
    await sumsOf(kernels).add(kernels.rangeOf(name).offset, terms);
    if (--this.#tiesMissing > 0) return false;
    this.offerAll();
    return true;
  }

  /** Lets all buckets be stepped. */
  offerAll(): void {
    for (const chunk of this.#chunks.keys()) this.offerChunk(chunk);
  }

  /** Sums of squares of the gradients, each tied parameter once. */
  async squares() {
    const aliases = new Set(this.ties.filter(({ place }) => place > 0).map(({ name }) => name));
    return [...await this.copy.kernels.gradientSquares()].filter(([name]) => !aliases.has(name));
  }
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
  /** Idle time of a worker from a stage's last backward to the worker's last action. */
  const idleAfter = (stage: number, worker: number) => {
    const last = [...listed.lists[worker]!].findLastIndex((action) =>
      parts(action).some((part) => part.stage === stage && part.kind !== "F")
    );
    let idle = 0;
    for (let i = last + 1; i < starts[worker]!.length; i++) {
      idle += starts[worker]![i]! - ends[worker]![i - 1]!;
    }
    return idle;
  };
  return stages.filter((stage) =>
    listed.placement.every((held, worker) =>
      held.every((one) => one.stage !== stage || idleAfter(stage, worker) > 0)
    )
  );
}

/** Chunks of one stage copy that are in transit at a time. */
export const CHUNKS_IN_TRANSIT = 2;

/** The messages of a synchronization. */
interface SyncPorts {
  /** Sends a part of an all-reduce to copy `rank` of a stage. */
  readonly sendPart: (stage: number, rank: number, part: ReduceMessage) => void;
  /**
   * Sends the gradient of a tied parameter to copy `rank` of the stage of another one, `name`.
   *
   * @param from its place among the tied parameters; undefined if there are two.
   */
  sendTie(stage: number, rank: number, name: string, values: MessageArray, from?: number): void;
  /** Requests a call of {@linkcode GradientSync.stepBucket} in a later step of the actor. */
  wake(): void;
  /** Sends all sums of a stage to its buddy. */
  sendMirror(stage: number, values: MessageArray): void;
  /** Reports that every copy has its sums. */
  reduced(squares: GradientSquares, digests: readonly CopyDigest[]): void;
}

/** A bucket of the parameters of a stage. */
export interface SteppedBucket {
  readonly stage: number;
  readonly bucket: number;
}

/** Synchronizes the gradients of one step, from the last backward to the last bucket. */
export class GradientSync {
  readonly #copies: readonly CopySync[];
  readonly #squares = new Map<string, number>();
  readonly #digests: CopyDigest[] = [];
  #copiesMissing: number;
  #bucketsMissing: number;
  #isCommitted = false;
  /** True while a wake is in transit. */
  #isAwake = false;

  constructor(
    copies: readonly SyncedCopy[],
    private readonly options: SyncOptions,
    private readonly ports: SyncPorts,
  ) {
    this.#copies = copies.map((copy) => new CopySync(copy, options, ports.sendPart));
    this.#copiesMissing = copies.length;
    this.#bucketsMissing = copies.reduce((sum, { kernels }) => sum + kernels.buckets.length, 0);
  }

  /** True once every bucket was stepped. */
  get isStepped(): boolean {
    return this.#isCommitted && this.#bucketsMissing === 0;
  }

  /** Starts the all-reduce of stages. */
  async reduce(stages: readonly number[]): Promise<void> {
    const own = this.#copies.filter(({ copy }) => copy.rank < this.options.size);
    for (const one of own.filter(({ copy }) => stages.includes(copy.stage))) {
      one.isReducing = true;
      if (one.isSummed) await this.#sumsComplete(one);
      while (await one.startChunk(CHUNKS_IN_TRANSIT));
      await this.#takeSums(one);
    }
  }

  /** Handles a part of an all-reduce. */
  async receive(stage: number, rank: number, part: ReduceMessage): Promise<void> {
    const one = this.#find(stage, rank);
    await one.reducer.receive(part);
    await this.#takeSums(one);
  }

  /** Handles the gradient of another parameter of a tie. */
  async receiveTie(stage: number, rank: number, term: TieTerm): Promise<void> {
    const one = this.#find(stage, rank);
    if (one.isSummed) await this.#tie(one, term);
    else one.earlyTies.push(term);
  }

  /** Handles the sums of a stage that is mirrored here. */
  async receiveMirror(stage: number, values: MessageArray): Promise<void> {
    const one = this.#find(stage, this.options.size);
    if (values.length > 0) one.copy.kernels.writeGradients(0, values);
    one.offerAll();
    this.#wake();
    await this.#reduced(one);
  }

  /** Lets the optimizer step every bucket that has its sums. */
  commit(update: number, learningRate: number, gradientScale: number): void {
    this.#isCommitted = true;
    for (const { copy } of this.#copies) {
      copy.kernels.beginStep(update, learningRate, gradientScale);
    }
    this.#wake();
  }

  /**
   * Gives up the step. The network matches sums by their order only, so the sums of this step that
   * other copies may have started are started here, too, and their results dropped.
   */
  async giveUp(): Promise<void> {
    if (this.options.algorithm !== "collective") return;
    for (const one of this.#copies) {
      while (one.isReducing && await one.startChunk());
    }
  }

  /** Steps one bucket and returns it. */
  async stepBucket(): Promise<SteppedBucket> {
    this.#isAwake = false;
    const stepped = await this.#step();
    this.#wake();
    return stepped;
  }

  /** Steps all remaining buckets; every sum is there. */
  async stepAll(): Promise<void> {
    while (!this.isStepped) await this.#step();
  }

  async #step(): Promise<SteppedBucket> {
    const { copy: { stage, kernels }, due } = this.#copies.find(({ due }) => due.length > 0)!;
    const bucket = due.shift()!;
    await kernels.stepBucket(bucket);
    this.#bucketsMissing--;
    return { stage, bucket };
  }

  #find(stage: number, rank: number): CopySync {
    const found = this.#copies.find(({ copy }) => copy.stage === stage && copy.rank === rank);
    if (found) return found;
    throw new RangeError(`Cannot reduce: copy ${rank} of stage ${stage} must be held here`);
  }

  #wake(): void {
    if (this.#isAwake || !this.#isCommitted) return;
    this.#isAwake = this.#copies.some(({ due }) => due.length > 0);
    if (this.#isAwake) this.ports.wake();
  }

  /** Starts a next chunk of a copy for each that has its sums, and lets its buckets be stepped. */
  async #takeSums(one: CopySync): Promise<void> {
    for (let chunk = one.summed.shift(); chunk !== undefined; chunk = one.summed.shift()) {
      one.complete++;
      await one.startChunk();
      // Buckets of a stage with ties wait for the sums of all ties.
      if (one.ties.length === 0) one.offerChunk(chunk);
      this.#wake();
      if (one.isSummed) await this.#sumsComplete(one);
    }
  }

  async #sumsComplete(one: CopySync): Promise<void> {
    const { copy: { kernels, rank }, ties, earlyTies } = one;
    for (const { name, members, place } of ties) {
      const { offset, length } = kernels.rangeOf(name);
      const from = members.length > 2 ? place : undefined;
      for (const other of members.toSpliced(place, 1)) {
        const values = await kernels.readGradients(offset, length);
        this.ports.sendTie(other.stage, rank, other.name, values, from);
      }
    }
    for (const early of earlyTies) await this.#tie(one, early);
    if (ties.length === 0) await this.#reduced(one);
  }

  async #tie(one: CopySync, term: TieTerm): Promise<void> {
    if (!await one.takeTie(term)) return;
    this.#wake();
    await this.#reduced(one);
  }

  /** Notes that a copy has its sums; the first copy of a stage counts in the norm. */
  async #reduced(one: CopySync): Promise<void> {
    const { copy: { rank, stage, kernels } } = one, { size, digests, mirrored } = this.options;
    if (rank === 0) {
      for (const [name, sum] of await one.squares()) this.#squares.set(name, sum);
      if (mirrored?.has(stage)) {
        const all = kernels.buckets.reduce((sum, { length }) => sum + length, 0);
        const sums = all > 0 ? await kernels.readGradients(0, all) : new Float32Array();
        this.ports.sendMirror(stage, sums);
      }
    }
    if (digests && rank < size) {
      this.#digests.push({ stage, rank, digest: await digestOfStage(kernels, "gradients") });
    }
    if (--this.#copiesMissing === 0) this.ports.reduced(this.#squares, this.#digests);
  }
}
