/**
 * Frames between isolates, all structured-cloneable. Within one isolate the same frames are
 * delivered directly.
 *
 * @module
 */

import type { Subscription, SystemEvent } from "./context.ts";
import type { DeadLetter, Failure, Reason } from "./failure.ts";
import type { Envelope, ReplyTo } from "./mailbox.ts";
import type { ObserverSpec } from "./observer.ts";
import type { Invitation, Transport } from "./transport.ts";
import type { ActorRef, ActorSpec, Message } from "./types.ts";

/** Spawns an actor in the receiving isolate. */
export interface LaunchFrame {
  readonly kind: "launch";
  readonly ref: ActorRef;
  readonly parent: ActorRef;
  readonly spec: ActorSpec;
  readonly init: unknown;
  readonly capacity: number;
  readonly place: Place;
}

/** The kind of isolate that hosts an actor. */
interface Place {
  /** "local", or the name of a transport. */
  readonly isolate: string;
  /** Limit of the JavaScript heap in MiB, if the transport supports it. */
  readonly memoryLimitMb?: number;
}

/** A kind of isolate that can host actors. */
export type PlaceKind = Pick<Transport, "name" | "limitsMemory">;

/** A message for an actor. */
export interface MessageFrame
  extends Pick<Envelope, "from" | "lane" | "message" | "replyTo" | "receipt"> {
  readonly kind: "message";
  readonly to: ActorRef;
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
  /** The asker has withdrawn it. */
  | { readonly status: "aborted"; readonly name: string; readonly why: string };

/** An answer to a question of the receiving isolate. */
export interface AnswerFrame {
  readonly kind: "answer";
  /** The isolate that was asked. */
  readonly from: number;
  /** Number of the question in that isolate. */
  readonly ask: number;
  readonly outcome: Outcome;
  /** The dead letter to report if the answer arrives too late. */
  readonly letter?: Omit<DeadLetter, "reason"> | undefined;
}

/** A frame from one isolate to another. */
export type Frame =
  | LaunchFrame
  | MessageFrame
  | AnswerFrame
  /** Withdraws a question, unless it is being handled. */
  | { readonly kind: "withdraw"; readonly to: ActorRef; readonly question: ReplyTo }
  /** Isolate `by` watches `ref`. */
  | { readonly kind: "watch"; readonly ref: ActorRef; readonly by: number }
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

/** Buffers to move that a frame contains. */
interface Moving {
  readonly transfer: readonly ArrayBuffer[];
}

/** A frame from another isolate to the root, which owns all isolates. */
export type UpFrame =
  /** Asks isolate `to` to connect to the sender, if both have the same transport. */
  | { readonly kind: "invite"; readonly to: number } & Invitation
  /** Forwards `frame` to isolate `to`. */
  | { readonly kind: "forward"; readonly to: number; readonly frame: Frame | SwitchFrame } & Moving
  /** Starts isolate `isolate` with a first actor. */
  | { readonly kind: "start"; readonly isolate: number; readonly launch: LaunchFrame } & Moving
  /** The first actor of the isolate has ended, and with it all its actors. */
  | { readonly kind: "done"; readonly reason: Reason }
  /** The sender has reported all isolates that it has started. Answers `has-started`. */
  | { readonly kind: "started"; readonly about: number }
  /** Kills an isolate that does not stop. */
  | { readonly kind: "kill"; readonly isolate: number; readonly why: string }
  | { readonly kind: "dead-letter"; readonly letter: DeadLetter; readonly message?: unknown };

/** From now on, frames of isolate `from` arrive over the direct connection. */
export interface SwitchFrame {
  readonly kind: "switch";
  readonly from: number;
}

/** The first frame from the root: the identity of the isolate and its first actor. */
export interface BootFrame {
  readonly kind: "boot";
  /** Token in the addresses of this system. Absent if there is only one system. */
  readonly system: number | undefined;
  readonly isolate: number;
  /** Root seed of all substreams. */
  readonly seed: number;
  /** Milliseconds until the isolate of a child that does not stop is killed. */
  readonly stopGraceMs: number;
  readonly observer: ObserverSpec | undefined;
  /** Kinds of isolates that its actors can be spawned in, besides its own. In an environment: absent
   * for all. */
  readonly places: readonly PlaceKind[];
  readonly launch: LaunchFrame;
}

/** A frame from the root to another isolate. */
export type DownFrame =
  | BootFrame
  /** Connects to isolate `from`. */
  | { readonly kind: "accept"; readonly from: number; readonly address: unknown }
  | { readonly kind: "isolate-gone"; readonly isolate: number; readonly reason: Reason }
  /** Asks if this isolate or its descendants have started isolate `about`. */
  | { readonly kind: "has-started"; readonly about: number };
