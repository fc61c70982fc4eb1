/**
 * What actors wait for: answers, and the ends of others.
 *
 * @module
 */

import type { Down } from "../failure.ts";
import type { ActorRef } from "../types.ts";
import type { Actor } from "./actor.ts";

/** A question that is not answered yet. */
export interface PendingAsk {
  readonly from: ActorRef;
  /** The actor asked. */
  readonly to: ActorRef;
  readonly type: string;
  readonly timeoutMs: number;
  /** How many questions the asker had asked before. */
  readonly nth: number;
  /** The actor that waits in its step; undefined for the owner of the system. */
  readonly asker: Actor | undefined;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
  /** Ends the question, if its asker aborts it. */
  readonly signal?: AbortSignal;
  /** Calls off what would end it without an answer. */
  readonly cancel: () => void;
}

/** Somebody in this isolate who watches an actor. */
export interface Watch {
  readonly ref: ActorRef;
  /** Absent when it is the owner of the system. */
  readonly watcher: Actor | undefined;
  readonly notify: (down: Down) => void;
}
