/** A list scheduler: whenever a worker is free, it takes the best action that it can run. */

import type { Action } from "../action.ts";
import { KIND } from "../action_list.ts";
import { Dependencies } from "../dependencies.ts";
import { TimeQueue } from "../time_queue.ts";
import type { Workload } from "./limits.ts";

/** How the list scheduler chooses. */
export interface Strategy {
  /** Whether backwards are split, so that their weight parts can wait. */
  readonly isSplit: boolean;
  /** Whether a forward goes before a backward while there is room for its activation. */
  readonly isForwardFirst: boolean;
  /** The most live (stage, micro-batch) activations on each worker. */
  readonly limits: readonly number[];
  /** The most micro-batches in flight in each replica of the pipeline. */
  readonly pipeLimit: number;
  /**
   * How far the next input of a worker must be away, in durations of the weight part, before the
   * worker starts one.
   */
  readonly patience: number;
}

/** An action that could run as far as its inputs go. */
interface Candidate {
  readonly stage: number;
  readonly microBatch: number;
}

/** Whether the first of two candidates is the better one. */
type Preference = (a: Candidate, b: Candidate) => boolean;

type Event =
  | { readonly freed: number }
  | { readonly worker: number; readonly ready: Action };

/**
 * Schedules a workload: backwards before forwards (or the other way), of backwards the one that
 * came first into its pipe, of forwards the deepest stage, weight parts where nothing else can run.
 *
 * [Note: room for the deeper stages] A worker with several stages may not fill its memory with
 * activations of the first: their backwards need the later stages, which need room as well. A
 * forward of a stage is therefore admitted only while one activation of each deeper stage of the
 * same worker still fits beside it. Nothing can then get stuck: the deepest forward that waits for
 * room shares its worker with live activations of shallower stages only, and they left room for it.
 *
 * @throws {RangeError} if the limit of a worker is below the number of its stages.
 */
export function greedyOrder(workload: Workload, strategy: Strategy): Action[][] {
  return new Greedy(workload, strategy).run();
}

class Greedy {
  readonly #load: Workload;
  readonly #dependencies: Dependencies;
  readonly #strategy: Strategy;
  readonly #queue = new TimeQueue<Event>();
  readonly #forwards: Candidate[][];
  readonly #backwards: Candidate[][];
  readonly #weights: Candidate[][];
  readonly #orders: Action[][];
  readonly #isBusy: boolean[];
  readonly #live: number[];
  readonly #inFlight: number[];
  /** For each micro-batch, how many of its replica come before it. */
  readonly #rank: number[];
  /** For each copy of a stage, the number of deeper ones on its worker. */
  readonly #deeper: number[];
  /** For each worker, when the inputs arrive that are on their way, in order. */
  readonly #arrivals: number[][];
  /** When each output was there, where skip edges bring some that are not the last to come. */
  readonly #given: Float64Array | undefined;

