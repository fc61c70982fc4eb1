/** Simulates a schedule whose order depends on arrival: which action each worker takes, when. */

import { type Action, parts } from "../actions/action.ts";
import { KIND } from "../actions/action_list.ts";
import { withOrders } from "../definition/from_lists.ts";
import { takeOffers } from "../policies/offers.ts";
import type { StepPolicy } from "../policies/policy.ts";
import type { ListedSchedule, Schedule } from "../schedule.ts";
import { hostTable } from "../stages.ts";
import type { Costs } from "./costs.ts";
import { type StageTimes, stageTimes } from "./stage_times.ts";
import { TimeQueue } from "./time_queue.ts";

/**
 * The lists of a schedule: its own, or for a message-driven one the order in which its workers
 * take the messages under the given costs. The supervisor injects `injectionLimit` micro-batches
 * and one more for each that comes back; of actions that become ready at the same moment the
 * lower micro-batch counts as first, then the backward.
 *
 * @throws {RangeError} if a cost is not usable, or if the policies stop before the step is done.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { createSchedule, withLists } from "@troupe/troupe/schedules";
 *
 * const schedule = createSchedule("message-driven", { workers: 2, microBatches: 3 });
 * strictEqual(String(withLists(schedule).lists[0]), "0F0,0F1,0B0,0F2,0B1,0B2");
 * ```
 */
export function withLists(schedule: Schedule, costs: Costs = {}): ListedSchedule {
  const { lists } = schedule;
  if (lists !== undefined) return { ...schedule, lists };
  return withOrders(schedule, schedule.name, new Simulation(schedule, costs).run());
}

/** An action whose inputs have arrived, or the supervisor's order to send in a micro-batch. */
interface Arrival {
  readonly worker: number;
  readonly action: Action;
}

class Simulation {
  readonly #schedule: Schedule;
  readonly #times: StageTimes;
  readonly #hosts: Int32Array;
  readonly #policies: readonly StepPolicy[];
  readonly #ready: Action[][];
  readonly #taken: Action[][];
  readonly #running: (Action | undefined)[];
  readonly #queue = new TimeQueue<Arrival | { readonly ended: number }>();
  #injected = 0;

  constructor(schedule: Schedule, costs: Costs) {
    const each = <T>(make: (worker: number) => T) =>
      Array.from({ length: schedule.workers }, (_, worker) => make(worker));
    this.#schedule = schedule;
    this.#times = stageTimes(schedule, costs);
    this.#hosts = hostTable(schedule);
    this.#policies = each((worker) => schedule.policy(worker));
    this.#ready = each(() => []);
    this.#taken = each(() => []);
    this.#running = each(() => undefined);
  }

  run(): readonly (readonly Action[])[] {
    for (let i = 0; i < this.#schedule.injectionLimit; i++) this.#inject(0);
    while (this.#queue.size > 0) {
      const { time, items } = this.#queue.take();
      for (const item of items) if ("ended" in item) this.#end(item.ended, time);
      const arrivals = items.filter((item) => "action" in item);
      for (const { worker, action } of arrivals.sort(byTieRule)) this.#ready[worker]?.push(action);
      for (const { worker } of arrivals) this.#choose(worker, time);
    }
    const stuck = this.#policies.findIndex((policy) => !policy.done);
    if (stuck >= 0) {
      throw new RangeError(
        `Cannot simulate ${this.#schedule.name}: the policy of worker ${stuck} must end the ` +
          `step, received no action from it after ${this.#taken[stuck]?.length} actions`,
      );
    }
    return this.#taken;
  }

  #inject(time: number): void {
    if (this.#injected === this.#schedule.microBatches) return;
    const action: Action = { kind: "F", stage: 0, microBatch: this.#injected++ };
    this.#queue.add(time, { worker: this.#host(0, action.microBatch), action });
  }

  #arrive(time: number, send: number, action: Action, from: number): void {
    const worker = this.#host(action.stage, action.microBatch);
    if (worker === from) this.#ready[worker]?.push(action);
    else this.#queue.add(time + send, { worker, action });
  }

  #choose(worker: number, time: number): void {
    const ready = this.#ready[worker];
    if (ready === undefined || this.#running[worker] !== undefined) return;
    const action = this.#policies[worker]?.next(ready);
    if (action === undefined) return;
    takeOffers(ready, action);
    let duration = 0;
    for (const { kind, stage, half } of parts(action)) {
      const whole = this.#times.durations[KIND[kind]]?.[stage] ?? 0;
      duration += half === undefined ? whole : whole / 2;
    }
    if (action.overlap !== undefined) duration = this.#times.overlap ?? duration;
    this.#taken[worker]?.push(action);
    this.#running[worker] = action;
    this.#queue.add(time + duration, { ended: worker });
  }

  #end(worker: number, time: number): void {
    const action = this.#running[worker] as Action;
    this.#running[worker] = undefined;
    const last = this.#schedule.stages - 1;
    for (const part of parts(action)) {
      const { kind, stage, microBatch } = part;
      const send = (edge: number) => this.#times.send[edge] ?? 0;
      if (kind === "F") {
        if (stage === last) this.#arrive(time, 0, { kind: "B", stage, microBatch }, worker);
        else this.#arrive(time, send(stage), { ...part, stage: stage + 1 }, worker);
        continue;
      }
      if (kind === "I") this.#arrive(time, 0, { kind: "W", stage, microBatch }, worker);
      if (kind === "W") continue;
      if (stage === 0) this.#inject(time);
      else this.#arrive(time, send(stage - 1), { ...part, kind: "B", stage: stage - 1 }, worker);
    }
    this.#choose(worker, time);
  }

  #host(stage: number, microBatch: number): number {
    const replica = this.#schedule.replicaOf[microBatch] ?? 0;
    return this.#hosts[replica * this.#schedule.stages + stage] as number;
  }
}

/** Actions that become ready at the same moment: the lower micro-batch, then the backward. */
function byTieRule({ action: a }: Arrival, { action: b }: Arrival): number {
  return a.microBatch - b.microBatch || Number(a.kind === "F") - Number(b.kind === "F");
}
