/**
 * One chunk on its way: carries out a plan as messages come, in the order of the plan.
 *
 * [Note: one order of sums] What has arrived waits until the plan takes it. A sum of several ranks
 * waits for all of them and is then added in copy order, never in the order of arrival.
 *
 * @module
 */

import type { Values } from "../host_sums.ts";
import {
  ARRAYS,
  type ChunkOptions,
  type ChunkValues,
  deviceValues,
  hostValues,
  rowOf,
} from "./chunk_values.ts";
import { collectivePlan } from "./collective.ts";
import { directPlan } from "./direct.ts";
import { chooseFast } from "./fast.ts";
import { rabenseifnerPlan } from "./rabenseifner.ts";
import type { Exchange, ReducePlan, SliceRange } from "./reduce_plan.ts";
import type { GradientArray, ReduceAlgorithm, ReduceMessage, ReducerOptions } from "./reducer.ts";
import { ringPlan } from "./ring.ts";
import { sliceBorder } from "./slice_border.ts";

const PLANS: Readonly<Record<ReduceAlgorithm, (rank: number, size: number) => ReducePlan>> = {
  direct: directPlan,
  ring: ringPlan,
  rabenseifner: rabenseifnerPlan,
  collective: collectivePlan,
};

/** What a message says, in words; no two messages of a chunk say the same to a rank. */
function title({ phase, from, slice }: Pick<ReduceMessage, "phase" | "from" | "slice">): string {
  return `${phase} of slice ${slice} from rank ${from}`;
}

/** The state of one chunk in one rank. */
export class ChunkReduction {
  readonly #options: ChunkOptions;
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
  /** Whether a device is at one of them. */
  #isBusy = false;
  /** What this rank holds of the whole chunk, from the start to the end. */
  #values: ChunkValues | undefined;

  constructor(options: ReducerOptions, chunk: number) {
    this.#options = { ...options, chunk: options.chunks[chunk]! };
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

  /** Takes this rank's gradients and sends what others wait for. */
  async start(): Promise<void> {
    if (this.#isStarted) {
      throw new RangeError(
        `Cannot start chunk ${this.#chunk}: a chunk must be started once, received it again`,
      );
    }
    this.#isStarted = true;
    const { chunk: { offset, length }, size, sums } = this.#options;
    if (size === 1) return this.#complete();
    if (sums) this.#values = deviceValues(this.#options);
    else {
      const own = await this.#options.read(offset, length);
      this.#values = hostValues(this.#options, this.#checkValues("what is read", own, length));
    }
    await this.#advance();
  }

  /** Keeps a message, and does all that it makes possible: at once, unless a device adds. */
  receive(message: ReduceMessage): Promise<void> | void {
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
    return this.#advance();
  }

  #advance(): Promise<void> | void {
    const values = this.#values, { exchanges } = this.#plan;
    if (!values || this.#isBusy) return;
    while (this.#done < exchanges.length) {
      const exchange = exchanges[this.#done]!;
      const work = exchange.kind === "send"
        ? this.#send(exchange, exchange.to, values)
        : this.#hasArrived(exchange, exchange.from)
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

  #hasArrived(exchange: Exchange, from: readonly number[]): boolean {
    return from.every((rank) => this.#arrived.has(this.#title(exchange, rank)));
  }

  #send(exchange: Exchange, to: number, values: ChunkValues): Promise<void> | void {
    const { rank, send } = this.#options, { phase, first, end } = exchange;
    const next = this.#plan.exchanges[this.#done + 1];
    const isNext = next?.kind === "send" && next.first === first && next.end === end;
    const message = { chunk: this.#chunk, phase, from: rank, slice: first };
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

  /** What a rank said about a range. */
  #takeFrom(exchange: Exchange, from: number): Values {
    const { shared } = this.#options, key = this.#title(exchange, from);
    if (shared) return rowOf(this.#options, shared, from).subarray(...this.#elements(exchange));
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
    const { chunk, sums } = this.#options, { slices } = this.#plan;
    const border = (slice: number) => sliceBorder(slice, slices, chunk, this.#chunk, sums?.borders);
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

  #error(rule: string, received: string, Type: ErrorConstructor = RangeError): Error {
    return new Type(`Cannot reduce chunk ${this.#chunk}: ${rule}, received ${received}`);
  }
}
