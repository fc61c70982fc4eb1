/**
 * Runs a test with a system of its own, and sees to it that nothing of it is left.
 *
 * @module
 */

import assert from "node:assert/strict";
import {
  createSystem,
  type Down,
  type PlaceName,
  type System,
} from "../../../actors/runtime/mod.ts";
import type { ActorRef, SystemOptions } from "../../../actors/runtime/mod.ts";
import { locks } from "../../../actors/runtime/transports/worker/locks.ts";
import { PROGRAM } from "../../../actors/runtime/transports/worker/worker.ts";
import { HANG_LIMIT_MS } from "../../hang_limit.ts";
import { RECORDER, type RecorderMessage } from "./players.ts";

/** Gives a test a system, and stops it after. */
export async function withSystem(
  options: SystemOptions,
  test: (system: System) => Promise<void>,
): Promise<void> {
  const system = createSystem(options);
  let timer: ReturnType<typeof setTimeout> | undefined;
  const limit = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new Error(`the test hangs: ${HANG_LIMIT_MS} ms`)),
      HANG_LIMIT_MS,
    );
  });
  try {
    await Promise.race([test(system), limit]);
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

/** Waits for what a promise throws. */
export async function thrownBy(promise: Promise<unknown>): Promise<Error> {
  try {
    await promise;
  } catch (error) {
    return error as Error;
  }
  throw new assert.AssertionError({ message: "must throw" });
}

/**
 * Whether a control message is handled before data messages that came before it. An isolate that
 * the machine lets wait may have done all of them, so one try in ten is enough.
 */
export async function overtakes(system: System, isolate: PlaceName): Promise<boolean> {
  const steps = 20;
  for (let attempt = 0; attempt < 10; attempt++) {
    const ref = system.spawn(RECORDER, undefined, { id: `recorder ${attempt}`, isolate });
    await system.ask(ref, { type: "Read" });
    for (let n = 0; n < steps; n++) system.send(ref, { type: "Busy", ms: 10 });
    await new Promise((resolve) => setTimeout(resolve, 30));
    system.send(ref, { type: "Note", what: "urgent" }, { lane: "control" });
    const notes = await system.ask<RecorderMessage, unknown[]>(ref, { type: "Read" });
    if (notes.indexOf("urgent") < steps) return true;
  }
  return false;
}

/** Waits until `isDone`, looking again and again. */
export async function until(isDone: () => Promise<boolean> | boolean): Promise<void> {
  while (!await isDone()) await new Promise((resolve) => setTimeout(resolve, 2));
}
