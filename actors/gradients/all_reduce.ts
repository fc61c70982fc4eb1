/**
 * The all-reduce of one copy of a stage, chunk by chunk, by the exchanges of an algorithm.
 *
 * [Note: all or nothing] The host reads the gradients once, at the start, and writes them once, at the
 * end. Until then they do not change, so an aborted step leaves no partial sums. A device adds in place:
 * after an aborted step the gradients must be zeroed.
 *
 * @module
 */

import { assertInput, refusal } from "../../kernels/internal.ts";
import type { GradientSums, Stage } from "../../kernels/internal.ts";
import {
  chooseFast,
  collectiveExchanges,
  directExchanges,
  type Exchange,
  type GradientArray,
  rabenseifnerExchanges,
  type RankExchanges,
  type ReduceAlgorithm,
  type ReduceMessage,
  type ReducerOptions,
  ringExchanges,
  sliceBorder,
  type SliceRange,
} from "./algorithms.ts";

/** Access to the gradients of a stage. */
type Gradients = Pick<Stage, "buckets" | "rangeOf" | "readGradients" | "writeGradients">;

/** Returns the adder of the gradients of a stage: its device's, or the host's. */
export function sumsOf(
  kernels: Gradients & Pick<Stage, "sums">,
): Pick<GradientSums, "add" | "collect" | "tie"> {
  return kernels.sums ?? new HostSums(kernels);
}

/** Adds gradients on the host. */
class HostSums implements Pick<GradientSums, "add" | "collect" | "tie"> {
  #collected = new Float32Array();

  constructor(private readonly kernels: Gradients) {}

  async add(offset: number, terms: Parameters<GradientSums["add"]>[1]): Promise<void> {
    const { length } = terms.find((term) => term)!;
    const own = await this.kernels.readGradients(offset, length);
    addLeftToRight(own, terms.map((term) => term ?? own));
    this.kernels.writeGradients(offset, own);
  }

