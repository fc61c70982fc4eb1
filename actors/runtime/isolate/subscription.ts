/**
 * What the owner of a system wants to be told of, in every isolate.
 *
 * The word goes down the tree of actors: each isolate passes it on to those in which its actors
 * have children, and to those that are started later.
 *
 * @module
 */

import type { DeadLetter } from "../failure.ts";
import type { Subscription } from "../system_api.ts";
import { isCloneError, snapshot } from "../snapshot.ts";
import { type Isolate, post } from "./isolate.ts";

/** Tells this isolate and those below it what is wanted from now on; undefined: nothing. */
export function subscribe(isolate: Isolate, subscription: Subscription | undefined): void {
  isolate.subscription = subscription;
  const below = new Set<number>();
  for (const { children } of isolate.actors.values()) {
    for (const { ref } of children.values()) {
      if (ref.isolate !== isolate.number) below.add(ref.isolate);
    }
  }
  for (const number of below) post(isolate, number, { kind: "subscribe", subscription });
}

/** Tells an isolate that was started just now what is wanted. */
export function tellWanted(isolate: Isolate, number: number): void {
  const { subscription } = isolate;
  if (subscription) post(isolate, number, { kind: "subscribe", subscription });
}

/** Tells of a dead letter, with a copy of what it holds if somebody wants that. */
export function tellOfLetter(isolate: Isolate, letter: DeadLetter, message: unknown): void {
  const { env: { onDeadLetter }, subscription } = isolate;
  if (!subscription) return onDeadLetter(letter);
  try {
    onDeadLetter(letter, snapshot(message));
  } catch (error) {
    if (!isCloneError(error)) throw error;
    onDeadLetter(letter);
  }
}
