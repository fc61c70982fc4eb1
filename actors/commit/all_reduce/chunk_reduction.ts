/**
 * One chunk on its way: carries out a plan as messages come, in the order of the plan.
 *
 * [Note: one order of sums] What has arrived waits until the plan takes it. A sum of several ranks
 * waits for all of them and is then added in copy order, never in the order of arrival.
 *
 * [Note: all or nothing] The gradients are read once, at the start, and written once, at the end.
 * Until then they are as the backward left them, so a step that is given up leaves no half sums.
 *
 * @module
 */

import { directPlan } from "./direct.ts";
import { chooseFast } from "./fast.ts";
import { rabenseifnerPlan } from "./rabenseifner.ts";
import type { Exchange, ReducePlan, SliceRange } from "./reduce_plan.ts";
import type { GradientArray, ReduceAlgorithm, ReduceMessage, ReducerOptions } from "./reducer.ts";
import { ringPlan } from "./ring.ts";

const PLANS: Readonly<Record<ReduceAlgorithm, (rank: number, size: number) => ReducePlan>> = {
  direct: directPlan,
  ring: ringPlan,
  rabenseifner: rabenseifnerPlan,
};

/** The arrays of each type of gradients. */
export const ARRAYS = { f32: Float32Array, f16: Float16Array } as const;

/** Values that may lie in shared memory. */
type Values = Float32Array | Float16Array;

/** What a message says, in words; no two messages of a chunk say the same to a rank. */
function title({ phase, from, slice }: Pick<ReduceMessage, "phase" | "from" | "slice">): string {
  return `${phase} of slice ${slice} from rank ${from}`;
}

/** Adds arrays of one length left to right in f32; `into`, which may be one of them, rounds once. */
function addLeftToRight(into: Values, [first, ...rest]: readonly Values[]): void {
  const sums = new Float32Array(first!);
  for (const values of rest) {
    for (let i = 0; i < sums.length; i++) sums[i]! += values[i]!;
  }
  into.set(sums);
}

/** The state of one chunk in one rank. */
export class ChunkReduction {
  readonly #options: ReducerOptions;
  readonly #chunk: number;
  readonly #plan: ReducePlan;
  /** The title of every message that comes, with how many values it is about. */
  readonly #due = new Map<string, number>();
  readonly #arrived = new Set<string>();
  /** What has arrived and waits for its turn. */
  readonly #inbox = new Map<string, Values>();
  #isStarted = false;
  #isComplete = false;
  /** Exchanges of the plan that are done. */
  #done = 0;
  /** What this rank holds of the whole chunk, from the start to the end. */
  #values: Values | undefined;

  constructor(options: ReducerOptions, chunk: number) {
    this.#options = options;
    this.#chunk = chunk;
    const { algorithm, rank, size, dtype } = options;
    const bytes = options.chunks[chunk]!.length * ARRAYS[dtype].BYTES_PER_ELEMENT;
    this.#plan = PLANS[algorithm === "fast" ? chooseFast(size, bytes) : algorithm](rank, size);
    for (const exchange of this.#plan.exchanges) {
      if (exchange.kind === "send") continue;
      const [start, end] = this.#elements(exchange);
      for (const from of exchange.from) this.#due.set(this.#title(exchange, from), end - start);
    }
  }

  /** Whether the sums have been written. */
  get isComplete(): boolean {
    return this.#isComplete;
  }

