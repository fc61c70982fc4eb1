/**
 * Simulation of one step by events: starts and ends of actions, messages, and the end of the step; and
 * of the order in which a message-driven schedule runs its actions.
 */

import { type Action, endsBackward, parts, sliced, WHOLE } from "../action.ts";
import { KIND } from "../action_list.ts";
import { recomputedStages } from "../analysis/recomputation.ts";
import {
  bytesOf,
  comeByTimes,
  freedBy,
  type Received,
  type SizeOf,
} from "../analysis/skip_memory.ts";
import { type Costs, latest } from "../costs.ts";
import { Readiness } from "../dependencies.ts";
import { type StepPolicy, takeOffers } from "../policies.ts";
import { hostTable, type ListedSchedule, type Schedule, withOrders } from "../schedule.ts";
import { type SkipRoute, stageRoutes } from "../skip_edges.ts";
import { TimeQueue } from "../time_queue.ts";
import {
  checkModel,
  type Draws,
  drawsOf,
  modelOfCosts,
  type Network,
  type SimulatedStep,
  type StageModel,
  type StepEndSpan,
  type StepModel,
  type WorkerTimes,
} from "./model.ts";
import {
  CommittedEnd,
  type EndPorts,
  openLocalEnd,
  type SpanName,
  type StepEnd,
} from "./step_end.ts";
import { eachLevel, heldBytes, type MemoryCurve } from "../analysis/memory.ts";
import { assertInput } from "../errors.ts";

/** The arrival of a message at a worker. */
interface Arrival {
  readonly worker: number;
  /** The action whose input has arrived. */
  readonly arrived: Action;
  /** The time at which it was sent. */
  readonly sentMs: number;
}

/** A task of a worker before its next action. */
interface Task {
  readonly ms: number;
  readonly name: SpanName;
  readonly then: () => void;
}

/** A worker of the simulation. */
class SimulatedWorker {
  readonly ready: Action[] = [];
  /** Start and end of each of its actions. */
  readonly starts: number[] = [];
  readonly ends: number[] = [];
  readonly tasks: Task[] = [];
  readonly closing: StepEndSpan[] = [];
  /** Values that came over skip edges. */
  readonly received: Received[] = [];
  /** True while it runs an action, does a task, or waits until its messages are sent. */
  isBusy = false;
  running: Action | undefined;
  /** The time at which it last became free. */
  freeMs = 0;
  /** The least time of its actions that have not begun; 0 if unknown. */
  leftMs = 0;
  communicationMs = 0;

  /** @param taken The actions that it ran; undefined if they are known to be its list. */
  constructor(readonly policy: StepPolicy, readonly taken: Action[] | undefined) {}
}

/** The channels of a network, each with one message after the other, and the time at which it is free. */
class Channels {
  readonly #free = new Map<number, number>();

  constructor(private readonly network: Network | undefined, private readonly workers: number) {}

  /**
   * Sends a message to another worker, after all earlier messages of its channel.
   *
   * @param latencyFactor A factor of its latency.
   * @returns the end of sending, and the arrival.
   */
  send(now: number, from: number, to: number, bytes: number, latencyFactor: number) {
    const network = this.network;
    if (network === undefined) return { sentMs: now, arrivesMs: now };
    const isLocal = this.#node(from) === this.#node(to);
    const { latencyMs, bytesPerMs } = isLocal ? network.local ?? network.link : network.link;
    const latency = latencyMs * latencyFactor;
    if (bytesPerMs === undefined) return { sentMs: now, arrivesMs: now + latency };
    const channel = this.#channel(from, to, isLocal);
    const sentMs = Math.max(now, this.#free.get(channel) ?? 0) + bytes / bytesPerMs;
    this.#free.set(channel, sentMs);
    return { sentMs, arrivesMs: sentMs + latency };
  }

  #node(worker: number): number {
    return Math.floor(worker / (this.network?.nodeSize ?? 1));
  }

