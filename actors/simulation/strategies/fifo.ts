/**
 * Plain order: what happens without a strategy.
 *
 * @module
 */

import type { Strategy } from "./strategy.ts";

/**
 * Always the oldest message, control before data. One run says all that it can say.
 *
 * @example
 * ```ts
 * import { fifo } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * assert.equal(fifo().choose([], 0, () => 0), 0);
 * ```
 */
export function fifo(): Strategy {
  return { name: "fifo", begin: () => true, choose: () => 0 };
}