  async collect(rank: number, count: number): Promise<void> {
    const length = this.kernels.buckets.reduce((sum, bucket) => sum + bucket.length, 0);
    const own = await this.kernels.readGradients(0, length);
    if (rank === 0) this.#collected = new Float32Array(own);
    else addInto(this.#collected, own);
    if (rank < count - 1) return;
    own.set(this.#collected);
    this.kernels.writeGradients(0, own);
  }

  async tie(names: Parameters<GradientSums["tie"]>[0]): Promise<void> {
    const kernels = this.kernels, ranges = names.map((name) => kernels.rangeOf(name));
    const all = await Promise.all(
      ranges.map(({ offset, length }) => kernels.readGradients(offset, length)),
    );
    const [sum] = all;
    addLeftToRight(sum!, all);
    for (const { offset } of ranges) kernels.writeGradients(offset, sum!);
  }
}

/** Values in any memory. */
type Values = Float32Array | Float16Array;

function addInto(sums: Float32Array, values: Values): void {
  for (let i = 0; i < sums.length; i++) sums[i]! += values[i]!;
}

/** Adds arrays of one length left to right in f32; `into`, which may be one of them, rounds once. */
function addLeftToRight(into: Values, all: readonly Values[]): void {
  const [first, second] = all;
  if (all.length === 2) {
    // Without memory for sums. A sum of two in f64 rounds to the same bits as one in f32.
    for (let i = 0; i < into.length; i++) into[i] = first![i]! + second![i]!;
    return;
  }
  const sums = new Float32Array(first!);
  for (const values of all.slice(1)) addInto(sums, values);
  into.set(sums);
}

/** The arrays of each type of gradients. */
const ARRAYS = { f32: Float32Array, f16: Float16Array } as const;

/** The values of a chunk in one rank. Offsets are counted from its beginning. */
interface ChunkValues {
  /**
   * Returns the values of a range in an array to be sent; undefined if all ranks share memory.
   *
   * @param isNext True if the next call wants the same values.
   */
  take(
    start: number,
    end: number,
    isNext: boolean,
  ): GradientArray | undefined | Promise<GradientArray>;
  /** Adds values left to right; undefined means the values of this rank. */
  add(start: number, end: number, terms: readonly (Values | undefined)[]): Promise<void> | void;
  /** Replaces values by those of another rank. */
  set(start: number, values: Values): void;
  /** Handles the last sum. */
  end(): void;
}

/** Options of one chunk. */
type ChunkOptions = ReducerOptions & {
  readonly chunk: { readonly offset: number; readonly length: number };
};

/** The values of a chunk on the host: in the row of this rank, or in an array that it owns. */
function hostValues({ shared, write, chunk }: ChunkOptions, values: Values): ChunkValues {
  return {
    take: (start, end) => shared ? undefined : values.slice(start, end) as GradientArray,
    add(start, end, terms) {
      const place = values.subarray(start, end);
      addLeftToRight(place, terms.map((term) => term ?? place));
    },
    set: (start, others) => values.set(others, start),
    end: () => write(chunk.offset, values),
  };
}

/**
 * The values of a chunk on a device. For n elements and p ranks, `direct` moves n to the host and
 * 2n(p−1)/p from it on average: for each slice of another rank its values to the host and its sum
 * back, and for the slice of this rank the terms to the device and the sum to the host.
 */
function deviceValues(
  { sums, read, write, chunk: { offset } }: ChunkOptions,
): ChunkValues {
  /** The values of the last message, if the next one wants them, too. */
  let kept: GradientArray | undefined;
  return {
    async take(start, end, isNext) {
      const values = kept ?? await read(offset + start, end - start);
      kept = isNext ? values : undefined;
      return isNext ? values.slice() : values;
    },
    add: (start, end, terms) =>
      end > start ? sums!.add(offset + start, terms as (GradientArray | undefined)[]) : undefined,
    set: (start, values) => write(offset + start, values as GradientArray),
    end() {},
  };
}

/**
 * A chunk in a rank's row of the shared memory.
 *
 * [Note: accesses to rows] Until the message `gather` of rank j, only rank j reads slice j of every
 * row. So rank j may write the sum over its own gradients, and every other rank may copy it to its row
 * afterwards. The messages order the accesses.
 */
function rowOf(
  { size, dtype, chunk: { offset, length } }: ChunkOptions,
  shared: SharedArrayBuffer,
  rank: number,
): Values {
  const start = rank * shared.byteLength / size + offset * ARRAYS[dtype].BYTES_PER_ELEMENT;
  return dtype === "f32"
    ? new Float32Array(shared, start, length)
    : new Float16Array(shared, start, length);
}

const ALGORITHMS: Readonly<Record<ReduceAlgorithm, (rank: number, size: number) => RankExchanges>> =
  {
    direct: directExchanges,
    ring: ringExchanges,
    rabenseifner: rabenseifnerExchanges,
    collective: collectiveExchanges,
  };

/** The title of a message, unique among the messages of a chunk to a rank. */
function title({ phase, from, slice }: Pick<ReduceMessage, "phase" | "from" | "slice">): string {
  return `${phase} of slice ${slice} from rank ${from}`;
}

/** The state of one chunk in one rank. */
class ChunkReduction {
  readonly #options: ChunkOptions;
  readonly #plan: RankExchanges;
  /** The title of each expected message, with the number of its values. */
  readonly #due = new Map<string, number>();
  readonly #arrived = new Set<string>();
  /** Values that have arrived and wait for their exchange. */
  readonly #inbox = new Map<string, Values>();
  #isStarted = false;
  /** True if the sums have been written. */
  isComplete = false;
  /** The number of completed exchanges. */
  #done = 0;
  /** True while a device runs an exchange. */
  #isBusy = false;
  /** The values of this rank, from the start to the end. */
  #values: ChunkValues | undefined;

  constructor(options: ReducerOptions, private readonly chunk: number) {
    this.#options = { ...options, chunk: options.chunks[chunk]! };
    const { algorithm, rank, size, dtype } = options;
    const bytes = options.chunks[chunk]!.length * ARRAYS[dtype].BYTES_PER_ELEMENT;
    this.#plan = ALGORITHMS[algorithm === "fast" ? chooseFast(size, bytes) : algorithm](rank, size);
    for (const exchange of this.#plan.exchanges) {
      if (exchange.kind === "send") continue;
      const [start, end] = this.#elements(exchange);
      for (const from of exchange.from) this.#due.set(this.#title(exchange, from), end - start);
    }
  }

  /** Reads this rank's gradients and sends the first messages. */
  async start(): Promise<void> {
    const isFirst = !this.#isStarted, must = "a chunk must be started once";
    assertInput(isFirst, `start chunk ${this.chunk}`, must, "it again");
    this.#isStarted = true;
    const { size, sums } = this.#options;
    if (size === 1) return this.#complete();
    this.#values = sums
      ? deviceValues(this.#options)
      : hostValues(this.#options, await this.#readOwn());
    await this.#advance();
  }

  async #readOwn(): Promise<Values> {
    const { shared, rank, read, copy, chunk: { offset, length } } = this.#options;
    if (!shared) return this.#checkValues("what is read", await read(offset, length), length);
    const row = rowOf(this.#options, shared, rank);
    await copy(offset, row);
    return row;
  }

  /**
   * Keeps a message, and runs all exchanges that have become possible: synchronously, unless a device
   * adds.
   */
  receive(message: ReduceMessage): Promise<void> | void {
    const { values } = message, key = title(message), length = this.#due.get(key);
    if (length === undefined) {
      throw this.#error(`rank ${this.#options.rank} must wait for the message`, key);
    }
    if (this.#arrived.has(key)) throw this.#error(`${key} must come once`, "it again");
    if (!this.#options.shared) this.#inbox.set(key, this.#checkValues(key, values, length));
    else if (values) {
      throw this.#error(`${key} must leave its values in shared memory`, `${values.length} values`);
    }
    this.#arrived.add(key);
    return this.#advance();
  }

  #advance(): Promise<void> | void {
    const values = this.#values, { exchanges } = this.#plan;
    if (!values || this.#isBusy) return;
    while (this.#done < exchanges.length) {
      const exchange = exchanges[this.#done]!;
      const work = exchange.kind === "send"
        ? this.#send(exchange, exchange.to, values)
        : exchange.from.every((rank) => this.#arrived.has(this.#title(exchange, rank)))
        ? this.#take(exchange, exchange.kind, exchange.from, values)
        : "waits";
      if (work === "waits") return;
      this.#done++;
      if (work) return this.#advanceAfter(work);
    }
    this.#values = undefined;
    values.end();
    this.#complete();
  }

  async #advanceAfter(work: Promise<void>): Promise<void> {
    this.#isBusy = true;
    await work;
    this.#isBusy = false;
    await this.#advance();
  }

  #send(exchange: Exchange, to: number, values: ChunkValues): Promise<void> | void {
    const { rank, send } = this.#options, { phase, first, end } = exchange;
    const next = this.#plan.exchanges[this.#done + 1];
    const isNext = next?.kind === "send" && next.first === first && next.end === end;
    const message = { chunk: this.chunk, phase, from: rank, slice: first };
    const taken = values.take(...this.#elements(exchange), isNext);
    if (taken instanceof Promise) return taken.then((own) => send(to, { ...message, values: own }));
    send(to, taken ? { ...message, values: taken } : message);
  }

  #take(
    exchange: Exchange,
    kind: "sum" | "copy",
    from: readonly number[],
    values: ChunkValues,
  ): Promise<void> | void {
    const { rank } = this.#options, [start, end] = this.#elements(exchange);
    if (kind === "copy") return values.set(start, this.#takeFrom(exchange, from[0]!));
    const copies = [...from, rank].sort((a, b) => a - b);
    const terms = copies.map((copy) => copy === rank ? undefined : this.#takeFrom(exchange, copy));
    return values.add(start, end, terms);
  }

  /** Removes and returns the values of a rank for a range. */
  #takeFrom(exchange: Exchange, from: number): Values {
    const { shared } = this.#options, key = this.#title(exchange, from);
    if (shared) return rowOf(this.#options, shared, from).subarray(...this.#elements(exchange));
    const values = this.#inbox.get(key)!;
    this.#inbox.delete(key);
    return values;
  }

  #complete(): void {
    this.isComplete = true;
    this.#options.onComplete(this.chunk);
  }

  #title({ phase, first }: Exchange, from: number): string {
    return title({ phase, from, slice: first });
  }

  /** Returns the beginning and the end of a range of slices in the chunk. */
  #elements({ first, end }: SliceRange): [start: number, end: number] {
    const { chunk, sums } = this.#options, { slices } = this.#plan;
    const border = (slice: number) => sliceBorder(slice, slices, chunk, this.chunk, sums?.borders);
    return [border(first), border(end)];
  }

  #checkValues(what: string, values: GradientArray | undefined, length: number): GradientArray {
    const { dtype } = this.#options, rule = `${what} must hold ${length} ${dtype} values`;
    if (!(values instanceof ARRAYS[dtype])) {
      throw this.#error(rule, values?.constructor.name ?? "none", TypeError);
    }
    if (values.length !== length) throw this.#error(rule, String(values.length));
    return values;
  }

  #error(must: string, received: string, Kind?: ErrorConstructor): Error {
    return refusal(`reduce chunk ${this.chunk}`, must, received, Kind);
  }
}

export type {
  GradientArray,
  ReduceAlgorithm,
  ReduceMessage,
  ReducePhase,
  ReducerOptions,
} from "./algorithms.ts";

/**
 * Opens one copy's part in the all-reduce of the gradients of a stage (Chimera section 3.2; in
 * chunks, AxoNN section V-C).
 *
 * @throws {RangeError} if an option is out of its range.
 *
 * @example Two copies of a stage add their gradients
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const copies = [new Float32Array([1, 2, 3]), new Float32Array([10, 20, 30])];
 * const network: (() => void)[] = [];
 * const reducers: ReturnType<typeof openReducer>[] = copies.map((gradients, rank) =>
 *   openReducer({
 *     rank,
 *     size: copies.length,
 *     chunks: [{ offset: 0, length: 3 }],
 *     algorithm: "direct",
 *     dtype: "f32",
 *     read: (offset, length) => Promise.resolve(gradients.slice(offset, offset + length)),
 *     copy: async (offset, into) => into.set(gradients.subarray(offset, offset + into.length)),
 *     write: (offset, values) => gradients.set(values, offset),
 *     send: (to, message) => void network.push(() => reducers[to]!.receive(message)),
 *     onComplete: () => {},
 *   })
 * );
 * for (const reducer of reducers) await reducer.start(0);
 * for (const deliver of network) deliver();
 *
 * assert(reducers.every((reducer) => reducer.isComplete(0)));
 * assert.deepEqual(copies[0], new Float32Array([11, 22, 33]));
 * assert.deepEqual(copies[1], copies[0]);
 * ```
 */
export function openReducer(options: ReducerOptions) {
  checkOptions(options);
  const chunks = options.chunks.map((_, chunk) => new ChunkReduction(options, chunk));
  const at = (chunk: number): ChunkReduction => {
    const found = chunks[chunk], received = `a reducer of ${chunks.length} chunks`;
    if (found) return found;
    throw refusal(`reduce chunk ${chunk}`, "the reducer must have it", received);
  };
  return {
    /**
     * Starts a chunk, whose gradients are final in this copy. Chunks may start in any order.
     *
     * @throws {RangeError} (as a rejection) if the chunk does not exist or has been started.
     */
    start: async (chunk: number) => await at(chunk).start(),
    /**
     * Handles a message of another rank; keeps it if its chunk has not started here. If a device adds,
     * the next call must wait for the promise of this call.
     *
     * @throws {RangeError} if the message is not due, has arrived before, or has another length.
     * @throws {TypeError} if its values are of another type.
     */
    receive: (message: ReduceMessage) => at(message.chunk).receive(message),
    /** Returns true if the sums of a chunk have been written. */
    isComplete: (chunk: number) => at(chunk).isComplete,
  };
}

/**
 * One copy's part in one all-reduce of all its chunks; each step opens a new one. It depends only on
 * these calls: no clock, no randomness.
 */
export type Reducer = ReturnType<typeof openReducer>;

function checkOptions(
  { rank, size, chunks, algorithm, dtype, shared, sums }: ReducerOptions,
): void {
  const ensure = (is: boolean, must: string, received: unknown) =>
    assertInput(is, "open a reducer", must, received);
  const isCount = (value: number) => Number.isSafeInteger(value) && value >= 0;
  ensure(isCount(size) && size > 0, "size must be a positive integer", size);
  ensure(isCount(rank) && rank < size, `rank must be an integer from 0 to ${size - 1}`, rank);
  let end = 0;
  for (const { offset, length } of chunks.toSorted((a, b) => a.offset - b.offset)) {
    const areCounts = isCount(offset) && isCount(length), isAfter = length === 0 || offset >= end;
    const must = "offset and length of a chunk must be integers from 0";
    ensure(areCounts, must, `${offset} and ${length}`);
    ensure(isAfter, `a chunk must begin after the one before it, at ${end} or later`, offset);
    end = Math.max(end, offset + length);
  }
  const isCut = (at: number) => !sums || sums.borders.includes(at);
  for (const { offset, length } of chunks) {
    const isWhole = isCut(offset) && isCut(offset + length), received = `${offset} and ${length}`;
    ensure(isWhole, "a chunk that a device adds must be whole parameters", received);
  }
  if (!shared) return;
  ensure(!sums, "memory must not be shared where a device adds", "both");
  const isDirect = algorithm === "direct";
  ensure(isDirect, "the algorithm must be direct where memory is shared", algorithm);
  const rowBytes = shared.byteLength / size, elementBytes = ARRAYS[dtype].BYTES_PER_ELEMENT;
  const holds = rowBytes % elementBytes === 0 && rowBytes >= end * elementBytes;
  const must = `shared memory must hold ${size} equal rows of at least ${end} ${dtype} values`;
  ensure(holds, must, `${shared.byteLength} bytes`);
}
