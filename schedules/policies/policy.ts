/** Dispatch policies: which of the actions that could run now a worker runs next. */

import type { Action } from "../actions/action.ts";

/**
 * Picks the next action of one worker.
 *
 * `ready` holds the plain actions whose inputs have arrived, in the order of their arrival: the
 * offers. A backward is offered as `B`; a policy whose schedule splits it answers with `I`, and is
 * offered `W` once that has run. A whole backward may be answered with its halves, one after the
 * other, and two halves with the whole. The worker runs what is returned, and takes its offers out
 * of `ready` ({@linkcode takeOffers}).
 */
export interface DispatchPolicy {
  /** The action to run now; undefined where the policy would rather wait. */
  next(ready: readonly Action[]): Action | undefined;
}

/** A policy for one worker and one optimizer step. */
export interface StepPolicy extends DispatchPolicy {
  /** Whether every action of the step has been given out. */
  readonly done: boolean;
  /** The one action that it waits for, for the report of a stall; undefined where any will do. */
  readonly waitsFor: Action | undefined;
}
