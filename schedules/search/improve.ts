/** Local search: makes the order of a step shorter, one swap of neighbours at a time. */

import { uniformInt } from "pure-rand/distribution/uniformInt";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";
import type { Action } from "../actions/action.ts";
import { KIND, KINDS } from "../actions/action_list.ts";
import type { Workload } from "./workload.ts";

/** How long to search, and within what. */
export interface ImproveOptions {
  /** The number of orders to try. */
  readonly tries: number;
  /** The seed of the random choices; the same seed gives the same order. */
  readonly seed: number;
  /** For each worker, the most live (stage, micro-batch) activations. */
  readonly limits: readonly number[];
}

/** How much longer than the current order a try may be at first, as a part of the makespan. */
const TOLERANCE = 0.01;

/**
 * Improves an order of plain actions (no doubled forward, half backward or overlap) by threshold
 * accepting: it swaps an action of the critical path with the one before it on the same worker,
 * where that one only holds it up, and keeps the result if it is not much longer; "not much" goes
 * to zero. The result is never longer than what it was given.
 */
export function improveOrder(
  load: Workload,
  orders: readonly (readonly Action[])[],
  options: ImproveOptions,
): Action[][] {
  return new LocalSearch(load, orders, options).run();
}

/** Two neighbours in the order of a worker, by the index of the first. */
interface Swap {
  readonly worker: number;
  readonly index: number;
}

class LocalSearch {
  readonly #load: Workload;
  readonly #options: ImproveOptions;
  /** For each worker, its actions as `(stage * microBatches + microBatch) * 4 + kind`. */
  #orders: Int32Array[];
  /** When each action starts and ends; -1 where it has not run. */
  readonly #starts: Float64Array;
  readonly #ends: Float64Array;
  /** The index of each action in the order of its worker. */
  readonly #indices: Int32Array;

