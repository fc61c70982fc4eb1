/** One step, event by event: actions start and end, messages arrive, the step is closed. */

import { type Action, parts } from "../action.ts";
import { KIND } from "../action_list.ts";
import { bytesOf, type Received, type SizeOf } from "../analysis/skip_memory.ts";
import { latest } from "../costs.ts";
import { openOffers, type StepOffers } from "../dependencies.ts";
import { type StepPolicy, takeOffers } from "../policies.ts";
import type { ListedSchedule, Schedule } from "../schedule.ts";
import type { Way } from "../skip_edges.ts";
import { TimeQueue } from "../time_queue.ts";
import {
  type ClosingSpan,
  type Draws,
  drawsOf,
  recomputedStages,
  type StageModel,
  type StepModel,
} from "./model.ts";
import { Channels } from "./network.ts";
import {
  CommittedEnd,
  type EndPorts,
  openLocalEnd,
  type SpanName,
  type StepEnd,
} from "./step_end.ts";

/** What happens at a time. */
interface StepEvent {
  readonly worker: number;
  /** The action whose input has arrived at the worker. */
  readonly arrived: Action | undefined;
  /** The way over which it came, where that was a skip edge. */
  readonly way?: Way | undefined;
  /** When that was sent. */
  readonly sentMs: number;
  /** What else happens; where nothing does and nothing has arrived, the worker is free. */
  readonly then: (() => void) | undefined;
}

/** What a worker is to do before its next action. */
interface Task {
  readonly ms: number;
  readonly name: SpanName;
  readonly then: () => void;
}

/** A worker of the simulation. */
export interface SimulatedWorker {
  readonly policy: StepPolicy;
  readonly ready: Action[];
  /** What it ran, unless that is known to be its list. */
  readonly taken: Action[] | undefined;
  /** When each of its actions ran. */
  readonly starts: number[];
  readonly ends: number[];
  readonly tasks: Task[];
  readonly closing: ClosingSpan[];
  /** What came over skip edges. */
  readonly received: Received[];
  /** Whether it runs an action, does a task, or waits until its messages are sent. */
  isBusy: boolean;
  running: Action | undefined;
  /** When it last became free. */
  freeMs: number;
  communicationMs: number;
}

/** A simulation under way. */
export class StepRun {
  readonly workers: readonly SimulatedWorker[];
  readonly #model: StepModel;
  readonly #schedule: Schedule;
  readonly #stages: readonly StageModel[];
  readonly #durations: readonly Float64Array[];
  readonly #offers: StepOffers;
  readonly #draws: Draws;
  readonly #channels: Channels;
  /** The bytes of what takes a way over skip edges. */
  readonly #skipBytes: SizeOf;
  readonly #queue = new TimeQueue<StepEvent>();
  readonly #end: StepEnd | undefined;
  #now = 0;
  #injected = 0;
  #endedMs: number | undefined;

  constructor(model: StepModel) {
    const { schedule, stages, network, jitter } = model;
    this.#model = model;
    this.#schedule = schedule;
    this.#stages = stages;
    this.#durations = durationsOf(model);
    this.#offers = openOffers(schedule);
    this.#draws = drawsOf(jitter);
    this.#channels = new Channels(network, schedule.workers);
    this.#skipBytes = bytesOf(schedule.edges ?? []);
    const isKnown = followsLists(schedule);
    this.workers = Array.from({ length: schedule.workers }, (_, worker) => ({
      policy: schedule.policy(worker),
      ready: [],
      taken: isKnown ? undefined : [],
      starts: [],
      ends: [],
      tasks: [],
      closing: [],
      received: [],
      isBusy: false,
      running: undefined,
      freeMs: 0,
      communicationMs: 0,
    }));
    this.#end = this.#openEnd();
  }

  /** When the step has ended, if it is closed. */
  get endedMs(): number | undefined {
    return this.#endedMs;
  }

