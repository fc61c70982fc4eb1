/**
 * The ways to explore.
 *
 * @module
 */

export { delay } from "./delay.ts";
export { type Dfs, dfs } from "./dfs.ts";
export { fifo } from "./fifo.ts";
export { pct } from "./pct.ts";
export { portfolio } from "./portfolio.ts";
export { pos } from "./pos.ts";
export { random } from "./random.ts";
export { deviate, ReplayError, replayOf } from "./replay.ts";
export {
  type Deviation,
  FIRST_EXPECTED_STEPS,
  type NextTimer,
  PRUNE,
  type RunStart,
  type Strategy,
  WAIT,
} from "./strategy.ts";
