/** The discrete-event simulator: one step of training, event by event. */

import { type Action, parts } from "../actions/action.ts";
import { KIND } from "../actions/action_list.ts";
import { withOrders } from "../definition/from_lists.ts";
import { TimeQueue } from "../execution/time_queue.ts";
import { takeOffers } from "../policies/offers.ts";
import type { StepPolicy } from "../policies/policy.ts";
import type { ListedSchedule, Schedule } from "../schedule.ts";
import { hostTable } from "../stages.ts";
import { type Draws, drawsOf } from "./jitter.ts";
import { eachLevel, heldBytes, type MemoryCurve } from "./memory.ts";
import { Channels } from "./network.ts";
import type { SimulatedStep, WorkerTimes } from "./simulated_step.ts";
import type { StageMemory, StageModel, StepModel } from "./step_model.ts";

/**
 * Simulates a step. Workers follow the policies of the schedule, as in training; the supervisor
 * injects `injectionLimit` micro-batches and one more for each that comes back; of actions that
 * become ready at the same moment the lower micro-batch counts as first, then the backward.
 *
 * @throws {RangeError} if the policies stop before the step is done.
 *
 * @example A late gradient
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { createSchedule, simulateStep } from "@troupe/troupe/schedules";
 *
 * const schedule = createSchedule("message-driven", { workers: 2, microBatches: 3 });
 * const stage = { forwardMs: 1, backwardMs: 2 };
 * const network = { link: { latencyMs: 0.5 } };
 * const { makespanMs, workers } = simulateStep({ schedule, stages: [stage, stage], network });
 * strictEqual(makespanMs, 14);
 * strictEqual(workers[0]?.communicationMs, 1);
 * ```
 */
export function simulateStep(model: StepModel): SimulatedStep {
  return new StepRun(model).run();
}

/** An action whose inputs have arrived, or the end of one. */
interface StepEvent {
  readonly worker: number;
  /** What has arrived; what ran has ended where there is none. */
  readonly arrived: Action | undefined;
  /** When it was sent. */
  readonly sentMs: number;
}

/** A worker of the simulation. */
interface SimulatedWorker {
  readonly policy: StepPolicy;
  readonly ready: Action[];
  readonly taken: Action[];
  readonly starts: number[];
  readonly ends: number[];
  running: Action | undefined;
  /** When it last became free. */
  freeMs: number;
  communicationMs: number;
  /** Until when it waits for its messages to be sent. */
  sendingMs: number;
}

class StepRun {
  readonly #model: StepModel;
  readonly #schedule: Schedule;
  readonly #stages: readonly StageModel[];
  readonly #durations: readonly Float64Array[];
  readonly #hosts: Int32Array;
  readonly #draws: Draws;
  readonly #channels: Channels;
  readonly #workers: readonly SimulatedWorker[];
  readonly #queue = new TimeQueue<StepEvent>();
  #injected = 0;

