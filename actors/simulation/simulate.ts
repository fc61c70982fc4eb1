/**
 * One simulated run: real actors under a virtual clock, every choice made in one place.
 *
 * @module
 */

import { closeMachine, openMachine, play } from "./machine/machine.ts";
import type { Run, Scenario, SimulateOptions } from "./simulated_run.ts";

/**
 * Runs a scenario under a virtual clock in this isolate. A step is one message handled to its end
 * or to its next `ctx.ask`; which one is next, or whether a timer fires before it, is the
 * strategy's to choose, and nothing else is left to chance, so the same seed gives the same running hash. Simulations run one at a time.
 *
 * @param options seed, strategy, faults and limits.
 * @param scenario what happens.
 * @returns what the run was; a failure is part of that and not thrown.
 * @throws {TypeError} (as a rejection) when another simulation runs.
 *
 * @example
 * ```ts
 * import { random, simulate } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const module = `data:text/javascript,export const log = (ctx) => {
 *   const log = [];
 *   return { Note({ n }) { log.push(n); }, Read() { ctx.reply(log); } };
 * };
 * export const sender = (ctx, { to, n }) => { ctx.send(to, { type: "Note", n }); return {}; };`;
 * type Log = { type: "Note"; n: number } | { type: "Read" };
 * const play = (seed: number) =>
 *   simulate({ seed, strategy: random() }, async ({ system, idle }) => {
 *     const to = system.spawn<undefined, Log>({ module, export: "log" }, undefined, { id: "log" });
 *     for (const n of [1, 2, 3]) {
 *       system.spawn<object, Log>({ module, export: "sender" }, { to, n }, { id: "sender-" + n });
 *     }
 *     await idle();
 *     return await system.ask(to, { type: "Read" });
 *   });
 * const first = await play(5), second = await play(5);
 * assert.equal(first.failure, undefined);
 * assert.equal(first.hash, second.hash);
 * assert.deepEqual(first.value, second.value);
 * ```
 */
export async function simulate<T, C = undefined>(
  options: SimulateOptions<C>,
  scenario: Scenario<T, C>,
): Promise<Run<T>> {
  const run = openMachine(options as SimulateOptions<unknown>);
  let value: { readonly is: T } | undefined;
  try {
    value = await play(run, scenario);
  } finally {
    await closeMachine(run);
  }
  const { chooser, recorder, verdict: { failure }, idle } = run;
  return {
    seed: options.seed ?? 0,
    strategy: chooser.strategy.name,
    steps: recorder.steps,
    choices: chooser.choices,
    hash: recorder.hash,
    deviations: chooser.deviations,
    faults: chooser.faults.done,
    waiting: idle,
    ...(failure ? { failure } : {}),
    ...(value ? { value: value.is } : {}),
  };
}