  /** The number of a channel: channels of pairs come first, then those of workers, then of nodes. */
  #channel(from: number, to: number, isLocal: boolean): number {
    const { sharing = "pair" } = this.network ?? {}, workers = this.workers;
    if (sharing === "pair") return from * workers + to;
    const ofWorker = workers * workers + from;
    return sharing === "worker" || isLocal ? ofWorker : -1 - this.#node(from);
  }
}

/** Relative difference of sums of the same times. */
const ROUNDING = 1e-9;

/** A running simulation. */
class StepRun {
  readonly workers: readonly SimulatedWorker[];
  readonly #schedule: Schedule;
  readonly #duration: (worker: number, action: Action) => number;
  readonly #readiness: Readiness;
  readonly #draws: Draws;
  readonly #channels: Channels;
  /** The bytes of a message over a skip route. */
  readonly #skipBytes: SizeOf;
  /** Arrivals, and other actions of the simulation. */
  readonly #queue = new TimeQueue<Arrival | (() => void)>();
  readonly #end: StepEnd | undefined;
  /** The time by which the last action must end. */
  readonly #mostMs: number;
  #isOver = false;
  #now = 0;
  #injected = 0;
  /** The time at which the step ended, if it has an end beyond its actions. */
  endedMs: number | undefined;

  constructor(private readonly model: StepModel, mostMs: number) {
    const { schedule, network, jitter } = model;
    this.#schedule = schedule;
    this.#duration = actionTimes(model);
    this.#readiness = new Readiness({ ...schedule, hosts: hostTable(schedule) }, schedule.lists);
    this.#draws = drawsOf(jitter);
    this.#channels = new Channels(network, schedule.workers);
    this.#skipBytes = bytesOf(schedule.edges ?? []);
    const isKnown = followsLists(schedule);
    this.workers = schedule.placement.map((_, worker) =>
      new SimulatedWorker(schedule.policy(worker), isKnown ? undefined : [])
    );
    this.#end = this.#openEnd();
    // Sums of the same times in another order differ by rounding.
    this.#mostMs = mostMs * (1 + ROUNDING);
    if (mostMs < Infinity) {
      for (const [w, worker] of this.workers.entries()) worker.leftMs = this.#leastWorkMs(w);
    }
  }

  /** The least time of a worker's actions. */
  #leastWorkMs(worker: number): number {
    const schedule = this.#schedule, { microBatches } = schedule;
    const { dispatchMs = 0 } = this.model;
    let sum = 0;
    if (followsLists(schedule)) {
      for (const action of schedule.lists[worker]!) {
        sum += dispatchMs + this.#duration(worker, action);
      }
    }
    if (schedule.lists !== undefined) return sum;
    for (const { stage } of schedule.placement[worker]!) {
      for (let microBatch = 0; microBatch < microBatches; microBatch++) {
        const [F, B, I, W] = (["F", "B", "I", "W"] as const)
          .map((kind) => this.#duration(worker, { kind, stage, microBatch }));
        sum += 2 * dispatchMs + F! + Math.min(B!, I! + W!);
      }
    }
    return sum;
  }

  /** Runs until there are no more events. @returns false if the actions would not end in time. */
  run(): boolean {
    const beginMs = this.model.controlMs ?? 0;
    for (let i = 0; i < this.#schedule.injectionLimit; i++) this.#inject(beginMs, 0);
    this.#end?.begin();
    while (this.#queue.size > 0 && !this.#isOver) {
      const { time, items } = this.#queue.take();
      this.#now = time;
      const arrivals: Arrival[] = [];
      for (const event of items) {
        if (typeof event === "function") event();
        else arrivals.push(event);
      }
      if (arrivals.length > 0) this.#receive(arrivals);
    }
    return !this.#isOver;
  }

  /** Handles messages that have arrived at the same time. */
  #receive(arrivals: Arrival[]): void {
    if (arrivals.length > 1) arrivals.sort((a, b) => byTieRule(a.arrived, b.arrived));
    for (const { worker, arrived } of arrivals) {
      this.#readiness.arrive(arrived);
      this.#readiness.offer(arrived, this.workers[worker]!.ready);
    }
    for (const { worker, sentMs } of arrivals) this.#choose(worker, sentMs, arrivals);
  }

