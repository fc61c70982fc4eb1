/**
 * What has arrived at a worker and waits for its action, and the arrays that go to and fro.
 *
 * @module
 */

import { type Batch, keyed, type Passed } from "../../kernels/mod.ts";
import { type Action, formatAction } from "../../schedules/mod.ts";
import { CompactingMap } from "../runtime/actor.ts";
import { cut, join, joinPassed, mapPassed } from "./links.ts";

/** What waits for its F or B. */
export interface Arrival {
  readonly tensor?: Passed;
  readonly fields: Batch;
  /** When it came from another actor, where that is traced. */
  readonly at?: number | undefined;
}

/** The inputs of a worker's next actions. */
export interface Arrivals {
  /** The actions whose inputs are here, in the order of their arrival: what a policy picks from. */
  readonly ready: Action[];
  /** An input of an action arrives; the action is ready when so many messages have brought all. */
  add(action: Action, arrival: Arrival, messages: number): void;
  /** An input arrives; gives them all when so many messages have brought them. */
  gather(name: string, arrival: Arrival, messages: number): Arrival | undefined;
  /** The input of an F or W, which leaves. */
  takeForward(action: Action): Arrival;
  /** The gradient for a B or I, or for one half of a B, which leaves; none on the last stage. */
  takeGradient(action: Action): Passed | undefined;
  /** Keeps the arrays that brought activations, for the gradients that go back. */
  keepReturn(action: Action, arrays: Passed): void;
  takeReturn(action: Action): Passed | undefined;
  /** Keeps the arrays that brought gradients of a stage, for the activations that it sends. */
  keepBuffer(stage: number, arrays: Passed): void;
  takeBuffer(stage: number): Passed | undefined;
  /** When the last of the inputs came that have left since this was asked, where that is traced. */
  takeLatest(): number | undefined;
}

/** Nothing has arrived. */
export function openArrivals(): Arrivals {
  const ready: Action[] = [];
  const waiting = new CompactingMap<string, Arrival>(),
    returns = new CompactingMap<string, Passed>();
  const partial = new CompactingMap<
    string,
    { readonly arrival: Arrival; readonly missing: number }
  >();
  const buffers = new Map<number, Passed[]>();
  const keyOf = ({ stage, microBatch, slice = 0 }: Action) => `${stage}/${microBatch}/${slice}`;

  let latest: number | undefined;
  const take = (action: Action) => {
    const arrival = waiting.take(formatAction(action));
    if (arrival?.at !== undefined) latest = Math.max(latest ?? 0, arrival.at);
    return arrival;
  };
  const wanted = (action: Action): Arrival => {
    const arrival = take(action);
    if (arrival) return arrival;
    throw new Error(`Cannot run ${formatAction(action)}: its input must have arrived`);
  };

  const gather = (name: string, arrival: Arrival, messages: number): Arrival | undefined => {
    if (messages <= 1) return arrival;
    const before = partial.take(name);
    const all = before ? together(before.arrival, arrival) : arrival;
    const missing = (before?.missing ?? messages) - 1;
    if (missing === 0) return all;
    partial.set(name, { arrival: all, missing });
  };
  return {
    ready,
    gather,
    add(action, arrival, messages) {
      const name = formatAction(action), all = gather(name, arrival, messages);
      if (!all) return;
      waiting.set(name, all);
      ready.push(action);
    },
    takeForward: wanted,
    takeGradient({ half, ...action }) {
      const whole: Action = { ...action, kind: "B" };
      if (half === undefined) {
        const arrival = take(whole);
        if (arrival) return arrival.tensor;
        // A whole backward whose gradient came in halves.
        return joinPassed(
          ([0, 1] as const).map((half) => wanted({ ...whole, half }).tensor!),
          join,
        );
      }
      const own = take({ ...whole, half });
      if (own) return own.tensor;
      // A half backward whose gradient came whole stays until its second half runs.
      const arrival = wanted(whole), { tensor } = arrival;
      if (half === 0) waiting.set(formatAction(whole), arrival);
      return tensor && mapPassed(tensor, (array) => cut(array, half, 2));
    },
    keepReturn: (action, arrays) => returns.set(keyOf(action), arrays),
    takeReturn: (action) => returns.take(keyOf(action)),
    keepBuffer: (stage, arrays) => void buffers.set(stage, [...buffers.get(stage) ?? [], arrays]),
    takeBuffer: (stage) => buffers.get(stage)?.pop(),
    takeLatest() {
      const taken = latest;
      latest = undefined;
      return taken;
    },
  };
}

/** What two messages have brought. */
function together(a: Arrival, b: Arrival): Arrival {
  return {
    tensor: { ...a.tensor && keyed(a.tensor), ...b.tensor && keyed(b.tensor) },
    fields: { ...a.fields, ...b.fields },
    at: b.at,
  };
}
