/**
 * Frames between isolates, all structured-cloneable. Within one isolate the same frames are
 * delivered directly.
 *
 * @module
 */

import type { Subscription, SystemEvent } from "./context.ts";
import type { DeadLetter, Failure, Reason } from "./failure.ts";
import type { ReplyTo } from "./mailbox.ts";
import type { ObserverSpec } from "./observer.ts";
import type { ActorRef, ActorSpec, Lane, Message } from "./types.ts";

/** Makes an actor in the receiving isolate. */
export interface LaunchFrame {
  readonly kind: "launch";
  readonly ref: ActorRef;
  readonly parent: ActorRef;
  readonly spec: ActorSpec;
  readonly init: unknown;
  readonly capacity: number;
  readonly place: Place;
}

/** The kind of isolate that an actor is put in. */
interface Place {
  /** "local", or the name of a transport. */
  readonly isolate: string;
  /** Of the JavaScript heap, where the transport can limit it. */
  readonly memoryLimitMb?: number;
}

/** A kind of isolate that actors can be put in. */
export interface PlaceKind {
  readonly name: string;
  readonly limitsMemory: boolean;
}

/** A message for an actor. */
export interface MessageFrame {
  readonly kind: "message";
  readonly to: ActorRef;
  readonly from: ActorRef;
  readonly lane: Lane;
  readonly message: Message;
  readonly replyTo?: ReplyTo | undefined;
  readonly receipt?: Message | undefined;
}

/** The result of a question. */
export type Outcome =
  | { readonly status: "answered"; readonly value: unknown }
  /** The actor asked is gone. */
  | { readonly status: "gone"; readonly failure: Failure }
  /** Its handler ended without an answer. */
  | { readonly status: "unanswered" }
  /** The question could not be cloned. */
  | { readonly status: "unsent"; readonly why: string }
  | { readonly status: "timeout" }
  /** An external operation has failed: see {@linkcode Context.external}. */
  | { readonly status: "failed"; readonly failure: Failure }
  /** Its asker takes it back. */
  | { readonly status: "aborted"; readonly name: string; readonly why: string };

/** An answer to a question of the receiving isolate. */
export interface AnswerFrame {
  readonly kind: "answer";
  /** Number of the question in that isolate. */
  readonly ask: number;
  readonly outcome: Outcome;
  /** The dead letter of an answer that comes too late. */
  readonly letter?: Omit<DeadLetter, "reason"> | undefined;
}

/** A frame from one isolate to another. */
export type Frame =
  | LaunchFrame
  | MessageFrame
  | AnswerFrame
  /** A question is taken back, if it still waits. */
  | { readonly kind: "withdraw"; readonly to: ActorRef; readonly question: ReplyTo }
  /** Isolate `by` watches `ref`. */
  | { readonly kind: "watch"; readonly ref: ActorRef; readonly by: number }
  | { readonly kind: "unwatch"; readonly ref: ActorRef; readonly by: number }
  | { readonly kind: "down"; readonly ref: ActorRef; readonly reason: Reason }
  /** Stops an actor; `drain`: after the messages that have arrived. */
  | { readonly kind: "stop"; readonly ref: ActorRef; readonly drain: boolean }
  /** A message of `to` was handled or lost. */
  | { readonly kind: "receipt"; readonly to: ActorRef; readonly message: Message }
  /** To the root: an event for the owner of the system. */
  | { readonly kind: "event"; readonly event: SystemEvent }
  /** Sets the events that this isolate and those below it report. */
  | { readonly kind: "subscribe"; readonly subscription: Subscription | undefined }
  /** To the parent's isolate: a child has ended. */
  | {
    readonly kind: "ended";
    readonly parent: ActorRef;
    readonly child: ActorRef;
    readonly reason: Reason;
  };

/** A frame from another isolate to the root, which owns all isolates. */
export type UpFrame =
  /** Have isolate `to` connect to the sender, if it is of the same transport. */
  | {
    readonly kind: "invite";
    readonly to: number;
    readonly address: unknown;
    readonly transfer: readonly Transferable[];
  }
  /** Pass `frame` on to isolate `to`. `transfer` lists its buffers that move. */
  | {
    readonly kind: "forward";
    readonly to: number;
    readonly frame: Frame | SwitchFrame;
    readonly transfer: readonly ArrayBuffer[];
  }
  /** Start isolate `isolate` with a first actor. `transfer` lists the buffers of its init. */
  | {
    readonly kind: "start";
    readonly isolate: number;
    readonly launch: LaunchFrame;
    readonly transfer: readonly ArrayBuffer[];
  }
  /** The isolate's first actor, and so its last, has ended. */
  | { readonly kind: "done"; readonly reason: Reason }
  /** The sender has reported all isolates that it has started. Answers `has-started`. */
  | { readonly kind: "started"; readonly about: number }
  /** An isolate does not stop: end it. */
  | { readonly kind: "kill"; readonly isolate: number; readonly why: string }
  | { readonly kind: "dead-letter"; readonly letter: DeadLetter; readonly message?: unknown };

/** From now on frames of isolate `from` come over the direct connection. */
export interface SwitchFrame {
  readonly kind: "switch";
  readonly from: number;
}

/** The first frame from the root: the identity of the isolate and its first actor. */
export interface BootFrame {
  readonly kind: "boot";
  readonly system: number | undefined;
  readonly isolate: number;
  readonly seed: number;
  readonly stopGraceMs: number;
  readonly observer: ObserverSpec | undefined;
  /** Kinds of isolates for its actors. */
  readonly places: readonly PlaceKind[];
  readonly launch: LaunchFrame;
}

/** A frame from the root to another isolate. */
export type DownFrame =
  | BootFrame
  /** Connect to isolate `from`. */
  | { readonly kind: "accept"; readonly from: number; readonly address: unknown }
  | { readonly kind: "isolate-gone"; readonly isolate: number; readonly reason: Reason }
  /** Has this isolate, or one that it started, started isolate `about`? */
  | { readonly kind: "has-started"; readonly about: number };
