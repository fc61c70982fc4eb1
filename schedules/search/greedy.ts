/** A list scheduler: whenever a worker is free, it takes the best action that it can run. */

import type { Action } from "../action.ts";
import { KIND } from "../action_list.ts";
import { Dependencies } from "../dependencies.ts";
import { assertInput } from "../errors.ts";
import { TimeQueue } from "../time_queue.ts";
import type { Workload } from "./limits.ts";

/** Choices of the list scheduler. */
export interface Strategy {
  /** True to split backwards, so that their weight parts can wait. Default false. */
  readonly isSplit?: boolean;
  /** True to run a forward before a backward while there is room for its activation. Default false. */
  readonly isForwardFirst?: boolean;
  /** The most live (stage, micro-batch) activations on each worker. */
  readonly limits: readonly number[];
  /** The most micro-batches in flight in each pipeline. */
  readonly pipeLimit: number;
  /**
   * The time until the next input of a worker for which it starts a weight part, in durations of the
   * weight part. Default 0.
   */
  readonly patience?: number;
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
  const board = openBoard(workload, strategy), { queue, orders, isBusy } = board;
  const touched = new Set(orders.keys());
  chooseFor(board, touched, 0);
  while (queue.nextTime !== undefined) {
    const { time, items } = queue.take();
    for (const { worker, ready } of items) {
      touched.add(worker);
      if (ready === undefined) isBusy[worker] = false;
      else {
        board.arrivals[worker]?.shift();
        (ready.kind === "F" ? board.forwards : board.backwards)[worker]?.push(ready);
      }
    }
    if (queue.nextTime !== time) chooseFor(board, touched, time);
  }
  return orders;
}

type Board = ReturnType<typeof openBoard>;

/** Returns the state before the first action. */
function openBoard(load: Workload, strategy: Strategy) {
  const { workers, stages, hosts, microBatches, pipelineOf } = load;
  const lists = <T>() => Array.from({ length: workers }, (): T[] => []);
  const dependencies = new Dependencies(load), pipelines = hosts.length / stages;
  const counts = new Array<number>(pipelines).fill(0);
  const deeper = Array.from(hosts, (worker, copy) => {
    const isDeeper = (other: number, i: number) => other === worker && i % stages > copy % stages;
    return hosts.filter(isDeeper).length;
  });
  hosts.forEach((worker, copy) => {
    const room = deeper[copy]! + 1, limit = strategy.limits[worker]!;
    const must = `its limit of activations must be at least ${room}, one for each of its stages`;
    assertInput(limit >= room, `schedule worker ${worker}`, must, limit);
  });
  const forwards = lists<Candidate>();
  for (let m = 0; m < microBatches; m++) {
    forwards[dependencies.hostOf(0, m)]?.push({ stage: 0, microBatch: m });
  }
  return {
    load,
    strategy,
    dependencies,
    queue: new TimeQueue<Event>(),
    forwards,
    backwards: lists<Candidate>(),
    weights: lists<Candidate>(),
    orders: lists<Action>(),
    isBusy: new Array<boolean>(workers).fill(false),
    live: new Array<number>(workers).fill(0),
    inFlight: new Array<number>(pipelines).fill(0),
    /** For each micro-batch, its rank in its pipeline. */
    rank: pipelineOf.map((pipeline) => counts[pipeline]!++),
    /** For each copy of a stage, the number of deeper ones on its worker. */
    deeper,
    /** For each worker, the arrival times of inputs in transit, in order. */
    arrivals: lists<number>(),
    /** The time of each output, if skip edges bring inputs that are not the last to come. */
    given: load.edges && new Float64Array(dependencies.outputCount),
  };
}

/** Lets workers with changes choose, in their order. */
function chooseFor(board: Board, touched: Set<number>, time: number): void {
  for (const worker of [...touched].sort((a, b) => a - b)) {
    if (!board.isBusy[worker]) choose(board, worker, time);
  }
  touched.clear();
}