  constructor(load: Workload, orders: readonly (readonly Action[])[], options: ImproveOptions) {
    this.#load = load;
    this.#options = options;
    const size = load.stages * load.microBatches * KINDS.length;
    this.#starts = new Float64Array(size);
    this.#ends = new Float64Array(size);
    this.#indices = new Int32Array(size);
    this.#orders = orders.map((order) =>
      Int32Array.from(
        order,
        ({ kind, stage, microBatch }) =>
          (stage * load.microBatches + microBatch) * KINDS.length + KIND[kind],
      )
    );
  }

  run(): Action[][] {
    const { tries, seed } = this.#options;
    const random = xoroshiro128plus(seed);
    let current = this.#evaluate();
    let best = { makespan: current, orders: this.#copy() };
    let swaps = this.#criticalSwaps();
    for (let i = 0; i < tries && swaps.length > 0; i++) {
      const swap = swaps.splice(uniformInt(random, 0, swaps.length - 1), 1)[0] as Swap;
      this.#swap(swap);
      const tolerance = current * TOLERANCE * (1 - i / tries);
      const makespan = this.#keepsLimit(swap.worker) ? this.#evaluate() : Infinity;
      if (makespan > current + tolerance) {
        this.#swap(swap);
        if (swaps.length > 0) continue;
        // Every swap made it worse; go on from the best.
        if (current === best.makespan) break;
        this.#orders = best.orders.map((order) => order.slice());
        current = this.#evaluate();
      } else current = makespan;
      if (current < best.makespan) best = { makespan: current, orders: this.#copy() };
      swaps = this.#criticalSwaps();
    }
    return best.orders.map((order) => Array.from(order, (code) => this.#actionOf(code)));
  }

  #copy(): Int32Array[] {
    return this.#orders.map((order) => order.slice());
  }

  #actionOf(code: number): Action {
    const { microBatches } = this.#load;
    const place = Math.floor(code / KINDS.length);
    return {
      kind: KINDS[code % KINDS.length] ?? "F",
      stage: Math.floor(place / microBatches),
      microBatch: place % microBatches,
    };
  }

  #swap({ worker, index }: Swap): void {
    const order = this.#orders[worker] as Int32Array;
    const first = order[index] as number;
    order[index] = order[index + 1] as number;
    order[index + 1] = first;
  }

  #keepsLimit(worker: number): boolean {
    const limit = this.#options.limits[worker] as number;
    let live = 0;
    for (const code of this.#orders[worker] as Int32Array) {
      const kind = code % KINDS.length;
      if (kind === KIND.F && ++live > limit) return false;
      if (kind === KIND.B || kind === KIND.W) live--;
    }
    return true;
  }

  /** The makespan of the current order; Infinity where it deadlocks. */
  #evaluate(): number {
    const { workers, times: { durations }, microBatches } = this.#load;
    const next = new Int32Array(workers);
    const free = new Float64Array(workers);
    const runnable = Array.from({ length: workers }, (_, worker) => worker);
    let left = this.#orders.reduce((sum, order) => sum + order.length, 0);
    this.#ends.fill(-1);
    for (let worker = runnable.pop(); worker !== undefined; worker = runnable.pop()) {
      const order = this.#orders[worker] as Int32Array;
      for (let i = next[worker] as number; i < order.length; i++) {
        const code = order[i] as number;
        const input = this.#inputAt(code, worker);
        if (input < 0) break;
        const start = Math.max(free[worker] as number, input);
        const stage = Math.floor(code / (KINDS.length * microBatches));
        const end = start + (durations[code % KINDS.length]?.[stage] as number);
        this.#starts[code] = start;
        this.#ends[code] = end;
        this.#indices[code] = i;
        free[worker] = end;
        next[worker] = i + 1;
        left--;
        const waiting = this.#workerAfter(code);
        if (waiting >= 0 && waiting !== worker) runnable.push(waiting);
      }
    }
    return left > 0 ? Infinity : free.reduce((a, b) => Math.max(a, b), 0);
  }

  #host(stage: number, microBatch: number): number {
    const { hosts, replicaOf, stages } = this.#load;
    return hosts[(replicaOf[microBatch] as number) * stages + stage] as number;
  }

  /** The worker that may wait for what an action gives; -1 for none. */
  #workerAfter(code: number): number {
    const { microBatches, stages } = this.#load;
    const kind = code % KINDS.length;
    if (kind === KIND.W) return -1;
    const place = Math.floor(code / KINDS.length);
    const stage = Math.floor(place / microBatches) + (kind === KIND.F ? 1 : -1);
    return stage < 0 || stage === stages ? -1 : this.#host(stage, place % microBatches);
  }

  /** The action whose output is the input of another; -1 for none. */
  #sourceOf(code: number): number {
    const { microBatches, stages } = this.#load;
    const kind = code % KINDS.length;
    const place = Math.floor(code / KINDS.length);
    const codeOf = (at: number, of: number) => at * KINDS.length + of;
    if (kind === KIND.F) return place < microBatches ? -1 : codeOf(place - microBatches, KIND.F);
    if (kind === KIND.W) return codeOf(place, KIND.I);
    if (place >= (stages - 1) * microBatches) return codeOf(place, KIND.F);
    const above = codeOf(place + microBatches, KIND.I);
    return (this.#ends[above] as number) >= 0 ? above : codeOf(place + microBatches, KIND.B);
  }

  /** When the input of an action is there; negative where it is missing. */
  #inputAt(code: number, worker: number): number {
    const { microBatches, times: { send } } = this.#load;
    const kind = code % KINDS.length;
    const isBackward = kind === KIND.B || kind === KIND.I;
    const place = Math.floor(code / KINDS.length);
    if (isBackward && (this.#ends[place * KINDS.length] as number) < 0) return -1;
    const source = this.#sourceOf(code);
    if (source < 0) return 0;
    const time = this.#ends[source] as number;
    if (time < 0) return -1;
    const sourceStage = Math.floor(source / (KINDS.length * microBatches));
    if (this.#host(sourceStage, place % microBatches) === worker) return time;
    return time + (send[kind === KIND.F ? sourceStage : sourceStage - 1] as number);
  }

  /** The swaps that could shorten the critical path: an action held up by the one before it. */
  #criticalSwaps(): Swap[] {
    const swaps: Swap[] = [];
    let code = -1;
    for (const order of this.#orders) {
      const last = order.at(-1);
      if (last !== undefined && (code < 0 || this.#endOf(last) > this.#endOf(code))) code = last;
    }
    while (code >= 0) {
      const { microBatches } = this.#load;
      const place = Math.floor(code / KINDS.length);
      const worker = this.#host(Math.floor(place / microBatches), place % microBatches);
      const start = this.#starts[code] as number;
      if (this.#inputAt(code, worker) === start) {
        code = this.#sourceOf(code);
        continue;
      }
      const index = (this.#indices[code] as number) - 1;
      const before = this.#orders[worker]?.[index] as number;
      if (this.#mayOvertake(code, before)) swaps.push({ worker, index });
      code = before;
    }
    return swaps;
  }

  #endOf(code: number): number {
    return this.#ends[code] as number;
  }

  /** Whether an action may go before the one before it: not past its own stage and kind. */
  #mayOvertake(code: number, before: number): boolean {
    const { microBatches, replicaOf } = this.#load;
    const [place, placeBefore] = [code, before].map((c) => Math.floor(c / KINDS.length));
    if (place === undefined || placeBefore === undefined || place === placeBefore) return false;
    const isSameStage =
      Math.floor(place / microBatches) === Math.floor(placeBefore / microBatches) &&
      replicaOf[place % microBatches] === replicaOf[placeBefore % microBatches];
    const isSameKind = code % KINDS.length === before % KINDS.length ||
      isGradient(code) && isGradient(before);
    return !(isSameStage && isSameKind);
  }
}

/** Whether an action adds to the gradients of its stage. */
function isGradient(code: number): boolean {
  const kind = code % KINDS.length;
  return kind === KIND.B || kind === KIND.W;
}
