/**
 * Which step calls, where several of one actor are under way.
 *
 * @module
 */

import { AsyncLocalStorage } from "node:async_hooks";
import type { Actor } from "./actor.ts";
import type { Step } from "../mailbox/envelope.ts";

const steps = new AsyncLocalStorage<Step>();

/** Calls a handler so that what it does later is known to be of this step. */
export function callIn<T>(actor: Actor, step: Step, handler: () => T): T {
  return actor.maxSteps === 1 ? handler() : steps.run(step, handler);
}

/** The step of an actor that calls. */
export function callerOf(actor: Actor): Step | undefined {
  if (actor.maxSteps === 1) return actor.step;
  const step = steps.getStore();
  return step && (step === actor.step || actor.parked.has(step)) ? step : actor.step;
}
