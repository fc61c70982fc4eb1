/**
 * A message on its way to be handled, and the step in which it is.
 *
 * @module
 */

import type { ActorRef, Lane, Message } from "../types.ts";

/** Where an answer goes: which question of which isolate. */
export interface ReplyTo {
  readonly isolate: number;
  readonly ask: number;
}

/** A message in a mailbox. */
export interface Envelope {
  /** Counts what was enqueued in this isolate, so a lower one is older. */
  readonly seq: number;
  /** How many came from this sender to this actor before: the same in every run in which the
   * sender does the same, whatever the others do. 0 where nobody chooses or observes. */
  readonly nth: number;
  readonly lane: Lane;
  readonly from: ActorRef;
  readonly message: Message;
  /** Set when the sender waits for an answer. */
  readonly replyTo?: ReplyTo | undefined;
  /** Set on the message of a timer that has a key. */
  readonly timerKey?: string | undefined;
  /** Set where the sender does not vouch for it: see {@linkcode SendOptions.receipt}. */
  readonly receipt?: Message | undefined;
  /** Set on what the runtime itself makes an actor do (start, resume, finish). */
  readonly run?: () => void | Promise<void>;
}

/** A step under way. */
export interface Step {
  readonly envelope: Envelope;
  /** Questions asked in this step whose answers have not been handed to it. */
  readonly asks: Set<number>;
  /** The handler has ended. */
  isSettled: boolean;
  /** The actor stopped meanwhile, so how the handler ends no longer matters. */
  isAbandoned: boolean;
  /** The question that this step has to answer. */
  replyTo: ReplyTo | undefined;
  /** The actor has refused the message. */
  isRefused: boolean;
  /** Called when it is over, where somebody measures how long it takes. */
  ends?: (() => void) | undefined;
  /** Tells the loop that it need not wait for this step any longer: it ended or it asked. */
  wake: (() => void) | undefined;
}
