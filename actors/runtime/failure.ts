/**
 * Failures as plain data that can be sent between isolates, and as errors that callers catch; and
 * limits of restarts after them.
 *
 * [Note: the window] A long run meets many unrelated failures, so old ones are forgotten, but only
 * after some progress: work that takes an hour and always fails at its end must not be retried
 * forever.
 *
 * @module
 */

import { type ActorRef, resultOr } from "./types.ts";

/**
 * The cause of an actor's failure. It names the actor that failed first, even after it has
 * propagated to others.
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
  /** The error that was thrown. */
  readonly error: { readonly name: string; readonly message: string; readonly stack: string };
  /** The message type that it was handling, with its activity: `Forward (2F0)`. */
  readonly handling?: string;
  /**
   * `throw`: a handler or a cleanup threw. `init`: the module or the factory threw. `exit`: the
   * actor or its whole isolate is gone. `mailbox-overflow`: more messages waited than its capacity
   * allows. `unknown-message`: it has no handler for a message.
   */
  readonly kind: "throw" | "init" | "exit" | "mailbox-overflow" | "unknown-message";
}

/** The reason why an actor ended. */
export type Reason = Failure | "stopped";

/** A notice that a watched actor has ended; see {@linkcode Failure}. */
export interface Down {
  /** The actor that has ended. */
  readonly ref: ActorRef;
  /** The reason why it ended. */
  readonly reason: Reason;
}

/**
 * The reason why a message was not delivered. `no-such-actor`: no actor with this address has
 * existed in this system. `not-cloneable`: it cannot be cloned. `malformed`: it is not a record
 * with a `type`, its address or lane is invalid, or its receiver refused it. `too-late`: its asker
 * no longer waits for the answer. `no-room`: its sender does not vouch for it, and half of the
 * mailbox is full.
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
 * A dead letter: a message that was not delivered.
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
  /** Id of the receiver. */
  readonly to: string;
  /** Type of the message. */
  readonly type: string;
  /** The reason why it was not delivered. */
  readonly reason: DeadReason;
}

/**
 * Thrown when an actor has failed and its parent did not watch it, or when an actor that was asked
 * has ended.
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
  /** Name of the error, which also identifies it across realms. */
  override readonly name = "ActorFailedError";
  /** The failure of the actor. */
  readonly failure: Failure;

  /**
   * Creates an error whose message names the actor, its activity and the cause.
   *
   * @param failure the failure of the actor.
   */
  constructor(failure: Failure) {
    const { actor, error, handling } = failure;
    const doing = handling ? ` while handling ${handling}` : "";
    super(`Actor "${actor}" failed${doing}: ${error.name}: ${error.message}`, { cause: failure });
    this.failure = failure;
  }
}

/**
 * Thrown when a question was not answered in time. The message names both actors, the message type
 * and the timeout.
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
  /** Name of the error, which also identifies it across realms. */
  override readonly name = "AskTimeoutError";

  /**
   * Creates an error whose message names both actors.
   *
   * @param from id of the actor that asked.
   * @param to id of the actor that was asked.
   * @param type type of the message.
   * @param timeoutMs the timeout in milliseconds.
   */
  constructor(from: string, to: string, type: string, timeoutMs: number) {
    super(`Actor "${to}" did not answer "${type}" of "${from}" within ${timeoutMs} ms`);
  }
}

/** Describes a thrown value as data that can be sent. */
export function describeFailure(
  actor: string,
  kind: Failure["kind"],
  thrown: unknown,
  handling?: string,
): Failure {
  const message = messageOf(thrown);
  const name = isError(thrown) ? textOf(() => thrown.name) : "Error";
  const headline = `${name}: ${message}`;
  const stack = isError(thrown) ? textOf(() => thrown.stack ?? headline) : headline;
  return {
    actor,
    kind,
    error: { name, message, stack },
    ...(handling === undefined ? {} : { handling }),
  };
}

/** Returns true if a thrown value is an error. A proxy can throw here. */
const isError = (thrown: unknown): thrown is Error =>
  resultOr(() => thrown instanceof Error, false);

/** Returns the message of a thrown value of any type. */
export function messageOf(thrown: unknown): string {
  return textOf(() => thrown instanceof Error ? thrown.message : thrown);
}

/** Converts a value to a string, or returns a fixed text if that throws. */
const textOf = (read: () => unknown): string =>
  resultOr(() => String(read()), "a value that cannot be shown as text");

/** Returns the failure of a question to an actor that has ended. */
export function goneFailure(actor: string, reason: Reason = "stopped"): Failure {
  if (reason !== "stopped") return reason;
  return describeFailure(actor, "exit", new Error(`actor "${actor}" has stopped`));
}

/** Limits of {@linkcode countRestarts}. */
interface RestartLimits {
  /** Maximum number of restarts within the period. */
  readonly intensity: number;
  /** The period in milliseconds. */
  readonly periodMs: number;
  /** Delay of the second restart, in milliseconds. The first has no delay; each later one has
   * twice the delay of the previous one. */
  readonly firstMs: number;
  /** Maximum delay, in milliseconds. */
  readonly maxMs: number;
}

/** A counter of failures. */
export type Restarts = ReturnType<typeof countRestarts>;

/** Creates a counter of failures. */
export function countRestarts({ intensity, periodMs, firstMs, maxMs }: RestartLimits) {
  let failures: readonly { readonly at: number; readonly progress: number }[] = [], progress = 0;
  return {
    /**
     * Counts a failure.
     *
     * @param at the time in milliseconds.
     * @returns the delay of the restart, in milliseconds; undefined after too many failures.
     */
    failed(at: number): number | undefined {
      const recent = failures.filter((failure) =>
        at - failure.at < periodMs || failure.progress === progress
      );
      failures = [...recent, { at, progress }];
      if (recent.length >= intensity) return undefined;
      return recent.length === 0 ? 0 : Math.min(maxMs, firstMs * 2 ** (recent.length - 1));
    },
    /** Notes progress: failures until now are forgotten after the period. */
    gotOn: () => void progress++,
  };
}