  /** Goes on until nothing happens any more. */
  run(): void {
    const beginMs = this.#model.controlMs ?? 0;
    for (let i = 0; i < this.#schedule.injectionLimit; i++) this.#inject(beginMs, 0);
    this.#end?.begin();
    while (this.#queue.size > 0) {
      const { time, items } = this.#queue.take();
      this.#now = time;
      let arrivals = 0;
      for (const event of items) {
        if (event.arrived !== undefined) items[arrivals++] = event;
        else if (event.then !== undefined) event.then();
        else this.#free(event.worker);
      }
      if (arrivals > 0) this.#receive(items.slice(0, arrivals));
    }
  }

  /** Messages have arrived at one moment. */
  #receive(arrivals: StepEvent[]): void {
    if (arrivals.length > 1) arrivals.sort((a, b) => byTieRule(a.arrived!, b.arrived!));
    for (const { worker, arrived, way } of arrivals) {
      this.#offers.arrive(arrived!, way);
      this.#offers.offer(arrived!, this.workers[worker]!.ready);
    }
    for (const { worker, sentMs } of arrivals) this.#choose(worker, sentMs);
  }

  #inject(time: number, sentMs: number): void {
    const { microBatches, slices = 1 } = this.#schedule;
    if (this.#injected === microBatches) return;
    const whole: Action = { kind: "F", stage: 0, microBatch: this.#injected++ };
    const arrived = slices === 1 ? whole : { ...whole, slice: 0 };
    const worker = this.#offers.hostOf(whole);
    this.#queue.add(time, { worker, arrived, sentMs, then: undefined });
  }

  /** Does the next task of a worker that is free, or else runs what its policy picks. */
  #choose(index: number, sentMs: number): void {
    const worker = this.workers[index]!, { ready, policy, tasks } = worker;
    if (worker.isBusy) return;
    if (tasks.length > 0) return this.#doTask(index, tasks.shift()!);
    const action = policy.next(ready);
    if (action === undefined) return;
    takeOffers(ready, action);
    worker.communicationMs += this.#now - Math.max(worker.freeMs, sentMs);
    const start = this.#now + (this.#model.dispatchMs ?? 0);
    const end = start + this.#duration(index, action);
    worker.taken?.push(action);
    worker.starts.push(start);
    worker.ends.push(end);
    worker.running = action;
    this.#freeAt(index, end);
  }