  /** Reads this rank's gradients and sends what others wait for. */
  async start(): Promise<void> {
    if (this.#isStarted) {
      throw new RangeError(
        `Cannot start chunk ${this.#chunk}: a chunk must be started once, received it again`,
      );
    }
    this.#isStarted = true;
    const { chunks, rank, size, shared } = this.#options;
    if (size === 1) return this.#complete();
    const { offset, length } = chunks[this.#chunk]!;
    const own = await this.#options.read(offset, length);
    this.#checkValues("what is read", own, length);
    this.#values = shared ? this.#row(shared, rank) : own;
    if (shared) this.#values.set(own);
    this.#advance();
  }

  /** Keeps a message, and does all that it makes possible. */
  receive(message: ReduceMessage): void {
    const { values } = message, key = title(message), length = this.#due.get(key);
    if (length === undefined) {
      throw this.#error(`a message must be one that rank ${this.#options.rank} waits for`, key);
    }
    if (this.#arrived.has(key)) throw this.#error(`${key} must come once`, "it again");
    if (!this.#options.shared) this.#inbox.set(key, this.#checkValues(key, values, length));
    else if (values) {
      throw this.#error(`${key} must leave its values in shared memory`, `${values.length} values`);
    }
    this.#arrived.add(key);
    this.#advance();
  }

  #advance(): void {
    const values = this.#values, { exchanges } = this.#plan;
    if (!values) return;
    for (; this.#done < exchanges.length; this.#done++) {
      const exchange = exchanges[this.#done]!;
      if (exchange.kind === "send") this.#send(exchange, exchange.to, values);
      else if (exchange.from.every((from) => this.#arrived.has(this.#title(exchange, from)))) {
        this.#take(exchange, exchange.kind, exchange.from, values);
      } else return;
    }
    this.#values = undefined;
    const { chunks, shared } = this.#options, { offset } = chunks[this.#chunk]!;
    this.#options.write(offset, shared ? values.slice() : values as GradientArray);
    this.#complete();
  }

  #send(exchange: Exchange, to: number, values: Values): void {
    const { rank, shared } = this.#options;
    const message = {
      chunk: this.#chunk,
      phase: exchange.phase,
      from: rank,
      slice: exchange.first,
    };
    if (shared) return this.#options.send(to, message);
    this.#options.send(to, { ...message, values: values.slice(...this.#elements(exchange)) });
  }

  #take(
    exchange: Exchange,
    kind: "sum" | "copy",
    from: readonly number[],
    values: Values,
  ): void {
    const { rank } = this.#options;
    const own = values.subarray(...this.#elements(exchange));
    if (kind === "copy") return own.set(this.#takeFrom(exchange, from[0]!));
    const copies = [...from, rank].sort((a, b) => a - b);
    const terms = copies.map((copy) => copy === rank ? own : this.#takeFrom(exchange, copy));
    addLeftToRight(own, terms);
  }

  /** What a rank said about a range. */
  #takeFrom(exchange: Exchange, from: number): Values {
    const { shared } = this.#options, key = this.#title(exchange, from);
    if (shared) return this.#row(shared, from).subarray(...this.#elements(exchange));
    const values = this.#inbox.get(key)!;
    this.#inbox.delete(key);
    return values;
  }

  #complete(): void {
    this.#isComplete = true;
    this.#options.onComplete(this.#chunk);
  }

  #title({ phase, first }: Exchange, from: number): string {
    return title({ phase, from, slice: first });
  }

  /** Where a range of slices begins and ends in the chunk. */
  #elements({ first, end }: SliceRange): [start: number, end: number] {
    const { length } = this.#options.chunks[this.#chunk]!, { slices } = this.#plan;
    return [Math.floor(first * length / slices), Math.floor(end * length / slices)];
  }

  /**
   * The chunk in a rank's row of the shared memory.
   *
   * [Note: who touches what] Until the message `gather` of rank j, slice j of every row is read by
   * rank j alone, so rank j may put the sum where its own gradients were, and every other rank may
   * take it over into its own row afterwards. The messages order the accesses.
   */
  #row(shared: SharedArrayBuffer, rank: number): Values {
    const { chunks, size, dtype } = this.#options, { offset, length } = chunks[this.#chunk]!;
    const start = rank * shared.byteLength / size + offset * ARRAYS[dtype].BYTES_PER_ELEMENT;
    return dtype === "f32"
      ? new Float32Array(shared, start, length)
      : new Float16Array(shared, start, length);
  }

  #checkValues(what: string, values: GradientArray | undefined, length: number): GradientArray {
    const { dtype } = this.#options, rule = `${what} must hold ${length} ${dtype} values`;
    if (!(values instanceof ARRAYS[dtype])) {
      throw this.#error(rule, values?.constructor.name ?? "none", TypeError);
    }
    if (values.length !== length) throw this.#error(rule, String(values.length));
    return values;
  }

  #error(rule: string, received: string, Type: ErrorConstructor = RangeError): Error {
    return new Type(`Cannot reduce chunk ${this.#chunk}: ${rule}, received ${received}`);
  }
}
