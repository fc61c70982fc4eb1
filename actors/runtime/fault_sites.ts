/**
 * Places where a fault may be injected. Nothing happens there unless a simulation says so.
 *
 * @module
 */

/** Answers for the simulation that runs, if one does. */
let decide: ((site: string) => boolean) | undefined;

/**
 * Whether to fail here, now. Outside of simulations with faults the answer is always no.
 *
 * @param site names the place, the same in every run: `optimizer step`.
 *
 * @example
 * ```ts
 * import { shouldFail } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * function writeCheckpoint() {
 *   if (shouldFail("checkpoint write")) throw new Error("the disk is full");
 *   return "written";
 * }
 * assert.equal(writeCheckpoint(), "written");
 * ```
 */
export function shouldFail(site: string): boolean {
  return decide?.(site) ?? false;
}

/** Sets who answers {@linkcode shouldFail}; undefined: nobody. */
export function setFaultSites(answer: ((site: string) => boolean) | undefined): void {
  decide = answer;
}