  #freeAt(worker: number, time: number): void {
    this.workers[worker]!.isBusy = true;
    this.#queue.add(time, { worker, arrived: undefined, sentMs: time, then: undefined });
  }

  #doTask(index: number, { ms, name, then }: Task): void {
    const worker = this.workers[index]!, startMs = this.#now, endMs = startMs + ms;
    worker.isBusy = true;
    this.#at(endMs, () => {
      worker.closing.push({ ...name, startMs, endMs });
      then();
      this.#free(index);
    });
  }

  #at(time: number, then: () => void): void {
    this.#queue.add(time, { worker: -1, arrived: undefined, sentMs: time, then });
  }

  #duration(worker: number, action: Action): number {
    const { slices = 1 } = this.#schedule;
    let duration = 0;
    for (const { kind, stage, half } of parts(action)) {
      const whole = this.#durations[KIND[kind]]![stage]!;
      duration += half === undefined ? whole / slices : whole / 2;
    }
    const { overlapMs, slowdowns } = this.#model;
    if (action.overlap !== undefined && overlapMs !== undefined) duration = overlapMs / slices;
    return duration * (slowdowns?.[worker] ?? 1) * this.#draws.duration(action);
  }

  /** What a worker did has ended: its outputs leave, and it goes on. */
  #free(index: number): void {
    const worker = this.workers[index]!, action = worker.running;
    worker.running = undefined;
    let sentMs = this.#now;
    if (action !== undefined) {
      for (const part of parts(action)) {
        sentMs = Math.max(sentMs, this.#output(index, part));
        if (part.kind === "B" || part.kind === "W") this.#end?.afterBackward(part, index);
      }
    }
    if (sentMs > this.#now && this.#model.network?.isBlocking) {
      return this.#freeAt(index, sentMs);
    }
    worker.isBusy = false;
    worker.freeMs = this.#now;
    this.#choose(index, this.#now);
  }

  /** What a part of an action makes ready. @returns when it has been sent. */
  #output(index: number, part: Action): number {
    const { kind, stage, half, slice = 0 } = part, { ready } = this.workers[index]!;
    let sentMs = this.#now;
    for (const next of this.#offers.follow(part)) {
      const host = this.#offers.hostOf(next);
      if (host !== index) sentMs = Math.max(sentMs, this.#send(index, host, next, part));
      else this.#offers.offer(next, ready);
    }
    for (const way of this.#offers.waysFrom(part)) {
      sentMs = Math.max(sentMs, this.#skip(index, way, part));
    }
    const isBack = (kind === "B" || kind === "I") && stage === 0 && half !== 0 && slice === 0;
    if (isBack) this.#inject(this.#now + 2 * (this.#model.controlMs ?? 0), this.#now);
    return sentMs;
  }

  #send(from: number, to: number, next: Action, part: Action): number {
    const { outputBytes = 0, sendMs = 0 } = this.#stages[Math.min(next.stage, part.stage)]!;
    const { sentMs, time } = this.#passage(from, to, part, { bytes: outputBytes, ms: sendMs });
    this.#queue.add(time, { worker: to, arrived: next, sentMs: this.#now, then: undefined });
    return sentMs;
  }

  /** A message that follows a part: when it has been sent, and when it is there. */
  #passage(from: number, to: number, part: Action, whole: { bytes: number; ms: number }) {
    const { slices = 1 } = this.#schedule, factor = this.#draws.latency(part);
    const bytes = whole.bytes / (part.half === undefined ? slices : 2);
    const { sentMs, arrivesMs } = this.#channels.send(this.#now, from, to, bytes, factor);
    return { sentMs, time: arrivesMs + whole.ms / slices * factor };
  }

  /** What leaves over a skip edge. @returns when it has been sent. */
  #skip(from: number, way: Way, part: Action): number {
    const { slices = 1 } = this.#schedule;
    const next: Action = { ...part, kind: way.isForward ? "F" : "B", stage: way.to };
    const to = this.#offers.hostOf(next), now = this.#now, bytes = this.#skipBytes(way);
    const size = bytes / (part.half === undefined ? slices : 2), { received } = this.workers[to]!;
    if (from === to) {
      received.push({ time: now, size });
      return now;
    }
    const ms = latest(way, this.#model.skipMs ?? []);
    const { sentMs, time } = this.#passage(from, to, part, { bytes, ms });
    received.push({ time, size });
    this.#queue.add(time, { worker: to, arrived: next, way, sentMs: now, then: undefined });
    return sentMs;
  }

  #openEnd(): StepEnd | undefined {
    const { closing, schedule: { updates } } = this.#model;
    if (closing === undefined) return undefined;
    const ports: EndPorts = {
      now: () => this.#now,
      at: (time, then) => this.#at(time, then),
      note: (worker, span) => void this.workers[worker]!.closing.push(span),
      ended: () => void (this.#endedMs = this.#now),
      work: (worker, ms, name, then) => {
        if (ms === 0) return then();
        this.workers[worker]!.tasks.push({ ms, name, then });
        this.#choose(worker, this.#now);
      },
    };
    if (updates !== "flush") return openLocalEnd(this.#model, closing, ports);
    return new CommittedEnd(this.#model, closing, ports);
  }
}

/** Whether all workers run their lists to the letter. */
export function followsLists(schedule: Schedule): schedule is ListedSchedule {
  return schedule.lists !== undefined && (schedule.listPolicy?.name ?? "list") === "list";
}

/** For each kind of action and each stage, of a whole micro-batch. */
function durationsOf({ schedule, stages }: StepModel): Float64Array[] {
  const isAction = recomputedStages(schedule);
  const each = (duration: (stage: StageModel, inside: number) => number) =>
    Float64Array.from(stages, (one, s) => duration(one, isAction[s] ? 0 : one.recomputeMs ?? 0));
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

/** Orders actions that become ready at the same moment: the lower micro-batch, then the backward. */
export function byTieRule(a: Action, b: Action): number {
  return a.microBatch - b.microBatch || Number(a.kind === "F") - Number(b.kind === "F");
}
