/**
 * What a step waits for that is not an actor's: while it does, others go on.
 *
 * @module
 */

import { describeFailure, type Failure } from "../failure.ts";
import { type Isolate, offer } from "../isolate/isolate.ts";
import { isCloneError, snapshot } from "../snapshot.ts";
import type { ActorRef } from "../types.ts";
import type { Actor } from "./actor.ts";
import { settleAsk } from "./asks.ts";

/** Type of the message that brings the end of it, as of an answer. */
const TYPE = "outside";

/** Does something outside and waits for its end. See {@linkcode Context.outside}. */
export function outside<T>(
  isolate: Isolate,
  actor: Actor,
  run: () => T | Promise<T>,
): Promise<T> {
  const { ref, step } = actor;
  if (!step || actor.state === "stopping") {
    return Promise.reject(
      new TypeError(`Cannot wait for what is outside: "${ref.id}" must be handling a message`),
    );
  }
  const id = isolate.nextAsk++, nth = actor.asked++;
  // Nobody knows in which order it ends, so each is a sender of its own.
  const to: ActorRef = { id: TYPE, isolate: isolate.number, serial: -1 - id };
  let thrown: { readonly error: unknown } | undefined;
  const end = new Promise<unknown>((resolve, reject) => {
    isolate.asks.set(id, {
      ...{ from: ref, to, type: TYPE, timeoutMs: Infinity, nth, asker: actor },
      ...{ resolve, reject: (error) => reject(thrown ? thrown.error : error), cancel: () => {} },
    });
  });
  step.asks.add(id);
  const work = isolate.env.outside ? isolate.env.outside(run) : isolate.pulse.busy(run);
  step.wake?.();
  offer(isolate, actor);
  const failed = (error: unknown) => {
    thrown = { error };
    const failure: Failure = describeFailure(ref.id, "throw", error, TYPE);
    settleAsk(isolate, id, { status: "failed", failure });
  };
  work.then((value) => {
    const refusal = isolate.observer && refuse(value);
    if (refusal) failed(refusal);
    else settleAsk(isolate, id, { status: "answered", value });
  }, failed);
  return end as Promise<T>;
}

/** A journal keeps what comes from outside, so that has to be data. */
function refuse(value: unknown): TypeError | undefined {
  try {
    snapshot(value);
  } catch (error) {
    if (!isCloneError(error)) throw error;
    return new TypeError(
      `Cannot keep what comes from outside: it must be structured-cloneable, ${error.message}`,
    );
  }
}
