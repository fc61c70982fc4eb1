/**
 * A second executor, made in another way than the analysis: workers with mailboxes and a clock,
 * driven by the policies that the training actors use, with any duration for any action.
 */

import assert from "node:assert/strict";
import {
  type Action,
  formatAction,
  hostTable,
  parts,
  type Schedule,
  type StepPolicy,
} from "../../schedules/mod.ts";

/** How long things take. */
export interface Clock {
  /** The duration of a plain part of an action. */
  duration(part: Action): number;
  /** The time of a message that follows a part. */
  send(part: Action): number;
}

/** What was seen. */
export interface Observation {
  readonly makespan: number;
  /** For each worker, the time in which it ran nothing. */
  readonly idle: readonly number[];
  /** For each worker, the most (stage, micro-batch) activations at a time. */
  readonly peaks: readonly number[];
  /** For each worker, what it ran, in order. */
  readonly ran: readonly (readonly Action[])[];
  /** The most micro-batches that were on their way at a time. */
  readonly inFlight: number;
}

interface Worker {
  readonly policy: StepPolicy;
  readonly offers: Action[];
  readonly ran: Action[];
  running: { readonly action: Action; readonly end: number } | undefined;
  busy: number;
  live: number;
  peak: number;
}

/** Runs one step. @throws if the step does not come to its end. */
export function observe(schedule: Schedule, clock: Clock): Observation {
  return new Observer(schedule, clock).run();
}

class Observer {
  readonly #schedule: Schedule;
  readonly #clock: Clock;
  readonly #hosts: Int32Array;
  readonly #workers: readonly Worker[];
  readonly #mail: { readonly time: number; readonly worker: number; readonly offer: Action }[] = [];
  readonly #halvesDone = new Map<number, number>();
  readonly #came = new Map<string, number>();
  #now = 0;
  #injected = 0;
  #finished = 0;
  #inFlight = 0;