  #inject(time: number, sentMs: number): void {
    const { microBatches, slices = 1 } = this.#schedule;
    if (this.#injected === microBatches) return;
    const whole: Action = { kind: "F", stage: 0, microBatch: this.#injected++ };
    const arrived = slices === 1 ? whole : sliced(whole, 0, slices);
    const worker = this.#readiness.hostOf(0, whole.microBatch);
    this.#queue.add(time, { worker, arrived, sentMs });
  }

  /**
   * Does the next task of a worker that is free, or runs the action that its policy picks.
   *
   * @param arrivals Messages that arrive now; the worker may have waited for any of them.
   */
  #choose(index: number, sentMs: number, arrivals: readonly Arrival[] = []): void {
    const worker = this.workers[index]!, { ready, policy, tasks } = worker;
    if (worker.isBusy) return;
    if (tasks.length > 0) return this.#doTask(index, tasks.shift()!);
    const action = policy.next(ready);
    if (action === undefined) return;
    takeOffers(ready, action);
    const own = arrivals.find(({ worker, arrived }) =>
      worker === index &&
      parts(action).some(({ stage, microBatch }) =>
        stage === arrived.stage && microBatch === arrived.microBatch
      )
    );
    worker.communicationMs += this.#now - Math.max(worker.freeMs, own?.sentMs ?? sentMs);
    const start = this.#now + (this.model.dispatchMs ?? 0);
    const end = start + this.#duration(index, action);
    this.#isOver ||= Math.max(end, this.#now + worker.leftMs) > this.#mostMs;
    worker.leftMs -= end - this.#now;
    worker.taken?.push(action);
    worker.starts.push(start);
    worker.ends.push(end);
    worker.running = action;
    this.#freeAt(index, end);
  }