  constructor(load: Workload, strategy: Strategy) {
    const { workers, stages, hosts, microBatches, replicaOf } = load;
    const lists = <T>() => Array.from({ length: workers }, (): T[] => []);
    this.#load = load;
    this.#dependencies = new Dependencies(load);
    this.#strategy = strategy;
    this.#forwards = lists();
    this.#backwards = lists();
    this.#weights = lists();
    this.#orders = lists();
    this.#arrivals = lists();
    this.#given = load.edges && new Float64Array(this.#dependencies.outputCount);
    this.#isBusy = new Array(workers).fill(false);
    this.#live = new Array(workers).fill(0);
    this.#inFlight = new Array(hosts.length / stages).fill(0);
    const counts = new Array<number>(this.#inFlight.length).fill(0);
    this.#rank = replicaOf.map((replica) => {
      const rank = counts[replica] as number;
      counts[replica] = rank + 1;
      return rank;
    });
    this.#deeper = Array.from(hosts, (worker, copy) => {
      const isDeeper = (other: number, i: number) => other === worker && i % stages > copy % stages;
      return hosts.filter(isDeeper).length;
    });
    hosts.forEach((worker, copy) => {
      const room = (this.#deeper[copy] as number) + 1;
      const limit = strategy.limits[worker] as number;
      if (limit >= room) return;
      throw new RangeError(
        `Cannot schedule worker ${worker}: its limit of activations must be at least ${room}, ` +
          `one for each of its stages, received ${limit}`,
      );
    });
    for (let m = 0; m < microBatches; m++) {
      this.#forwards[this.#dependencies.hostOf(0, m)]?.push({ stage: 0, microBatch: m });
    }
  }

  run(): Action[][] {
    const touched = new Set(this.#orders.keys());
    this.#chooseFor(touched, 0);
    while (this.#queue.size > 0) {
      const { time, items } = this.#queue.take();
      for (const item of items) {
        if ("freed" in item) this.#isBusy[item.freed] = false;
        else this.#arrive(item.worker, item.ready);
        touched.add("freed" in item ? item.freed : item.worker);
      }
      if (this.#queue.nextTime !== time) this.#chooseFor(touched, time);
    }
    return this.#orders;
  }

  #arrive(worker: number, ready: Action): void {
    this.#arrivals[worker]?.shift();
    (ready.kind === "F" ? this.#forwards : this.#backwards)[worker]?.push(ready);
  }

  /** Lets the workers go on that something changed for, in their order. */
  #chooseFor(touched: Set<number>, time: number): void {
    for (const worker of [...touched].sort((a, b) => a - b)) {
      if (!this.#isBusy[worker]) this.#choose(worker, time);
    }
    touched.clear();
  }

  #choose(worker: number, time: number): void {
    const rank = ({ microBatch }: Candidate) => this.#rank[microBatch] as number;
    const backward = best(
      this.#backwards[worker] as Candidate[],
      (a, b) => (rank(a) - rank(b) || a.stage - b.stage || a.microBatch - b.microBatch) < 0,
    );
    const forward = best(
      this.#forwards[worker] as Candidate[],
      (a, b) => (b.stage - a.stage || rank(a) - rank(b) || a.microBatch - b.microBatch) < 0,
      (candidate) => this.#isAdmitted(worker, candidate),
    );
    const { isForwardFirst } = this.#strategy;
    if (forward !== undefined && (isForwardFirst || backward === undefined)) {
      this.#forward(worker, forward, time);
    } else if (backward !== undefined) this.#backward(worker, backward, time);
    else this.#weight(worker, time);
  }

  #isAdmitted(worker: number, { stage, microBatch }: Candidate): boolean {
    const replica = this.#load.replicaOf[microBatch] as number;
    const { limits, pipeLimit } = this.#strategy;
    if (stage === 0 && (this.#inFlight[replica] as number) >= pipeLimit) return false;
    const reserved = this.#deeper[replica * this.#load.stages + stage] as number;
    return (this.#live[worker] as number) + 1 + reserved <= (limits[worker] as number);
  }

  #forward(worker: number, candidate: Candidate, time: number): void {
    const { stage, microBatch } = candidate;
    const replica = this.#load.replicaOf[microBatch] as number;
    remove(this.#forwards[worker] as Candidate[], candidate);
    if (stage === 0) this.#inFlight[replica] = (this.#inFlight[replica] as number) + 1;
    this.#live[worker] = (this.#live[worker] as number) + 1;
    this.#start(worker, { kind: "F", stage, microBatch }, time);
  }

  #backward(worker: number, candidate: Candidate, time: number): void {
    const { stage, microBatch } = candidate;
    const replica = this.#load.replicaOf[microBatch] as number;
    remove(this.#backwards[worker] as Candidate[], candidate);
    const { isSplit } = this.#strategy;
    if (!isSplit) this.#live[worker] = (this.#live[worker] as number) - 1;
    if (stage === 0) this.#inFlight[replica] = (this.#inFlight[replica] as number) - 1;
    this.#start(worker, { kind: isSplit ? "I" : "B", stage, microBatch }, time);
  }

  #weight(worker: number, time: number): void {
    const [candidate] = this.#weights[worker] as Candidate[];
    if (candidate === undefined) return;
    const { stage, microBatch } = candidate;
    const duration = this.#load.times.durations[KIND.W]?.[stage] ?? 0;
    const next = this.#arrivals[worker]?.[0] ?? Infinity;
    // Better idle for a moment than late for what others wait for.
    if (next - time < duration * this.#strategy.patience) return;
    this.#weights[worker]?.shift();
    this.#live[worker] = (this.#live[worker] as number) - 1;
    this.#start(worker, { kind: "W", stage, microBatch }, time);
  }

  #start(worker: number, action: Action, time: number): void {
    const { durations } = this.#load.times;
    const end = time + (durations[KIND[action.kind]]?.[action.stage] ?? 0);
    this.#orders[worker]?.push(action);
    this.#isBusy[worker] = true;
    this.#queue.add(end, { freed: worker });
    this.#give(action, end);
    for (const ready of this.#dependencies.followersOf(action)) {
      if (ready.kind === "W") this.#weights[worker]?.push(ready);
      else this.#deliver(end, ready);
    }
  }

  #give({ kind, stage, microBatch }: Action, end: number): void {
    if (this.#given === undefined) return;
    const count = this.#dependencies.outputsOf(KIND[kind], stage, microBatch);
    for (let i = 0; i < count; i++) {
      this.#given[this.#dependencies.outputs[i] as number] = end;
    }
  }

  /** Notes when the last input of an action will be there: none is given later than that of the chain. */
  #deliver(end: number, ready: Action): void {
    const { kind, stage, microBatch } = ready, { inputs, edges } = this.#dependencies;
    const worker = this.#dependencies.hostOf(stage, microBatch);
    let arrival = end;
    for (let i = this.#dependencies.inputsOf(KIND[kind], stage, microBatch) - 1; i >= 0; i--) {
      const edge = edges[i] as number;
      if (edge < 0) continue;
      const given = this.#given?.[inputs[i] as number] ?? end;
      arrival = Math.max(arrival, given + (this.#load.times.send[edge] ?? 0));
    }
    const arrivals = this.#arrivals[worker] as number[];
    const after = arrivals.findIndex((other) => other > arrival);
    arrivals.splice(after < 0 ? arrivals.length : after, 0, arrival);
    this.#queue.add(arrival, { worker, ready });
  }
}

function best(
  candidates: readonly Candidate[],
  isBetter: Preference,
  isAdmitted: (candidate: Candidate) => boolean = () => true,
): Candidate | undefined {
  let found: Candidate | undefined;
  for (const candidate of candidates) {
    if ((found === undefined || isBetter(candidate, found)) && isAdmitted(candidate)) {
      found = candidate;
    }
  }
  return found;
}

function remove(candidates: Candidate[], candidate: Candidate): void {
  candidates.splice(candidates.indexOf(candidate), 1);
}