  constructor(schedule: Schedule, clock: Clock) {
    this.#schedule = schedule;
    this.#clock = clock;
    this.#hosts = hostTable(schedule);
    this.#workers = Array.from({ length: schedule.workers }, (_, worker) => ({
      policy: schedule.policy(worker),
      offers: [],
      ran: [],
      running: undefined,
      busy: 0,
      live: 0,
      peak: 0,
    }));
  }

  run(): Observation {
    this.#inject();
    for (;;) {
      const times = [
        ...this.#mail.map(({ time }) => time),
        ...this.#workers.map(({ running }) => running?.end ?? Infinity),
      ];
      const next = Math.min(...times);
      if (next === Infinity) break;
      this.#now = next;
      this.#workers.forEach((worker, index) => this.#finish(worker, index));
      this.#deliver();
      for (const worker of this.#workers) if (worker.running === undefined) this.#start(worker);
    }
    this.#workers.forEach(({ policy, live }, index) => {
      const waits = policy.waitsFor === undefined ? "nothing" : formatAction(policy.waitsFor);
      assert.ok(policy.done, `worker ${index} of ${this.#schedule.name} waits for ${waits}`);
      assert.equal(live, 0, "activations were left over");
    });
    return {
      makespan: this.#now,
      idle: this.#workers.map(({ busy }) => this.#now - busy),
      peaks: this.#workers.map(({ peak }) => peak),
      ran: this.#workers.map(({ ran }) => ran),
      inFlight: this.#inFlight,
    };
  }

  #inject(): void {
    const { microBatches, injectionLimit } = this.#schedule;
    while (this.#injected < microBatches && this.#injected - this.#finished < injectionLimit) {
      const { slices = 1 } = this.#schedule;
      const whole: Action = { kind: "F", stage: 0, microBatch: this.#injected++ };
      const offer = slices === 1 ? whole : { ...whole, slice: 0 };
      this.#mail.push({ time: this.#now, worker: this.#hostOf(offer), offer });
    }
    this.#inFlight = Math.max(this.#inFlight, this.#injected - this.#finished);
  }

  #hostOf({ stage, microBatch }: Action): number {
    const { replicaOf, stages } = this.#schedule;
    return this.#hosts[replicaOf[microBatch]! * stages + stage]!;
  }

  #post(from: number, part: Action, offer: Action): void {
    const worker = this.#hostOf(offer);
    const time = worker === from ? this.#now : this.#now + this.#clock.send(part);
    this.#mail.push({ time, worker, offer });
  }

  #deliver(): void {
    for (let i = 0; i < this.#mail.length;) {
      const { time, worker, offer } = this.#mail[i]!;
      if (time > this.#now) i++;
      else {
        this.#mail.splice(i, 1);
        if (this.#isComplete(offer)) this.#workers[worker]!.offers.push(offer);
      }
    }
  }

  #start(worker: Worker): void {
    const action = worker.policy.next(worker.offers);
    if (action === undefined) return;
    let duration = 0;
    for (const part of parts(action)) {
      take(worker.offers, part);
      duration += this.#clock.duration(part);
      if (part.kind === "F") worker.live += 1 / (this.#schedule.slices ?? 1);
    }
    worker.peak = Math.max(worker.peak, worker.live);
    worker.busy += duration;
    worker.running = { action, end: this.#now + duration };
    worker.ran.push(action);
  }

  #finish(worker: Worker, index: number): void {
    if (worker.running === undefined || worker.running.end > this.#now) return;
    const { action } = worker.running;
    worker.running = undefined;
    for (const part of parts(action)) this.#output(worker, index, part);
    this.#inject();
  }

  #output(worker: Worker, index: number, part: Action): void {
    const { kind, stage, microBatch, half, slice } = part;
    if (slice !== undefined) return this.#outputSlice(worker, index, part);
    if (kind === "B" || kind === "W") worker.live -= half === undefined ? 1 : 0.5;
    if (kind === "F") {
      const isLast = stage === this.#schedule.stages - 1;
      const next: Action = isLast
        ? { kind: "B", stage, microBatch }
        : { kind: "F", stage: stage + 1, microBatch };
      this.#post(index, part, next);
    }
    if (kind === "I") this.#post(index, part, { kind: "W", stage, microBatch });
    if (kind !== "B" && kind !== "I") return;
    if (stage > 0) this.#post(index, part, { ...part, kind: "B", stage: stage - 1 });
    else {
      const halves = (this.#halvesDone.get(microBatch) ?? 0) + (half === undefined ? 2 : 1);
      this.#halvesDone.set(microBatch, halves);
      if (halves === 2) this.#finished++;
    }
  }

  /** What a slice gives goes to both its neighbours: the next stage, and the slice beside it. */
  #outputSlice(worker: Worker, index: number, part: Action): void {
    const { stages, slices = 1 } = this.#schedule, { kind, stage, slice = 0 } = part;
    const isForward = kind === "F", step = isForward ? 1 : -1;
    const isFreed = kind === "B" || kind === "W";
    if (isFreed) worker.live = Math.round(worker.live * slices - 1) / slices;
    if (kind === "W") return;
    if (kind === "I") this.#post(index, part, { ...part, kind: "W" });
    const given: Action = isForward ? part : { ...part, kind: "B" };
    const next = { ...given, stage: stage + step }, beside = { ...given, slice: slice + step };
    if (next.stage >= 0 && next.stage < stages) this.#post(index, part, next);
    if (beside.slice >= 0 && beside.slice < slices) this.#post(index, part, beside);
    if (isForward) {
      const isEnd = stage === stages - 1 && slice === slices - 1;
      if (isEnd) this.#post(index, part, { ...part, kind: "B" });
      return;
    }
    if (stage === 0 && slice === 0) this.#finished++;
  }

  /** Whether all has come that an action waits for, of a slice from both its neighbours. */
  #isComplete(offer: Action): boolean {
    const { stages, slices = 1 } = this.#schedule, { kind, stage, slice } = offer;
    if (slice === undefined || kind === "W") return true;
    const [first, last] = kind === "F" ? [0, 0] : [stages - 1, slices - 1];
    const name = formatAction(offer), came = (this.#came.get(name) ?? 0) + 1;
    this.#came.set(name, came);
    return came === Math.max(1, Number(stage !== first) + Number(slice !== last));
  }
}

/** Takes what a part needs out of the offers of a worker. */
function take(offers: Action[], part: Action): void {
  const fits = offers.filter(({ kind, stage, microBatch, half, slice }) =>
    slice === part.slice && (kind === part.kind || (kind === "B" && part.kind === "I")) &&
    stage === part.stage &&
    microBatch === part.microBatch &&
    (half === undefined || part.half === undefined || half === part.half)
  );
  assert.ok(fits.length > 0, `${formatAction(part)} ran without its input`);
  for (const one of fits) {
    if (part.half === 0 && one.half === undefined) continue;
    offers.splice(offers.indexOf(one), 1);
  }
}
