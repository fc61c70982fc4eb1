/**
 * A simulated system between two steps, as those see it who judge it.
 *
 * @module
 */

import type { Isolate } from "../runtime/isolate/isolate.ts";
import type { DeadLetter } from "../runtime/mod.ts";

/** A simulated system between two steps. */
export interface View {
  /** Steps so far. */
  readonly steps: number;
  /** Id of the actor of the last step. */
  readonly actor: string;
  /** Type of the message of the last step. */
  readonly type: string;
  /** What the actor said it did in the last step: `2F0`. */
  readonly name: string;
  /** Virtual milliseconds. */
  readonly now: number;
  /** Ids of the living actors, in order of spawning. */
  readonly actors: readonly string[];
  /** What is buried so far. */
  readonly deadLetters: readonly DeadLetter[];
  /** What an actor exposes; undefined when there is none of this id or it exposes nothing. */
  state<T = unknown>(id: string): T | undefined;
  /** Messages that wait for an actor. */
  waiting(id: string): number;
}

/** Says what is wrong, as a text or by throwing; otherwise nothing. */
export type Check = (view: View) => string | undefined | void;

/** The view of an isolate. */
export function viewOf(
  isolate: Isolate,
  last: { readonly actor: string; readonly type: string; readonly name: string },
  steps: () => number,
  deadLetters: readonly DeadLetter[],
): View {
  const find = (id: string) => {
    for (const actor of isolate.actors.values()) if (actor.ref.id === id) return actor;
  };
  return {
    get steps() {
      return steps();
    },
    get actor() {
      return last.actor;
    },
    get type() {
      return last.type;
    },
    get name() {
      return last.name;
    },
    get now() {
      return isolate.env.clock.now();
    },
    get actors() {
      return [...isolate.actors.values()].filter(({ parent }) => parent).map(({ ref }) => ref.id);
    },
    deadLetters,
    state: <T>(id: string) => find(id)?.expose?.() as T | undefined,
    waiting: (id) => {
      const actor = find(id);
      return actor ? [...actor.mailbox].length : 0;
    },
  };
}
