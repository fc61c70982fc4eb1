/**
 * Runs a test with a new system, and asserts that nothing of it remains.
 *
 * @module
 */

import assert from "node:assert/strict";
import {
  type ActorFailedError,
  type ActorRef,
  type Down,
  type System,
  type SystemOptions,
} from "../../../actors/runtime/mod.ts";
import { createSystem } from "../../../actors/transports/system.ts";
import { locks } from "../../../actors/transports/ports.ts";
import { PROGRAM } from "../../../actors/transports/worker.ts";
import { HANG_LIMIT_MS } from "../../hang_limit.ts";

/** Runs a test with a system, and stops the system afterwards. */
export async function withSystem(
  options: SystemOptions,
  test: (system: System) => Promise<void>,
): Promise<void> {
  const system = createSystem(options);
  const limit = Promise.withResolvers<never>();
  const hangs = new Error(`the test hangs: ${HANG_LIMIT_MS} ms`);
  const timer = setTimeout(() => limit.reject(hangs), HANG_LIMIT_MS);
  try {
    await Promise.race([test(system), limit.promise]);
  } finally {
    clearTimeout(timer);
    await system.stop();
  }
  assert.deepEqual(await liveWorkers(), []);
}

/** Names of the workers of this test file that live, by the locks they hold. */
export async function liveWorkers(): Promise<string[]> {
  const manager = locks as unknown as {
    query(): Promise<{ held: { name: string }[]; pending: { name: string }[] }>;
  };
  const { held, pending } = await manager.query();
  return [...held, ...pending].map(({ name }) => name).filter((name) => name.startsWith(PROGRAM));
}

/** The end of an actor, as a promise. */
export function downOf(system: System, ref: ActorRef): Promise<Down> {
  return new Promise((resolve) => system.watch(ref, resolve));
}

/** The reason of an actor's end, which must be a failure. */
export async function failureOf(system: System, ref: ActorRef) {
  const { reason } = await downOf(system, ref);
  assert.notEqual(reason, "stopped");
  return reason as Exclude<typeof reason, "stopped">;
}

/** The failure that reaches the top of a system. */
export async function topFailure(system: System) {
  return (await thrownBy(system.failed) as ActorFailedError).failure;
}

/** Waits for what a promise throws. */
export async function thrownBy(promise: Promise<unknown>): Promise<Error> {
  try {
    await promise;
  } catch (error) {
    return error as Error;
  }
  throw new assert.AssertionError({ message: "must throw" });
}

/** Waits until `isDone`, looking again and again. */
export async function until(isDone: () => Promise<boolean> | boolean): Promise<void> {
  while (!await isDone()) await new Promise((resolve) => setTimeout(resolve, 2));
}
