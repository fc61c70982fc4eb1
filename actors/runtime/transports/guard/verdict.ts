/**
 * What comes of a frame that a confined isolate sends.
 *
 * @module
 */

import type { DeadLetter } from "../../failure.ts";
import type { ReplyTo } from "../../mailbox/envelope.ts";
import type { ActorRef } from "../../types.ts";
import type { DownFrame, Frame, UpFrame } from "../wire.ts";
import type { Capabilities } from "./capabilities.ts";

/** What comes of a frame: nothing, where all is absent. */
export interface Verdict {
  /** To be handled as what the isolate tells the root. */
  readonly up?: Extract<UpFrame, { kind: "done" | "dead-letter" }>;
  /** For isolate `to`, the root included. */
  readonly post?: { readonly to: number; readonly frame: Frame };
  /** For the isolate itself. */
  readonly back?: DownFrame | Frame;
  /** What was tried that is not granted. */
  readonly denied?: Denial;
  /** Why the isolate is to be ended. */
  readonly forged?: string;
}

/** What was tried that is not granted. */
export interface Denial {
  /** See {@linkcode DeniedEvent}. */
  readonly what: string;
  readonly on: string;
  /** The message that it cost. */
  readonly letter?: DeadLetter;
}

/** Nothing comes of it, as of what has come too late. */
export const NOTHING: Verdict = {};

/** What no runtime does. */
export function forged(what: string): Verdict {
  return { forged: `the actor of a package must not ${what}` };
}

/** A frame that is not whole, or holds what it cannot. */
export function malformed(kind: string): Verdict {
  return forged(`send what is no "${kind}" of its own`);
}

/** Who waits for an answer is told why there is none. */
export function unsent(
  { self }: Capabilities,
  { isolate, ask }: ReplyTo,
  why: string,
): Pick<Verdict, "post" | "back"> {
  const frame: Frame = { kind: "answer", ask, outcome: { status: "unsent", why } };
  return isolate === self.isolate ? { back: frame } : { post: { to: isolate, frame } };
}

/** Why an address does not do. */
export function notGiven({ self }: Capabilities, { id }: ActorRef): string {
  return `"${self.id}" must have been given the address of "${id}"`;
}
