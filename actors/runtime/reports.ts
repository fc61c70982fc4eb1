/**
 * Reports to the owner of a system.
 *
 * @module
 */

import { checkSubscription } from "./checks.ts";
import { ActorFailedError, type DeadLetter, describeFailure, type Failure } from "./failure.ts";
import { MAX_DEAD_LETTERS, type Subscription, type SystemEvent } from "./system_api.ts";

/** Called beside those who subscribe. */
export interface Told {
  readonly onDeadLetter?: ((letter: DeadLetter) => void) | undefined;
  readonly onFailure?: ((failure: Failure) => void) | undefined;
}

/** Dead letters, failures and events of a system. */
export class Reports {
  readonly deadLetters: DeadLetter[] = [];
  readonly #failed = Promise.withResolvers<never>();
  readonly #subscribers = new Set<{ listener: (event: SystemEvent) => void } & Subscription>();
  readonly #told: Told;

  /** @param told what the owner gave. */
  constructor(told: Told) {
    this.#told = told;
  }

  /** See {@linkcode System.failed}. */
  get failed(): Promise<never> {
    return this.#failed.promise;
  }

  readonly onFailure = (failure: Failure): void => {
    this.#told.onFailure?.(failure);
    this.#failed.reject(new ActorFailedError(failure));
  };

  /** Tells who subscribes. */
  readonly onEvent = (event: SystemEvent): void => {
    for (const { listener } of [...this.#subscribers]) {
      this.guard(event.type, () => listener(event));
    }
  };

  readonly onDeadLetter = (letter: DeadLetter, message?: unknown): void => {
    this.deadLetters.push(letter);
    if (this.deadLetters.length > MAX_DEAD_LETTERS) this.deadLetters.shift();
    this.guard(`dead letter ${letter.type}`, () => this.#told.onDeadLetter?.(letter));
    this.onEvent({ type: "dead-letter", letter, ...message !== undefined && { message } });
  };

  /** Lets what the owner gave throw without harm to the runtime. */
  guard(handling: string, call: () => void): void {
    try {
      call();
    } catch (error) {
      this.onFailure(describeFailure("system", "throw", error, handling));
    }
  }

  /** Adds a subscriber; `want` gets the wishes of all of them, undefined when there is none. */
  subscribe(
    listener: (event: SystemEvent) => void,
    options: Subscription | undefined,
    want: (wanted: Subscription | undefined) => void,
  ): Disposable {
    checkSubscription(listener, options);
    const subscriber = { listener, ...options };
    this.#subscribers.add(subscriber);
    want(this.#wanted());
    return {
      [Symbol.dispose]: () => {
        if (this.#subscribers.delete(subscriber)) want(this.#wanted());
      },
    };
  }

  #wanted(): Subscription | undefined {
    if (this.#subscribers.size === 0) return undefined;
    const limits = [...this.#subscribers].flatMap(({ slowStepMs = [] }) => slowStepMs);
    return limits.length === 0 ? {} : { slowStepMs: Math.min(...limits) };
  }
}
