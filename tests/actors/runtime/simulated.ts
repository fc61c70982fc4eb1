/**
 * Plays in the simulator, in plain order and in others.
 *
 * @module
 */

import assert from "node:assert/strict";
import type { ActorSpec, System } from "../../../actors/runtime/mod.ts";
import { pct, random } from "../../../actors/simulation/strategies.ts";
import { replayInbox } from "../../../actors/simulation/replay_actor.ts";
import type { Scenario, SimulateOptions } from "../../../actors/simulation/run.ts";
import { simulate } from "../../../actors/simulation/simulate.ts";
import { atDepth } from "../../depth.ts";
import { parseJournal, systemJournal } from "../simulation/forged.ts";

/** Plays in plain order, where nothing may fail. */
export async function playOnce<T>(
  scenario: Scenario<T>,
  options: SimulateOptions = {},
): Promise<T> {
  const run = await simulate(options, scenario);
  assert.equal(run.failure, undefined, run.failure?.message);
  return run.value!;
}

/** The message of the failure that a scenario must end with in plain order. */
export async function failureIn(scenario: Scenario<unknown>): Promise<string> {
  const { failure } = await simulate({}, scenario);
  assert.equal(failure?.kind, "actor");
  return failure!.message;
}

/** Plays in plain order and in others; nothing may fail, and the result must always be the same. */
export async function play<T>(scenario: Scenario<T>, options: SimulateOptions = {}): Promise<T> {
  const value = await playOnce(scenario, options);
  for (let seed = 0; seed < atDepth(10, 100); seed++) {
    const strategy = seed % 2 === 0 ? random() : pct(3);
    const run = await simulate({ seed, strategy, ...options }, scenario);
    assert.equal(run.failure, undefined, `seed ${seed}: ${run.failure?.message}`);
    assert.deepEqual(run.value, value);
  }
  return value;
}

/** Registers a test whose result is the same in every order. */
export function playTest(name: string, scenario: Scenario<unknown>, wanted: unknown, more = {}) {
  Deno.test(name, async () => assert.deepEqual(await play(scenario, more), wanted));
}

/** Registers a test that has this result in plain order. */
export function onceTest(name: string, scenario: Scenario<unknown>, wanted: unknown) {
  Deno.test(name, async () => assert.deepEqual(await playOnce(scenario), wanted));
}

/** Registers a test that ends with this failure in plain order. */
export function failTest(name: string, scenario: Scenario<unknown>, wanted: RegExp) {
  Deno.test(name, async () => assert.match(await failureIn(scenario), wanted));
}

/** Has a system keep a journal, and replays from it the inbox of the actors of this kind. */
export const replayed = async (spec: ActorSpec<never>, use: (system: System) => Promise<unknown>) =>
  replayInbox(spec as ActorSpec<unknown>, parseJournal(await systemJournal(use)));
