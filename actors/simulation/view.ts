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

/** The view that a run keeps up to date after each step. */
export type RunView = { -readonly [K in keyof View]: View[K] };

/** The view of an isolate before its first step. */
export function viewOf(isolate: Isolate, deadLetters: readonly DeadLetter[]): RunView {
  const find = (id: string) => isolate.actors.values().find(({ ref }) => ref.id === id);
  return {
    ...{ steps: 0, actor: "", type: "", name: "", deadLetters },
    get now() {
      return isolate.env.clock.now();
    },
    get actors() {
      return [...isolate.actors.values()].filter(({ parent }) => parent).map(({ ref }) => ref.id);
    },
    state: <T>(id: string) => find(id)?.expose?.() as T | undefined,
    waiting: (id) => [...find(id)?.mailbox ?? []].length,
  };
}