function choose(board: Board, worker: number, time: number): void {
  const rank = ({ microBatch }: Candidate) => board.rank[microBatch]!;
  const backward = best(
    board.backwards[worker]!,
    (a, b) => (rank(a) - rank(b) || a.stage - b.stage || a.microBatch - b.microBatch) < 0,
  );
  const forward = best(
    board.forwards[worker]!,
    (a, b) => (b.stage - a.stage || rank(a) - rank(b) || a.microBatch - b.microBatch) < 0,
    (candidate) => isAdmitted(board, worker, candidate),
  );
  const { isForwardFirst } = board.strategy;
  if (forward !== undefined && (isForwardFirst || backward === undefined)) {
    run(board, worker, forward, 1, time);
  } else if (backward !== undefined) run(board, worker, backward, -1, time);
  else runWeight(board, worker, time);
}

function isAdmitted(board: Board, worker: number, { stage, microBatch }: Candidate): boolean {
  const pipeline = board.load.pipelineOf[microBatch]!;
  const { limits, pipeLimit } = board.strategy;
  if (stage === 0 && board.inFlight[pipeline]! >= pipeLimit) return false;
  const reserved = board.deeper[pipeline * board.load.stages + stage]!;
  return board.live[worker]! + 1 + reserved <= limits[worker]!;
}

/** Starts a forward (`change` is 1) or a backward (-1). */
function run(
  board: Board,
  worker: number,
  candidate: Candidate,
  change: 1 | -1,
  time: number,
): void {
  const { stage, microBatch } = candidate, { isSplit } = board.strategy;
  const ready = (change > 0 ? board.forwards : board.backwards)[worker]!;
  ready.splice(ready.indexOf(candidate), 1);
  if (stage === 0) board.inFlight[board.load.pipelineOf[microBatch]!]! += change;
  if (change > 0 || !isSplit) board.live[worker]! += change;
  const kind = change > 0 ? "F" : isSplit ? "I" : "B";
  start(board, worker, { kind, stage, microBatch }, time);
}

function runWeight(board: Board, worker: number, time: number): void {
  const [candidate] = board.weights[worker]!;
  if (candidate === undefined) return;
  const { stage, microBatch } = candidate;
  const duration = board.load.times.durations[KIND.W]?.[stage] ?? 0;
  const next = board.arrivals[worker]?.[0] ?? Infinity;
  // A moment of idle time is better than a delay of an action that others wait for.
  if (next - time < duration * (board.strategy.patience ?? 0)) return;
  board.weights[worker]?.shift();
  board.live[worker]! -= 1;
  start(board, worker, { kind: "W", stage, microBatch }, time);
}

function start(board: Board, worker: number, action: Action, time: number): void {
  const end = time + board.load.times.durations[KIND[action.kind]]![action.stage]!;
  board.orders[worker]!.push(action);
  board.isBusy[worker] = true;
  board.queue.add(end, { worker });
  give(board, action, end);
  for (const ready of board.dependencies.followersOf(action)) {
    if (ready.kind === "W") board.weights[worker]?.push(ready);
    else deliver(board, end, ready);
  }
}

function give(board: Board, { kind, stage, microBatch }: Action, end: number): void {
  if (board.given === undefined) return;
  const count = board.dependencies.outputsOf(KIND[kind], stage, microBatch);
  for (let i = 0; i < count; i++) board.given[board.dependencies.outputs[i]!] = end;
}

/** Queues an action for the arrival of its last input, which comes over the chain or a skip edge. */
function deliver(board: Board, end: number, ready: Action): void {
  const { kind, stage, microBatch } = ready, { inputs, edges } = board.dependencies;
  const worker = board.dependencies.hostOf(stage, microBatch);
  let arrival = end;
  for (let i = board.dependencies.inputsOf(KIND[kind], stage, microBatch) - 1; i >= 0; i--) {
    const edge = edges[i]!;
    if (edge < 0) continue;
    const given = board.given?.[inputs[i]!] ?? end;
    arrival = Math.max(arrival, given + (board.load.times.send[edge] ?? 0));
  }
  const arrivals = board.arrivals[worker]!;
  const after = arrivals.findIndex((other) => other > arrival);
  arrivals.splice(after < 0 ? arrivals.length : after, 0, arrival);
  board.queue.add(arrival, { worker, ready });
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
