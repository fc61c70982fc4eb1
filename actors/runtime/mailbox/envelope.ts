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

/** What somebody gets when a message has been handled. */
export interface Receipt {
  readonly to: ActorRef;
  readonly message: Message;
}

/** What a confined isolate owes for a message, until nothing of it waits any more. */
export interface Credit {
  /** The confined isolate. */
  readonly isolate: number;
  /** Which of its messages. */
  readonly number: number;
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
  /** Set on the notice that the sender, whom the receiver watched, has ended. */
  readonly isNotice?: true | undefined;
  /** Set when somebody wants to know that it has been handled. */
  readonly receipt?: Receipt | undefined;
  /** Set on what comes from a confined isolate. */
  readonly credit?: Credit | undefined;
  /** Set on what the runtime itself makes an actor do (start, resume, finish). */
  readonly run?: () => void | Promise<void>;
  /** The step that goes on with it, if it is an answer. */
  readonly resumes?: Step | undefined;
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
  /** What this step gives back at its end, unless another actor handles the message after it. */
  credit: Credit | undefined;
  /** The actor has refused the message. */
  isRefused: boolean;
  /** What the actor said it did, while the step is parked. */
  doing: string;
  /** Called when it is over, where somebody measures how long it takes. */
  ends?: (() => void) | undefined;
  /** Tells the loop that it need not wait for this step any longer: it ended or it asked. */
  wake: (() => void) | undefined;
}
