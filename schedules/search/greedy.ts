/** A list scheduler: whenever a worker is free, it takes the best action that it can run. */

import type { Action } from "../action.ts";
import { KIND } from "../action_list.ts";
import { Dependencies } from "../dependencies.ts";
import { assertInput } from "../errors.ts";
import { TimeQueue } from "../time_queue.ts";
import type { Workload } from "./limits.ts";

/** Choices of the list scheduler. */
export interface Strategy {
  /** True to split backwards, so that their weight parts can wait. */
  readonly isSplit: boolean;
  /** True to run a forward before a backward while there is room for its activation. */
  readonly isForwardFirst: boolean;
  /** The most live (stage, micro-batch) activations on each worker. */
  readonly limits: readonly number[];
  /** The most micro-batches in flight in each pipeline. */
  readonly pipeLimit: number;
  /**
   * The time until the next input of a worker for which it starts a weight part, in durations of the
   * weight part.
   */
  readonly patience: number;
}

/** An action whose inputs have arrived. */
interface Candidate {
  readonly stage: number;
  readonly microBatch: number;
}

/** An action that becomes ready on a worker, or a worker that becomes free. */
interface Event {
  readonly worker: number;
  readonly ready?: Action;
}

/**
 * Schedules a workload: backwards before forwards (or the other way), of backwards the first to enter
 * its pipeline, of forwards the deepest stage, weight parts when nothing else can run.
 *
 * [Note: room for the deeper stages] A worker with several stages must not fill its memory with
 * activations of the first: their backwards need the later stages, which need room as well. A
 * forward of a stage is therefore admitted only while one activation of each deeper stage of the
 * same worker still fits. This prevents deadlocks: the deepest forward that waits for room shares its
 * worker with live activations of shallower stages only, and they left room for it.
 *
 * @throws {RangeError} if the limit of a worker is below the number of its stages.
 */
export function greedyOrder(workload: Workload, strategy: Strategy): Action[][] {
  return new Greedy(workload, strategy).run();
}

class Greedy {
  readonly #dependencies: Dependencies;
  readonly #queue = new TimeQueue<Event>();
  readonly #forwards: Candidate[][];
  readonly #backwards: Candidate[][];
  readonly #weights: Candidate[][];
  readonly #orders: Action[][];
  readonly #isBusy: boolean[];
  readonly #live: number[];
  readonly #inFlight: number[];
  /** For each micro-batch, its rank in its pipeline. */
  readonly #rank: number[];
  /** For each copy of a stage, the number of deeper ones on its worker. */
  readonly #deeper: number[];
  /** For each worker, the arrival times of inputs in transit, in order. */
  readonly #arrivals: number[][];
  /** The time of each output, if skip edges bring inputs that are not the last to come. */
  readonly #given: Float64Array | undefined;