  #freeAt(worker: number, time: number): void {
    this.workers[worker]!.isBusy = true;
    this.#queue.add(time, () => this.#free(worker));
  }

  #doTask(index: number, { ms, name, then }: Task): void {
    const worker = this.workers[index]!, startMs = this.#now, endMs = startMs + ms;
    worker.isBusy = true;
    this.#queue.add(endMs, () => {
      worker.closing.push({ ...name, startMs, endMs });
      then();
      this.#free(index);
    });
  }

  /** Ends the activity of a worker: sends its outputs and starts its next activity. */
  #free(index: number): void {
    const worker = this.workers[index]!, action = worker.running;
    worker.running = undefined;
    let sentMs = this.#now;
    for (const part of action ? parts(action) : []) {
      sentMs = Math.max(sentMs, this.#output(index, part));
      const isLast = endsBackward(part, this.#schedule.slices);
      if (isLast && "BW".includes(part.kind)) this.#end?.afterBackward(part, index);
    }
    if (sentMs > this.#now && this.model.network?.isBlocking) {
      return this.#freeAt(index, sentMs);
    }
    worker.isBusy = false;
    worker.freeMs = this.#now;
    this.#choose(index, this.#now);
  }

  /** Offers or sends the output of a part of an action. @returns the time at which it has been sent. */
  #output(index: number, part: Action): number {
    const { kind, stage } = part, { ready } = this.workers[index]!;
    let sentMs = this.#now;
    for (const next of this.#readiness.complete(part)) {
      const host = this.#readiness.hostOf(next.stage, next.microBatch);
      if (host !== index) sentMs = Math.max(sentMs, this.#send(index, host, next, part));
      else this.#readiness.offer(next, ready);
    }
    for (const route of this.#readiness.routesFrom(part)) {
      sentMs = Math.max(sentMs, this.#skip(index, route, part));
    }
    const isBack = (kind === "B" || kind === "W") && stage === 0 &&
      endsBackward(part, this.#schedule.slices);
    if (isBack) this.#inject(this.#now + 2 * (this.model.controlMs ?? 0), this.#now);
    return sentMs;
  }

  #send(from: number, to: number, next: Action, part: Action): number {
    const { outputBytes = 0, sendMs = 0 } = this.model.stages[Math.min(next.stage, part.stage)]!;
    const { sentMs, time } = this.#transmit(from, to, part, { bytes: outputBytes, ms: sendMs });
    this.#queue.add(time, { worker: to, arrived: next, sentMs: this.#now });
    return sentMs;
  }

  /** Sends a message after a part: the time at which it has been sent, and that of its arrival. */
  #transmit(from: number, to: number, part: Action, whole: { bytes: number; ms: number }) {
    const { slices = 1 } = this.#schedule, factor = this.#draws.latency(part, from);
    const load = this.model.loads?.[part.microBatch]?.send ?? 1;
    const bytes = load * whole.bytes / (part.part?.count ?? 1);
    const { sentMs, arrivesMs } = this.#channels.send(this.#now, from, to, bytes, factor);
    return { sentMs, time: arrivesMs + load * whole.ms / slices * factor };
  }

  /** Sends an output over a skip route. @returns the time at which it has been sent. */
  #skip(from: number, route: SkipRoute, part: Action): number {
    const next: Action = { ...part, kind: route.isForward ? "F" : "B", stage: route.to };
    const now = this.#now, bytes = this.#skipBytes(route);
    const to = this.#readiness.hostOf(next.stage, next.microBatch);
    const size = bytes / (part.part?.count ?? 1), { received } = this.workers[to]!;
    if (from === to) {
      received.push({ time: now, size });
      return now;
    }
    const ms = latest(route, this.model.skipMs ?? []);
    const { sentMs, time } = this.#transmit(from, to, part, { bytes, ms });
    received.push({ time, size });
    this.#queue.add(time, { worker: to, arrived: next, sentMs: now });
    return sentMs;
  }

  #openEnd(): StepEnd | undefined {
    const { closing, schedule: { updates } } = this.model;
    if (closing === undefined) return undefined;
    const ports: EndPorts = {
      now: () => this.#now,
      at: (time, then) => this.#queue.add(time, then),
      note: (worker, span) => void this.workers[worker]!.closing.push(span),
      ended: () => void (this.endedMs = this.#now),
      work: (worker, ms, name, then) => {
        if (ms === 0) return then();
        this.workers[worker]!.tasks.push({ ms, name, then });
        this.#choose(worker, this.#now);
      },
    };
    if (updates !== "flush") return openLocalEnd(this.model, closing, ports);
    return new CommittedEnd(this.model, closing, ports);
  }
}

/** Returns true if all workers follow their lists strictly. */
function followsLists(schedule: Schedule): schedule is ListedSchedule {
  return schedule.lists !== undefined && (schedule.listPolicy?.name ?? "list") === "list";
}

/** Returns a function that finds the time of an action on a worker, with its loads and draws. */
export function actionTimes(model: StepModel): (worker: number, action: Action) => number {
  const { schedule: { slices = 1 }, overlapMs, slowdowns, loads } = model;
  const durations = durationsOf(model), draws = drawsOf(model.jitter);
  /** The duration of a part for a whole micro-batch. */
  const wholeOf = (worker: number, part: Action): number => {
    const { kind, stage, microBatch } = part, load = loads?.[microBatch];
    const factorOf = (kind: "F" | "I" | "W") =>
      (load?.[kind] ?? 1) * (model.jitter ? draws.duration({ ...part, kind }, worker) : 1);
    const base = durations[KIND[kind]]![stage]!;
    if (kind !== "B") return base * factorOf(kind === "R" ? "F" : kind);
    const input = durations[KIND.I]![stage]!, weight = durations[KIND.W]![stage]!;
    const share = input + weight === 0 ? 0.5 : input / (input + weight);
    return base * (share * factorOf("I") + (1 - share) * factorOf("W"));
  };
  return (worker, action) => {
    const isOverlap = action.overlap !== undefined && overlapMs !== undefined;
    let duration = isOverlap ? overlapMs / slices * draws.duration(action, worker) : 0;
    for (const part of isOverlap ? [] : parts(action)) {
      duration += wholeOf(worker, part) / (part.part ?? WHOLE).count;
    }
    return duration * (slowdowns?.[worker] ?? 1);
  };
}

