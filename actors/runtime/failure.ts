/**
 * What can go wrong, as plain data that crosses isolates and as errors that a caller catches.
 *
 * @module
 */

import type { ActorRef } from "./types.ts";

/**
 * Why an actor failed. It names the actor where it began, however far it has travelled.
 *
 * @example
 * ```ts
 * import { createSystem, type Down } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * await using system = createSystem();
 * const module = `data:text/javascript,export const stage = (ctx) => ({
 *   Forward({ microBatch }) { ctx.setActivity("2F" + microBatch); throw new Error("out of memory"); },
 * })`;
 * const stage = system.spawn<undefined, { type: "Forward"; microBatch: number }>(
 *   { module, export: "stage" },
 *   undefined,
 *   { id: "stage-2" },
 * );
 * const down = new Promise<Down>((resolve) => system.watch(stage, resolve));
 * system.send(stage, { type: "Forward", microBatch: 0 });
 * const { reason } = await down;
 * assert.ok(reason !== "stopped");
 * assert.equal(reason.actor, "stage-2");
 * assert.equal(reason.handling, "Forward (2F0)");
 * assert.equal(reason.error.message, "out of memory");
 * ```
 */
export interface Failure {
  /** Id of the actor that failed first. */
  readonly actor: string;
  /** What was thrown. */
  readonly error: { readonly name: string; readonly message: string; readonly stack: string };
  /** What it was doing: the message type, and the text last given to `ctx.setActivity`. */
  readonly handling?: string;
  /**
   * `throw`: a handler or a cleanup threw. `init`: the module or the factory threw. `exit`: the
   * actor, or its whole isolate, is gone. `mailbox-overflow`: more messages waited than its
   * capacity. `unknown-message`: there is no handler for a message.
   */
  readonly kind: "throw" | "init" | "exit" | "mailbox-overflow" | "unknown-message";
}

/** How an actor ended. */
export type Reason = Failure | "stopped";

/** An actor that was watched has ended; see {@linkcode Failure}. */
export interface Down {
  /** The actor that has ended. */
  readonly ref: ActorRef;
  /** How it ended. */
  readonly reason: Reason;
}

/**
 * Why a message was not delivered. `no-such-actor`: there never was one with this address in this
 * system. `not-cloneable`: it holds what cannot be sent. `malformed`: it is no record with a `type`, or
 * its address or its lane is none, or its receiver refused it. `too-late`: nobody waits for this answer
 * any more. `no-room`: its sender does not vouch for it, and half of the mailbox is full.
 */
export type DeadReason =
  | "no-such-actor"
  | "stopped"
  | "isolate-gone"
  | "not-cloneable"
  | "malformed"
  | "too-late"
  | "no-room";

/**
 * A message that nobody will handle.
 *
 * @example
 * ```ts
 * import { createSystem } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * await using system = createSystem();
 * const module = "data:text/javascript,export const idle = () => ({})";
 * const ref = system.spawn<undefined, { type: "Call"; back: () => void }>(
 *   { module, export: "idle" },
 *   undefined,
 *   { id: "idle" },
 * );
 * system.send(ref, { type: "Call", back: () => {} });
 * assert.deepEqual(system.deadLetters, [
 *   { from: "system", to: "idle", type: "Call", reason: "not-cloneable" },
 * ]);
 * ```
 */
export interface DeadLetter {
  /** Id of the sender. */
  readonly from: string;
  /** Id of the actor that should have got it. */
  readonly to: string;
  /** Type of the message. */
  readonly type: string;
  /** Why nobody will. */
  readonly reason: DeadReason;
}

/**
 * An actor has failed and its parent did not watch it, or the actor that was asked is gone.
 *
 * @example
 * ```ts
 * import { ActorFailedError, createSystem } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * await using system = createSystem();
 * const module = `data:text/javascript,export const broken = () => { throw new Error("no disk") }`;
 * system.spawn({ module, export: "broken" }, undefined, { id: "store" });
 * const error = await system.failed.catch((error) => error);
 * assert.ok(error instanceof ActorFailedError);
 * assert.equal(error.message, 'Actor "store" failed while handling init: Error: no disk');
 * assert.equal(error.failure.kind, "init");
 * ```
 */
export class ActorFailedError extends Error {
  /** Tells it from other errors, also where the class is another. */
  override readonly name = "ActorFailedError";
  /** What happened, where. */
  readonly failure: Failure;

  /**
   * Says in one line who failed, doing what.
   *
   * @param failure what happened, where.
   */
  constructor(failure: Failure) {
    const { actor, error, handling } = failure;
    const doing = handling ? ` while handling ${handling}` : "";
    super(`Actor "${actor}" failed${doing}: ${error.name}: ${error.message}`, { cause: failure });
    this.failure = failure;
  }
}

/**
 * No answer came in time. The message says who asked whom for what.
 *
 * @example
 * ```ts
 * import { AskTimeoutError, createSystem } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * await using system = createSystem();
 * const module = `data:text/javascript,export const mute = (ctx) => ({ ping() { ctx.deferReply() } })`;
 * const mute = system.spawn<undefined, { type: "ping" }>(
 *   { module, export: "mute" },
 *   undefined,
 *   { id: "mute" },
 * );
 * const error = await system.ask(mute, { type: "ping" }, { timeoutMs: 20 }).catch((error) => error);
 * assert.ok(error instanceof AskTimeoutError);
 * assert.equal(error.message, 'Actor "mute" did not answer "ping" of "system" within 20 ms');
 * ```
 */
export class AskTimeoutError extends Error {
  /** Tells it from other errors, also where the class is another. */
  override readonly name = "AskTimeoutError";

  /**
   * Says in one line who waited for whom.
   *
   * @param from id of the actor that asked.
   * @param to id of the actor that was asked.
   * @param type type of the message.
   * @param timeoutMs how long the answer was waited for, in milliseconds.
   */
  constructor(from: string, to: string, type: string, timeoutMs: number) {
    super(`Actor "${to}" did not answer "${type}" of "${from}" within ${timeoutMs} ms`);
  }
}

/** Describes what was thrown as data that can be sent. */
export function describeFailure(
  actor: string,
  kind: Failure["kind"],
  thrown: unknown,
  handling?: string,
): Failure {
  const isError = thrown instanceof Error, message = messageOf(thrown);
  const name = isError ? textOf(() => thrown.name) : "Error";
  const headline = `${name}: ${message}`;
  const stack = isError ? textOf(() => thrown.stack ?? headline) : headline;
  return {
    actor,
    kind,
    error: { name, message, stack },
    ...(handling === undefined ? {} : { handling }),
  };
}

/** What was thrown, in words, whatever it is. */
export function messageOf(thrown: unknown): string {
  return textOf(() => thrown instanceof Error ? thrown.message : thrown);
}

/** A value as text, where it may be anything and may throw itself. */
function textOf(read: () => unknown): string {
  try {
    return String(read());
  } catch {
    return "something that cannot be told";
  }
}

/** The failure that stands for "this actor can answer no more". */
export function goneFailure(actor: string, reason: Reason = "stopped"): Failure {
  if (reason !== "stopped") return reason;
  return describeFailure(actor, "exit", new Error(`actor "${actor}" has stopped`));
}