  constructor(private readonly load: Workload, private readonly strategy: Strategy) {
    const { workers, stages, hosts, microBatches, pipelineOf } = load;
    const lists = <T>() => Array.from({ length: workers }, (): T[] => []);
    this.#dependencies = new Dependencies(load);
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
    this.#rank = pipelineOf.map((pipeline) => counts[pipeline]!++);
    this.#deeper = Array.from(hosts, (worker, copy) => {
      const isDeeper = (other: number, i: number) => other === worker && i % stages > copy % stages;
      return hosts.filter(isDeeper).length;
    });
    hosts.forEach((worker, copy) => {
      const room = this.#deeper[copy]! + 1, limit = strategy.limits[worker]!;
      const must = `its limit of activations must be at least ${room}, one for each of its stages`;
      assertInput(limit >= room, `schedule worker ${worker}`, must, limit);
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
        touched.add(item.worker);
        if (item.ready === undefined) this.#isBusy[item.worker] = false;
        else this.#arrive(item.worker, item.ready);
      }
      if (this.#queue.nextTime !== time) this.#chooseFor(touched, time);
    }
    return this.#orders;
  }

  #arrive(worker: number, ready: Action): void {
    this.#arrivals[worker]?.shift();
    (ready.kind === "F" ? this.#forwards : this.#backwards)[worker]?.push(ready);
  }

  /** Lets workers with changes choose, in their order. */
  #chooseFor(touched: Set<number>, time: number): void {
    for (const worker of [...touched].sort((a, b) => a - b)) {
      if (!this.#isBusy[worker]) this.#choose(worker, time);
    }
    touched.clear();
  }

  #choose(worker: number, time: number): void {
    const rank = ({ microBatch }: Candidate) => this.#rank[microBatch]!;
    const backward = best(
      this.#backwards[worker]!,
      (a, b) => (rank(a) - rank(b) || a.stage - b.stage || a.microBatch - b.microBatch) < 0,
    );
    const forward = best(
      this.#forwards[worker]!,
      (a, b) => (b.stage - a.stage || rank(a) - rank(b) || a.microBatch - b.microBatch) < 0,
      (candidate) => this.#isAdmitted(worker, candidate),
    );
    const { isForwardFirst } = this.strategy;
    if (forward !== undefined && (isForwardFirst || backward === undefined)) {
      this.#run(worker, forward, 1, time);
    } else if (backward !== undefined) this.#run(worker, backward, -1, time);
    else this.#weight(worker, time);
  }

  #isAdmitted(worker: number, { stage, microBatch }: Candidate): boolean {
    const pipeline = this.load.pipelineOf[microBatch]!;
    const { limits, pipeLimit } = this.strategy;
    if (stage === 0 && this.#inFlight[pipeline]! >= pipeLimit) return false;
    const reserved = this.#deeper[pipeline * this.load.stages + stage]!;
    return this.#live[worker]! + 1 + reserved <= limits[worker]!;
  }

  /** Starts a forward (`change` is 1) or a backward (-1). */
  #run(worker: number, candidate: Candidate, change: 1 | -1, time: number): void {
    const { stage, microBatch } = candidate, { isSplit } = this.strategy;
    const ready = (change > 0 ? this.#forwards : this.#backwards)[worker]!;
    ready.splice(ready.indexOf(candidate), 1);
    if (stage === 0) this.#inFlight[this.load.pipelineOf[microBatch]!]! += change;
    if (change > 0 || !isSplit) this.#live[worker]! += change;
    const kind = change > 0 ? "F" : isSplit ? "I" : "B";
    this.#start(worker, { kind, stage, microBatch }, time);
  }

  #weight(worker: number, time: number): void {
    const [candidate] = this.#weights[worker]!;
    if (candidate === undefined) return;
    const { stage, microBatch } = candidate;
    const duration = this.load.times.durations[KIND.W]?.[stage] ?? 0;
    const next = this.#arrivals[worker]?.[0] ?? Infinity;
    // A moment of idle time is better than a delay of an action that others wait for.
    if (next - time < duration * this.strategy.patience) return;
    this.#weights[worker]?.shift();
    this.#live[worker]! -= 1;
    this.#start(worker, { kind: "W", stage, microBatch }, time);
  }

  #start(worker: number, action: Action, time: number): void {
    const end = time + this.load.times.durations[KIND[action.kind]]![action.stage]!;
    this.#orders[worker]!.push(action);
    this.#isBusy[worker] = true;
    this.#queue.add(end, { worker });
    this.#give(action, end);
    for (const ready of this.#dependencies.followersOf(action)) {
      if (ready.kind === "W") this.#weights[worker]?.push(ready);
      else this.#deliver(end, ready);
    }
  }

  #give({ kind, stage, microBatch }: Action, end: number): void {
    if (this.#given === undefined) return;
    const count = this.#dependencies.outputsOf(KIND[kind], stage, microBatch);
    for (let i = 0; i < count; i++) this.#given[this.#dependencies.outputs[i]!] = end;
  }

  /** Queues an action for the arrival of its last input, which comes over the chain or a skip edge. */
  #deliver(end: number, ready: Action): void {
    const { kind, stage, microBatch } = ready, { inputs, edges } = this.#dependencies;
    const worker = this.#dependencies.hostOf(stage, microBatch);
    let arrival = end;
    for (let i = this.#dependencies.inputsOf(KIND[kind], stage, microBatch) - 1; i >= 0; i--) {
      const edge = edges[i]!;
      if (edge < 0) continue;
      const given = this.#given?.[inputs[i]!] ?? end;
      arrival = Math.max(arrival, given + (this.load.times.send[edge] ?? 0));
    }
    const arrivals = this.#arrivals[worker]!;
    const after = arrivals.findIndex((other) => other > arrival);
    arrivals.splice(after < 0 ? arrivals.length : after, 0, arrival);
    this.#queue.add(arrival, { worker, ready });
  }
}

/** The best admitted candidate. */
function best(
  candidates: readonly Candidate[],
  isBetter: (a: Candidate, b: Candidate) => boolean,
  isAdmitted: (candidate: Candidate) => boolean = () => true,
): Candidate | undefined {
  let found: Candidate | undefined;
  for (const one of candidates) {
    if ((found === undefined || isBetter(one, found)) && isAdmitted(one)) found = one;
  }
  return found;
}