/** For each kind of action and each stage, the duration for a whole micro-batch. */
function durationsOf({ schedule, stages }: StepModel): Float64Array[] {
  const recomputed = recomputedStages(schedule);
  const insideOf = (stage: number) => recomputed.has(stage) ? 0 : stages[stage]!.recomputeMs ?? 0;
  const each = (duration: (stage: StageModel, inside: number) => number) =>
    Float64Array.from(stages, (one, s) => duration(one, insideOf(s)));
  const input = ({ backwardMs, inputMs, weightMs }: StageModel) =>
    inputMs ?? (weightMs === undefined ? backwardMs / 2 : backwardMs - weightMs);
  return [
    each(({ forwardMs }) => forwardMs),
    each(({ backwardMs }, inside) => backwardMs + inside),
    each((stage, inside) => input(stage) + inside),
    each((stage) => stage.weightMs ?? stage.backwardMs - input(stage)),
    each(({ recomputeMs = 0 }) => recomputeMs),
  ];
}

/** Orders actions that become ready at the same time: the lower micro-batch, then the backward. */
export function byTieRule(a: Action, b: Action): number {
  return a.microBatch - b.microBatch || Number(a.kind === "F") - Number(b.kind === "F");
}

/**
 * Simulates a step. Workers follow the policies of the schedule, as in training; the supervisor
 * injects `injectionLimit` micro-batches and one more for each that comes back; of actions that
 * become ready at the same time the lower micro-batch is first, then the backward.
 *
 * @throws {RangeError} if a figure of the model is not usable, or if the policies stop before the end
 * of the step.
 *
 * @example A late gradient
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { createSchedule, simulateStep } from "@troupe/troupe/schedules";
 *
 * const options = { workers: 2, microBatches: 3, order: "fifo" } as const;
 * const schedule = createSchedule("message-driven", options);
 * const stage = { forwardMs: 1, backwardMs: 2 };
 * const network = { link: { latencyMs: 0.5 } };
 * const { makespanMs, workers } = simulateStep({ schedule, stages: [stage, stage], network });
 * strictEqual(makespanMs, 14);
 * strictEqual(workers[0]?.communicationMs, 1);
 * ```
 */
export function simulateStep(model: StepModel): SimulatedStep {
  return simulateWithin(model, Infinity)!;
}

/**
 * Simulates a step whose actions end within a time, to compare many steps: it stops when the work
 * that a worker has left shows that they take longer.
 *
 * @returns undefined if it stopped.
 * @throws {RangeError} as {@linkcode simulateStep}.
 */
export function simulateWithin(
  model: StepModel,
  mostComputedMs: number,
): SimulatedStep | undefined {
  checkModel(model);
  const run = new StepRun(model, mostComputedMs), { workers } = run, { name } = model.schedule;
  if (!run.run()) return undefined;
  const stuck = workers.findIndex(({ policy }) => !policy.done);
  const received = `no action from it after ${workers[stuck]?.starts.length} actions`;
  const must = `the policy of worker ${stuck} must end the step`;
  assertInput(stuck < 0, `simulate ${name}`, must, received);
  const schedule = followsLists(model.schedule)
    ? model.schedule
    : withOrders(model.schedule, name, workers.map(({ taken = [] }) => taken));
  const computedMs = workers.reduce((most, { ends }) => Math.max(most, ends.at(-1) ?? 0), 0);
  const makespanMs = run.endedMs ?? computedMs;
  const timeline = {
    starts: workers.map(({ starts }) => new Float64Array(starts)),
    ends: workers.map(({ ends }) => new Float64Array(ends)),
    makespan: computedMs,
  };
  const dispatchMs = model.dispatchMs ?? 0;
  return {
    schedule,
    makespanMs,
    computedMs,
    timeline,
    workers: workers.map((worker) => timesOf(worker, dispatchMs, computedMs, makespanMs)),
    closing: workers.map(({ closing }) => closing.sort((a, b) => a.startMs - b.startMs)),
    ...memoryOf(model, schedule, timeline, workers),
  };
}

