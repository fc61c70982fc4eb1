/**
 * Exhaustive search.
 *
 * @module
 */

import { PRUNE, type Strategy, WAIT } from "./strategy.ts";

/** {@linkcode dfs}, and what it has found. */
export interface Dfs extends Strategy {
  /** Distinct states met so far, those at the end of a run included. */
  readonly states: number;
}

/** A choice on the path of the run. */
interface Turn {
  choice: number;
  readonly candidates: number;
  /** The candidates, and the next timer if that is near. */
  readonly arity: number;
}

/**
 * Every order, depth first, but for states met before: from there on everything is known. It needs
 * actors that expose all of their state ({@linkcode Context.expose}); the queues, timers and
 * questions are the system's own and always count. A run repeats the path to where it
 * branches off, as an actor's state cannot be copied. All runs are of one seed, and without faults.
 *
 * @param limit most states.
 * @throws {RangeError} (from `choose`) when there are more.
 *
 * @example
 * ```ts
 * import { dfs } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * assert.equal(dfs().states, 0);
 * ```
 */
export function dfs(limit = 1_000_000): Dfs {
  const known = new Set<number>(), path: Turn[] = [];
  let depth = 0, isWalked = false;

  /** Adds a state, and returns whether it is new. */
  const meet = (state: number) => {
    const before = known.size;
    if (known.add(state).size <= limit) return known.size > before;
    throw new RangeError(`Cannot explore by dfs: there must be at most ${limit} states`);
  };
  return {
    name: "dfs",
    isExhaustive: true,
    get states() {
      return known.size;
    },
    begin() {
      depth = 0;
      while (isWalked && path.length > 0 && ++path.at(-1)!.choice >= path.at(-1)!.arity) path.pop();
      if (isWalked && path.length === 0) return false;
      isWalked = true;
      return true;
    },
    choose({ length: candidates }, _step, state, timer) {
      const turn = path[depth];
      if (!turn && !meet(state())) return PRUNE;
      depth++;
      if (turn) return turn.choice < turn.candidates ? turn.choice : WAIT;
      path.push({ choice: 0, candidates, arity: candidates + (timer === "near" ? 1 : 0) });
      return 0;
    },
    end: (state) => void meet(state()),
  };
}