  constructor(model: StepModel) {
    const { schedule, stages, network, jitter } = model;
    this.#model = model;
    this.#schedule = schedule;
    this.#stages = stages;
    this.#durations = durationsOf(stages);
    this.#hosts = hostTable(schedule);
    this.#draws = drawsOf(jitter);
    this.#channels = new Channels(network, schedule.workers);
    this.#workers = Array.from({ length: schedule.workers }, (_, worker) => ({
      policy: schedule.policy(worker),
      ready: [],
      taken: [],
      starts: [],
      ends: [],
      running: undefined,
      freeMs: 0,
      communicationMs: 0,
      sendingMs: 0,
    }));
  }

  run(): SimulatedStep {
    for (let i = 0; i < this.#schedule.injectionLimit; i++) this.#inject(0, 0);
    while (this.#queue.size > 0) {
      const { time, items } = this.#queue.take();
      for (const item of items) if (item.arrived === undefined) this.#end(item.worker, time);
      const arrivals = items.filter(({ arrived }) => arrived !== undefined).sort(byTieRule);
      for (const { worker, arrived } of arrivals) this.#workers[worker]!.ready.push(arrived!);
      for (const { worker, sentMs } of arrivals) this.#choose(worker, time, sentMs);
    }
    this.#refuseUndone();
    return this.#result();
  }

  #inject(time: number, sentMs: number): void {
    if (this.#injected === this.#schedule.microBatches) return;
    const arrived: Action = { kind: "F", stage: 0, microBatch: this.#injected++ };
    this.#queue.add(time, { worker: this.#host(arrived), arrived, sentMs });
  }

  /** Runs what the policy picks, if the worker is free and anything is ready. */
  #choose(index: number, time: number, sentMs: number): void {
    const worker = this.#workers[index]!, { ready, policy } = worker;
    if (worker.running !== undefined || worker.sendingMs > time) return;
    const action = policy.next(ready);
    if (action === undefined) return;
    takeOffers(ready, action);
    worker.communicationMs += time - Math.max(worker.freeMs, sentMs);
    const start = time + (this.#model.dispatchMs ?? 0), end = start + this.#duration(index, action);
    worker.taken.push(action);
    worker.starts.push(start);
    worker.ends.push(end);
    worker.running = action;
    this.#queue.add(end, { worker: index, arrived: undefined, sentMs: end });
  }

  #duration(worker: number, action: Action): number {
    let duration = 0;
    for (const { kind, stage, half } of parts(action)) {
      const whole = this.#durations[KIND[kind]]![stage]!;
      duration += half === undefined ? whole : whole / 2;
    }
    if (action.overlap !== undefined) duration = this.#model.overlapMs ?? duration;
    return duration * (this.#model.slowdowns?.[worker] ?? 1) * this.#draws.duration(action);
  }

  #end(index: number, time: number): void {
    const worker = this.#workers[index]!, action = worker.running;
    worker.running = undefined;
    worker.freeMs = time;
    if (action !== undefined) { for (const part of parts(action)) this.#output(index, part, time); }
    if (worker.sendingMs > time) {
      const sentMs = worker.sendingMs;
      this.#queue.add(sentMs, { worker: index, arrived: undefined, sentMs });
    } else this.#choose(index, time, time);
  }

  /** What a part of an action makes ready. */
  #output(index: number, part: Action, time: number): void {
    const { kind, stage, microBatch, half } = part;
    if (kind === "W") return;
    if (kind === "I") this.#workers[index]!.ready.push({ kind: "W", stage, microBatch });
    const isForward = kind === "F";
    if (isForward && stage === this.#schedule.stages - 1) {
      this.#workers[index]!.ready.push({ kind: "B", stage, microBatch });
    } else if (isForward || stage > 0) {
      const next: Action = isForward
        ? { kind, stage: stage + 1, microBatch }
        : { ...part, kind: "B", stage: stage - 1 };
      this.#send(index, next, part, time);
    } else if (half !== 0) this.#inject(time + 2 * (this.#model.controlMs ?? 0), time);
  }

  #send(from: number, next: Action, part: Action, time: number): void {
    const worker = this.#host(next);
    if (worker === from) return void this.#workers[from]!.ready.push(next);
    const { outputBytes = 0, sendMs = 0 } = this.#stages[Math.min(next.stage, part.stage)]!;
    const bytes = part.half === undefined ? outputBytes : outputBytes / 2;
    const latencyFactor = this.#draws.latency(part);
    const passage = this.#channels.send(time, from, worker, bytes, latencyFactor);
    if (this.#model.network?.isBlocking) {
      const sender = this.#workers[from]!;
      sender.sendingMs = Math.max(sender.sendingMs, passage.sentMs);
    }
    const arrivesMs = passage.arrivesMs + sendMs * latencyFactor;
    this.#queue.add(arrivesMs, { worker, arrived: next, sentMs: time });
  }

  #host({ stage, microBatch }: Action): number {
    const { replicaOf, stages } = this.#schedule;
    return this.#hosts[replicaOf[microBatch]! * stages + stage]!;
  }

  #refuseUndone(): void {
    const stuck = this.#workers.findIndex(({ policy }) => !policy.done);
    if (stuck < 0) return;
    throw new RangeError(
      `Cannot simulate ${this.#schedule.name}: the policy of worker ${stuck} must end the ` +
        `step, received no action from it after ${this.#workers[stuck]!.taken.length} actions`,
    );
  }

  #result(): SimulatedStep {
    const workers = this.#workers, schedule = this.#listed();
    const computedMs = workers.reduce((most, { ends }) => Math.max(most, ends.at(-1) ?? 0), 0);
    const makespanMs = computedMs;
    const timeline = {
      starts: workers.map(({ starts }) => Float64Array.from(starts)),
      ends: workers.map(({ ends }) => Float64Array.from(ends)),
      makespan: computedMs,
    };
    const held = schedule.placement.map((copies, worker) =>
      heldBytes(
        copies.map(({ stage }) => this.#stages[stage]!.memory ?? NO_MEMORY),
        schedule.weightVersions[worker] ?? 1,
      )
    );
    const memory = (stage: number) => this.#stages[stage]!.memory;
    const levels = (worker: number, visit: Parameters<typeof eachLevel>[3]) =>
      eachLevel(schedule.lists[worker]!, memory, held[worker]!, visit);
    return {
      schedule,
      makespanMs,
      computedMs,
      timeline,
      workers: workers.map((worker) => this.#times(worker, computedMs, makespanMs)),
      closing: workers.map(() => []),
      peakBytes: held.map((bytes, worker) => {
        let peak = bytes;
        levels(worker, (_index, _isEnd, level) => peak = Math.max(peak, level));
        return peak;
      }),
      memoryOf(worker): MemoryCurve {
        const timesMs = [0], bytes = [held[worker]!];
        levels(worker, (index, isEnd, level) => {
          timesMs.push((isEnd ? timeline.ends : timeline.starts)[worker]![index]!);
          bytes.push(level);
        });
        return { timesMs, bytes };
      },
    };
  }

  /** The schedule with the orders that were taken. */
  #listed(): ListedSchedule {
    const schedule = this.#schedule, { lists, listPolicy } = schedule;
    if (lists !== undefined && (listPolicy?.name ?? "list") === "list") {
      return { ...schedule, lists };
    }
    return withOrders(schedule, schedule.name, this.#workers.map(({ taken }) => taken));
  }

  #times(worker: SimulatedWorker, computedMs: number, makespanMs: number): WorkerTimes {
    const { starts, ends, communicationMs } = worker;
    let busyMs = 0;
    for (let i = 0; i < starts.length; i++) busyMs += ends[i]! - starts[i]!;
    const dispatchMs = starts.length * (this.#model.dispatchMs ?? 0);
    const bubbleMs = computedMs - busyMs - dispatchMs - communicationMs;
    return { busyMs, dispatchMs, communicationMs, bubbleMs, closingMs: makespanMs - computedMs };
  }
}

const NO_MEMORY: StageMemory = { keptBytes: 0 };

/** For each kind of action and each stage. */
function durationsOf(stages: readonly StageModel[]): Float64Array[] {
  const each = (duration: (stage: StageModel) => number) => Float64Array.from(stages, duration);
  const input = ({ backwardMs, inputMs, weightMs }: StageModel) =>
    inputMs ?? (weightMs === undefined ? backwardMs / 2 : backwardMs - weightMs);
  const recompute = ({ recomputeMs = 0 }: StageModel) => recomputeMs;
  return [
    each(({ forwardMs }) => forwardMs),
    each((stage) => stage.backwardMs + recompute(stage)),
    each((stage) => input(stage) + recompute(stage)),
    each((stage) => stage.weightMs ?? stage.backwardMs - input(stage)),
  ];
}

/** Actions that become ready at the same moment: the lower micro-batch, then the backward. */
function byTieRule({ arrived: a }: StepEvent, { arrived: b }: StepEvent): number {
  return a!.microBatch - b!.microBatch || Number(a!.kind === "F") - Number(b!.kind === "F");
}
