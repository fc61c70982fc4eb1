/**
 * The seam between an isolate and the others: Deno workers today, processes or hosts alike.
 *
 * @module
 */

import type { DeadLetter, Reason } from "../failure.ts";
import type { Frame, LaunchFrame } from "./wire.ts";

/**
 * Reaches other isolates. It keeps the order of the frames from one isolate to another, and tells
 * the isolate it serves, after the last frame of one that died, that it is gone
 * ({@linkcode isolateGone}).
 */
export interface Transport {
  /** Starts an isolate with a first actor. @throws {DOMException} when init cannot be cloned. */
  start(isolate: number, launch: LaunchFrame, transfer: readonly ArrayBuffer[]): void;
  /** Sends a frame. @throws {DOMException} when it cannot be cloned. */
  post(isolate: number, frame: Frame, transfer: readonly ArrayBuffer[]): void;
  /** Receives what has come by now; called whenever the event loop has had its turn. */
  drain(): void;
  /** Ends an isolate that does not stop by itself. */
  kill(isolate: number, why: string): void;
}

/** What the transport of the root needs of it. */
export interface Root {
  readonly seed: number;
  readonly stopGraceMs: number;
  deliver(frame: Frame): void;
  isolateGone(isolate: number, reason: Reason): void;
  onDeadLetter(letter: DeadLetter): void;
}

/** A transport that owns the isolates it reaches. */
export interface RootTransport extends Transport {
  /** Ends every isolate that still lives, and waits until they have ended or the grace is over. */
  close(): Promise<void>;
}
