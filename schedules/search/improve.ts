/** Local search: makes the order of a step shorter, one move at a time. */

import { uniformInt } from "pure-rand/distribution/uniformInt";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";
import type { Action } from "../actions/action.ts";
import { actionTables } from "./action_tables.ts";
import { type Move, TimedOrder } from "./timed_order.ts";
import type { Workload } from "./workload.ts";

/** How long to search, and within what. */
export interface ImproveOptions {
  /** The number of orders to try. */
  readonly tries: number;
  /** The seed of the random choices; the same seed gives the same order. */
  readonly seed: number;
  /** For each worker, the most live (stage, micro-batch) activations. */
  readonly limits: readonly number[];
}

/** How much longer than the current order a try may be at first, as a part of the makespan. */
const TOLERANCE = 0.01;

/**
 * Improves an order of plain actions (no doubled forward, half backward or overlap; backwards split)
 * by threshold accepting: it moves an action of the critical path past those before it on the same
 * worker that only hold it up, or one of these behind it, and keeps the result if it is not much
 * longer; "not much" goes to zero. The result is never longer than what it was given.
 */
export function improveOrder(
  load: Workload,
  orders: readonly (readonly Action[])[],
  { tries, seed, limits }: ImproveOptions,
): Action[][] {
  const tables = actionTables(load);
  const given = orders.map((order) => Int32Array.from(order, tables.codeOf));
  const timed = new TimedOrder(tables, limits);
  const random = xoroshiro128plus(seed);
  let current = timed.reset(given);
  let best = { makespan: current, orders: given };
  let moves = timed.criticalMoves();
  for (let i = 0; i < tries && moves.length > 0; i++) {
    const move = moves.splice(uniformInt(random, 0, moves.length - 1), 1)[0] as Move;
    const most = current + current * TOLERANCE * (1 - i / tries);
    const makespan = timed.try(move, most);
    if (makespan <= most) {
      timed.accept();
      current = makespan;
    } else {
      timed.undo(move);
      if (moves.length > 0) continue;
      // Every move made it worse; go on from the best.
      if (current === best.makespan) break;
      current = timed.reset(best.orders);
    }
    if (current < best.makespan) {
      best = { makespan: current, orders: timed.orders.map((one) => one.slice()) };
    }
    moves = timed.criticalMoves();
  }
  return best.orders.map((order) => Array.from(order, tables.actionOf));
}
