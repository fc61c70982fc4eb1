/** Which actions have all their inputs, as a step goes on: what workers are offered. */

import { type Action, formatAction } from "../actions/action.ts";
import { KIND } from "../actions/action_list.ts";
import type { Way } from "../edges/ways.ts";
import { Dependencies } from "../execution/dependencies.ts";
import type { Schedule } from "../schedule.ts";
import { hostTable } from "../stages.ts";

/** The offers of one step. */
export interface StepOffers {
  /** The worker that holds the stage of an action's micro-batch. */
  hostOf(action: Action): number;
  /** A plain action has run. @returns what may follow, a message away or at the same worker. */
  follow(part: Action): Action[];
  /** The ways over skip edges on which something leaves once a plain action has run. */
  waysFrom(part: Action): readonly Way[];
  /**
   * A message for an action has arrived.
   *
   * @param way over which it came; from the stage before or behind unless given.
   */
  arrive(action: Action, way?: Way): void;
  /** Adds an action to what a worker may run if all that it needs is there. */
  offer(action: Action, ready: Action[]): void;
}

/** Opens the offers of a step. */
export function openOffers(schedule: Schedule): StepOffers {
  const { stages } = schedule;
  const dependencies = new Dependencies(
    { ...schedule, hosts: hostTable(schedule) },
    schedule.lists,
  );
  /** 1 for each output that is there where it is made, and where a message takes it. */
  const given = new Uint8Array(dependencies.outputCount);
  const arrived = new Uint8Array(dependencies.arrivalCount);
  // Of the stages that a backward waits for one may give halves, and another all at once.
  const hasHalves = schedule.edges && schedule.lists?.some((list) => list.hasHalves);
  const offeredHalves = hasHalves ? new Set<string>() : undefined;
  const inputsOf = ({ kind, stage, microBatch, half, slice }: Action) =>
    dependencies.inputsOf(KIND[kind], stage, microBatch, half === undefined ? 0 : half + 1, slice);
  const isReady = (action: Action) => {
    const { inputs, edges } = dependencies;
    for (let i = inputsOf(action) - 1; i >= 0; i--) {
      const isThere = edges[i]! < 0 ? given[inputs[i]!] : arrived[dependencies.arrivalOf(i)];
      if (isThere === 0) return false;
    }
    return true;
  };
  return {
    hostOf: ({ stage, microBatch }) => dependencies.hostOf(stage, microBatch),
    follow(part) {
      const { kind, stage, microBatch, half, slice } = part, { outputs } = dependencies;
      const code = half === undefined ? 0 : half + 1;
      const count = dependencies.outputsOf(KIND[kind], stage, microBatch, code, slice);
      for (let i = 0; i < count; i++) given[outputs[i]!] = 1;
      return dependencies.followersOf(part);
    },
    waysFrom: (part) => dependencies.waysFrom(part),
    arrive(action, way) {
      const { edges } = dependencies;
      for (let i = inputsOf(action) - 1; i >= 0; i--) {
        const edge = edges[i]!, isIt = way ? edge === way.number : edge >= 0 && edge < stages;
        if (isIt) arrived[dependencies.arrivalOf(i)] = 1;
      }
    },
    offer(action, ready) {
      if (action.kind !== "B" || offeredHalves === undefined) {
        if (isReady(action)) ready.push(action);
        return;
      }
      for (const half of [0, 1] as const) {
        const one = { ...action, half }, name = formatAction(one);
        if (offeredHalves.has(name) || !isReady(one)) continue;
        offeredHalves.add(name);
        ready.push(one);
      }
    },
  };
}
