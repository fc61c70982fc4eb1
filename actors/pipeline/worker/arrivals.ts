/**
 * What has arrived at a worker and waits for its action, and the arrays that go to and fro.
 *
 * @module
 */

import { BriefMap } from "../../runtime/actor/brief_map.ts";
import type { Batch, MessageArray } from "../../../kernels/mod.ts";
import { type Action, formatAction } from "../../../schedules/mod.ts";
import { cut, join } from "../halves.ts";

/** What waits for its F or B. */
export interface Arrival {
  readonly tensor?: MessageArray;
  readonly fields: Batch;
  /** When it came from another actor, where that is traced. */
  readonly at?: number | undefined;
}

/** The inputs of a worker's next actions. */
export interface Arrivals {
  /** The actions whose inputs are here, in the order of their arrival: what a policy picks from. */
  readonly ready: Action[];
  /** The input of an action arrives. */
  add(action: Action, arrival: Arrival): void;
  /** The input of an F or W, which leaves. */
  takeForward(action: Action): Arrival;
  /** The gradient for a B or I, or for one half of a B, which leaves; none on the last stage. */
  takeGradient(action: Action): MessageArray | undefined;
  /** Keeps the array that brought an activation, for the gradient that goes back. */
  keepReturn(action: Action, array: MessageArray): void;
  takeReturn(action: Action): MessageArray | undefined;
  /** Keeps the array that brought a gradient of a stage, for an activation that it sends. */
  keepBuffer(stage: number, array: MessageArray): void;
  takeBuffer(stage: number): MessageArray | undefined;
  /** When the last of the inputs came that have left since this was asked, where that is traced. */
  takeLatest(): number | undefined;
}

/** Nothing has arrived. */
export function openArrivals(): Arrivals {
  const ready: Action[] = [];
  const waiting = new BriefMap<string, Arrival>(), returns = new BriefMap<string, MessageArray>();
  const buffers = new Map<number, MessageArray[]>();
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

  return {
    ready,
    add(action, arrival) {
      waiting.set(formatAction(action), arrival);
      ready.push(action);
    },
    takeForward: wanted,
    takeGradient({ half, ...action }) {
      const whole: Action = { ...action, kind: "B" };
      if (half === undefined) {
        const arrival = take(whole);
        if (arrival) return arrival.tensor;
        // A whole backward whose gradient came in halves.
        return join(([0, 1] as const).map((half) => wanted({ ...whole, half }).tensor!));
      }
      const own = take({ ...whole, half });
      if (own) return own.tensor;
      // A half backward whose gradient came whole stays until its second half runs.
      const arrival = wanted(whole), { tensor } = arrival;
      if (half === 0) waiting.set(formatAction(whole), arrival);
      return tensor && cut(tensor, half, 2);
    },
    keepReturn: (action, array) => returns.set(keyOf(action), array),
    takeReturn: (action) => returns.take(keyOf(action)),
    keepBuffer: (stage, array) => void buffers.set(stage, [...buffers.get(stage) ?? [], array]),
    takeBuffer: (stage) => buffers.get(stage)?.pop(),
    takeLatest() {
      const taken = latest;
      latest = undefined;
      return taken;
    },
  };
}
