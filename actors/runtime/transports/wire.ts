/**
 * What isolates say to each other. All of it is structured-cloneable; within one isolate the same
 * frames are delivered without a line.
 *
 * @module
 */

import type { DeadLetter, Failure, Reason } from "../failure.ts";
import type { ActorRef, ActorSpec, Lane, Message } from "../types.ts";
import type { ReplyTo } from "../mailbox.ts";

/** Makes an actor in the isolate that gets this. */
export interface LaunchFrame {
  readonly kind: "launch";
  readonly ref: ActorRef;
  readonly parent: ActorRef;
  readonly spec: ActorSpec;
  readonly init: unknown;
  readonly capacity: number;
}

/** A message for an actor. */
export interface MessageFrame {
  readonly kind: "message";
  readonly to: ActorRef;
  readonly from: ActorRef;
  readonly lane: Lane;
  readonly message: Message;
  readonly replyTo?: ReplyTo | undefined;
}

/** How a question ended. */
export type Outcome =
  | { readonly status: "answered"; readonly value: unknown }
  /** The actor asked is gone. */
  | { readonly status: "gone"; readonly failure: Failure }
  /** Its handler ended without an answer. */
  | { readonly status: "unanswered" }
  /** The question could not be cloned. */
  | { readonly status: "unsent"; readonly why: string }
  | { readonly status: "timeout" };

/** What one isolate tells another. */
export type Frame =
  | LaunchFrame
  | MessageFrame
  | { readonly kind: "answer"; readonly ask: number; readonly outcome: Outcome }
  /** Somebody in isolate `by` wants to know when `ref` ends. */
  | { readonly kind: "watch"; readonly ref: ActorRef; readonly by: number }
  | { readonly kind: "unwatch"; readonly ref: ActorRef; readonly by: number }
  | { readonly kind: "down"; readonly ref: ActorRef; readonly reason: Reason }
  | { readonly kind: "stop"; readonly ref: ActorRef }
  /** To the parent's isolate: a child has ended. */
  | {
    readonly kind: "ended";
    readonly parent: ActorRef;
    readonly child: ActorRef;
    readonly reason: Reason;
    readonly isWatched: boolean;
  };

/** What a Deno worker tells the root, which owns all of them. */
export type UpFrame =
  /** Hand `port` to isolate `to`: it carries frames from the sender. */
  | { readonly kind: "introduce"; readonly to: number; readonly port: MessagePort }
  /** Start isolate `isolate` with a first actor. `transfer` lists the buffers of its init. */
  | {
    readonly kind: "start";
    readonly isolate: number;
    readonly launch: LaunchFrame;
    readonly transfer: readonly ArrayBuffer[];
  }
  /** The isolate's first actor, and so its last, has ended. */
  | { readonly kind: "done"; readonly reason: Reason }
  /** An isolate does not stop: end it. */
  | { readonly kind: "kill"; readonly isolate: number; readonly why: string }
  | { readonly kind: "dead-letter"; readonly letter: DeadLetter };

/** What the root tells a Deno worker. */
export type DownFrame =
  /** The first frame: who it is, and its first actor. */
  | {
    readonly kind: "boot";
    readonly isolate: number;
    readonly seed: number;
    readonly stopGraceMs: number;
    readonly launch: LaunchFrame;
  }
  /** Listen to `port`, the line from isolate `from`. */
  | { readonly kind: "accept"; readonly from: number; readonly port: MessagePort }
  | { readonly kind: "isolate-gone"; readonly isolate: number; readonly reason: Reason };
