/**
 * The seam between an isolate and the others: Deno workers and processes alike.
 *
 * @module
 */

import type { DeadLetter, Reason } from "../failure.ts";
import type { ObserverSpec } from "../observer.ts";
import type { Lines } from "./worker/lines.ts";
import type { Frame, LaunchFrame, Line, SwitchFrame } from "./wire.ts";

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
  drain(): Promise<void> | undefined;
  /** Ends an isolate that does not stop by itself. */
  kill(isolate: number, why: string): void;
}

/** What the transport of the root needs of it. */
export interface Root {
  readonly system: number | undefined;
  readonly seed: number;
  readonly stopGraceMs: number;
  /** What every isolate is observed by. */
  readonly observer: ObserverSpec | undefined;
  deliver(frame: Frame): void;
  isolateGone(isolate: number, reason: Reason): void;
  onDeadLetter(letter: DeadLetter): void;
}

/** A transport that owns the isolates it reaches. */
export interface RootTransport extends Transport {
  /** Grows while any of them is at work, or has been since this was called last. */
  activity(): number;
  /** Ends every isolate that still lives, and waits until they have ended or the grace is over. */
  close(): Promise<void>;
}

/** An isolate that the root owns, as the root sees it. It tells the {@linkcode Hub} of its end. */
export interface Host {
  /** Sends a frame from the root. @throws {DOMException} when it cannot be cloned. */
  post(frame: Frame, transfer: readonly ArrayBuffer[]): void;
  /** Sends a frame that comes from a process, whose lines to workers are `lines`. */
  relay(lines: Lines, frame: Frame | SwitchFrame, transfer: readonly ArrayBuffer[]): void;
  /** Has the isolate listen to the line from isolate `from`. */
  accept(from: number, line: Line): void;
  /** Tells that another isolate is gone, after all that came from there. */
  isolateGone(isolate: number, reason: Reason): void;
  /** Whether it is at work, or has been since this was asked last. */
  stirs(): boolean;
  /** Has it say when all that it has started until now is told. */
  hasStarted(about: number): void;
  /** Ends it, however busy it is. */
  kill(why: string): void;
  /** Lets it end, and waits until all it has sent is received. */
  leave(): Promise<void>;
  /** Settles when it has ended, and at the latest when the hub gives up waiting. */
  ended(giveUp: AbortSignal): Promise<void>;
}