function timesOf(
  { starts, ends, communicationMs, closing }: SimulatedWorker,
  dispatchEachMs: number,
  computedMs: number,
  makespanMs: number,
): WorkerTimes {
  const busyMs = starts.reduce((sum, start, i) => sum + (ends[i]! - start), 0);
  const dispatchMs = starts.length * dispatchEachMs;
  let closingEarlyMs = 0;
  for (const { what, startMs, endMs } of closing) {
    if (what !== "reduce") closingEarlyMs += Math.max(0, Math.min(endMs, computedMs) - startMs);
  }
  return {
    busyMs,
    dispatchMs,
    communicationMs,
    // Rounding may give a small negative sum for a worker that never waits.
    bubbleMs: Math.max(0, computedMs - busyMs - dispatchMs - communicationMs - closingEarlyMs),
    closingMs: makespanMs - computedMs + closingEarlyMs,
  };
}

function memoryOf(
  { stages, loads }: StepModel,
  schedule: ListedSchedule,
  { starts, ends }: SimulatedStep["timeline"],
  workers: readonly SimulatedWorker[],
): Pick<SimulatedStep, "peakBytes" | "memoryOf"> {
  const { placement, weightVersions, lists } = schedule;
  const held = placement.map((copies, worker) =>
    heldBytes(copies.map(({ stage }) => stages[stage]!.memory), weightVersions[worker] ?? 1)
  );
  const routes = stageRoutes(schedule.stages, schedule.edges);
  const freed = routes && freedBy(routes, bytesOf(schedule.edges!));
  const levels = (worker: number) => {
    const come = freed && comeByTimes(ends[worker]!, workers[worker]!.received);
    const skips = come && { come, freed }, loadOf = loads && ((m: number) => loads[m]!.bytes);
    const memoryOf = (stage: number) => stages[stage]!.memory;
    return eachLevel(lists[worker]!, memoryOf, held[worker]!, skips, loadOf);
  };
  const hasMemory = routes !== undefined || stages.some(({ memory }) => memory !== undefined);
  return {
    peakBytes: held.map((fixed, worker) => {
      if (!hasMemory) return fixed;
      return levels(worker).reduce((most, { bytes }) => Math.max(most, bytes), fixed);
    }),
    memoryOf(worker): MemoryCurve {
      const all = [...levels(worker)];
      const times = all.map(({ index, isEnd }) => (isEnd ? ends : starts)[worker]![index]!);
      return { timesMs: [0, ...times], bytes: [held[worker]!, ...all.map(({ bytes }) => bytes)] };
    },
  };
}

/**
 * The lists of a schedule: its own, or for a message-driven schedule the order in which its workers
 * handle the messages under the given costs, in a simulation as by {@linkcode simulateStep}.
 *
 * @throws {RangeError} if a cost is not usable, or if the policies stop before the end of the step.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { createSchedule, withLists } from "@troupe/troupe/schedules";
 *
 * const options = { workers: 2, microBatches: 3, order: "fifo" } as const;
 * const schedule = createSchedule("message-driven", options);
 * strictEqual(String(withLists(schedule).lists[0]), "0F0,0F1,0B0,0F2,0B1,0B2");
 * ```
 */
export function withLists(schedule: Schedule, costs: Costs = {}): ListedSchedule {
  const { lists } = schedule;
  if (lists !== undefined) return { ...schedule, lists };
  return simulateStep(modelOfCosts(schedule, costs)).schedule;
}
