/**
 * Questions from outside the actors that end when the system fails, whoever was to answer.
 *
 * [Note: one handler] `system.failed` lives as long as the system. A promise that is raced against it
 * stays reachable from it, and so does its value: a copy of all weights for each `Save`. So it gets
 * one handler, which knows only those who still wait.
 *
 * @module
 */

import { BriefMap } from "../../runtime/actor/brief_map.ts";
import type { ActorRef, Message, System } from "../../runtime/mod.ts";

/** Who waits for an answer from the actors of a system, and what it has failed of. */
interface Waiting {
  readonly rejects: BriefMap<(error: unknown) => void, true>;
  failure?: { readonly error: unknown };
}

const waitingIn = new WeakMap<System, Waiting>();

function waitingOf(system: System): Waiting {
  const known = waitingIn.get(system);
  if (known) return known;
  const waiting: Waiting = { rejects: new BriefMap() };
  waitingIn.set(system, waiting);
  system.failed.catch((error) => {
    waiting.failure = { error };
    for (const [reject] of waiting.rejects) reject(error);
  });
  return waiting;
}

/**
 * Asks an actor and waits for as long as it takes.
 *
 * @throws {ActorFailedError} (as a rejection) when the actor is gone, or the system has failed.
 */
export async function askUnlessFailed<T extends Message, R>(
  system: System,
  to: ActorRef<T>,
  message: NoInfer<T>,
): Promise<R> {
  const waiting = waitingOf(system);
  const asked = system.ask<Message, R>(to as ActorRef<Message>, message, { timeoutMs: Infinity });
  const { promise, resolve, reject } = Promise.withResolvers<R>();
  waiting.rejects.set(reject, true);
  asked.then(resolve, reject);
  if (waiting.failure) reject(waiting.failure.error);
  try {
    return await promise;
  } finally {
    waiting.rejects.take(reject);
  }
}
