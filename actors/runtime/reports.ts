/**
 * What the owner of a system is told of it.
 *
 * @module
 */

import { checkSubscription } from "./checks.ts";
import { ActorFailedError, type DeadLetter, describeFailure, type Failure } from "./failure.ts";
import { MAX_DEAD_LETTERS, type Subscription, type SystemEvent } from "./system_api.ts";

/** Whom a system tells besides those who subscribe. */
export interface Told {
  readonly onDeadLetter?: ((letter: DeadLetter) => void) | undefined;
  readonly onFailure?: ((failure: Failure) => void) | undefined;
}

/** What the owner of a system is told of it. */
export interface Reports {
  readonly deadLetters: readonly DeadLetter[];
  readonly failed: Promise<never>;
  readonly onDeadLetter: (letter: DeadLetter, message?: unknown) => void;
  readonly onFailure: (failure: Failure) => void;
  /** Tells who subscribes. */
  readonly onEvent: (event: SystemEvent) => void;
  /** Lets what the owner gave throw without harm to the runtime. */
  readonly guard: (handling: string, call: () => void) => void;
  /** Adds a subscriber; `want` says what all of them want, undefined when there is none. */
  readonly subscribe: (
    listener: (event: SystemEvent) => void,
    options: Subscription | undefined,
    want: (wanted: Subscription | undefined) => void,
  ) => Disposable;
}

/** Opens the reports of a system. */
export function openReports(told: Told): Reports {
  const deadLetters: DeadLetter[] = [], failed = Promise.withResolvers<never>();
  const subscribers = new Set<{ listener: (event: SystemEvent) => void } & Subscription>();
  const onFailure = (failure: Failure) => {
    told.onFailure?.(failure);
    failed.reject(new ActorFailedError(failure));
  };
  const guard = (handling: string, call: () => void) => {
    try {
      call();
    } catch (error) {
      onFailure(describeFailure("system", "throw", error, handling));
    }
  };
  const onEvent = (event: SystemEvent) => {
    for (const { listener } of [...subscribers]) guard(event.type, () => listener(event));
  };
  const onDeadLetter = (letter: DeadLetter, message?: unknown) => {
    deadLetters.push(letter);
    if (deadLetters.length > MAX_DEAD_LETTERS) deadLetters.shift();
    guard(`dead letter ${letter.type}`, () => told.onDeadLetter?.(letter));
    onEvent({ type: "dead-letter", letter, ...message !== undefined && { message } });
  };
  const wanted = (): Subscription | undefined => {
    if (subscribers.size === 0) return undefined;
    const limits = [...subscribers].flatMap(({ slowStepMs = [] }) => slowStepMs);
    return limits.length === 0 ? {} : { slowStepMs: Math.min(...limits) };
  };
  return {
    ...{ deadLetters, failed: failed.promise, onDeadLetter, onFailure, onEvent, guard },
    subscribe(listener, options, want) {
      checkSubscription(listener, options);
      const subscriber = { listener, ...options };
      subscribers.add(subscriber);
      want(wanted());
      return {
        [Symbol.dispose]() {
          if (subscribers.delete(subscriber)) want(wanted());
        },
      };
    },
  };
}
