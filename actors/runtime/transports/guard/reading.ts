/**
 * What arrives from code that is not trusted, read field by field: what is not as it must be is
 * undefined, and what nobody asked for is left behind.
 *
 * @module
 */

import type { DeadLetter, DeadReason, Failure, Reason } from "../../failure.ts";
import type { ReplyTo } from "../../mailbox/envelope.ts";
import { isRef } from "../../messages.ts";
import type { ActorRef } from "../../types.ts";

/** A frame of which nothing is known but its kind. */
export type Untrusted<F> = { readonly [K in keyof F]?: unknown };

/** Longest name of an actor or type of a message, in UTF-16 code units. */
const NAME_MAX = 1000;

/** Longest text of a failure; what is longer is cut. */
const TEXT_MAX = 10_000;

const DEAD_REASONS: Readonly<Record<DeadReason, true>> = {
  "no-such-actor": true,
  "stopped": true,
  "isolate-gone": true,
  "not-cloneable": true,
  "malformed": true,
  "too-late": true,
  "denied": true,
  "no-room": true,
};

const FAILURE_KINDS: Readonly<Record<Failure["kind"], true>> = {
  "throw": true,
  "init": true,
  "exit": true,
  "mailbox-overflow": true,
  "unknown-message": true,
};

/** A plain record. */
export function recordOf(value: unknown): Readonly<Record<string, unknown>> | undefined {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  return value as Record<string, unknown>;
}

/** A whole number of 0 or more. */
export function countOf(value: unknown): number | undefined {
  return Number.isSafeInteger(value) && value as number >= 0 ? value as number : undefined;
}

/** The name of an actor, or a type. */
export function nameOf(value: unknown): string | undefined {
  return typeof value === "string" && value.length <= NAME_MAX ? value : undefined;
}

/** Some text, as much of it as may be told. */
export function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value.slice(0, TEXT_MAX) : undefined;
}

/** One of the keys of a table. */
function keyIn<K extends string>(
  table: Readonly<Record<K, unknown>>,
  value: unknown,
): K | undefined {
  return typeof value === "string" && Object.hasOwn(table, value) ? value as K : undefined;
}

/** An address of a system. */
export function refOf(value: unknown, system: number | undefined): ActorRef | undefined {
  if (!isRef(value) || value.system !== system || nameOf(value.id) === undefined) return undefined;
  const { id, isolate, serial } = value;
  return system === undefined ? { id, isolate, serial } : { id, isolate, serial, system };
}

/** A question. */
export function replyToOf(value: unknown): ReplyTo | undefined {
  const { isolate: where, ask: which } = recordOf(value) ?? {};
  const isolate = countOf(where), ask = countOf(which);
  return isolate === undefined || ask === undefined ? undefined : { isolate, ask };
}

/** Buffers that move with a frame. */
export function buffersOf(value: unknown): readonly ArrayBuffer[] | undefined {
  if (!Array.isArray(value) || new Set(value).size < value.length) return undefined;
  return value.every((one) => one instanceof ArrayBuffer && !one.detached) ? value : undefined;
}

/** How an actor has ended. */
export function reasonOf(value: unknown): Reason | undefined {
  return value === "stopped" ? value : failureOf(value);
}

/** Why one has failed. */
export function failureOf(value: unknown): Failure | undefined {
  const failure = recordOf(value), error = recordOf(failure?.error);
  if (!failure || !error) return undefined;
  const actor = nameOf(failure.actor), kind = keyIn(FAILURE_KINDS, failure.kind);
  const name = textOf(error.name), message = textOf(error.message), stack = textOf(error.stack);
  const isWhole = name !== undefined && message !== undefined && stack !== undefined;
  if (actor === undefined || kind === undefined || !isWhole) return undefined;
  const handling = textOf(failure.handling);
  return {
    actor,
    kind,
    error: { name, message, stack },
    ...handling !== undefined && { handling },
  };
}

/** A dead letter. */
export function letterOf(value: unknown): DeadLetter | undefined {
  const letter = recordOf(value);
  const from = nameOf(letter?.from), to = nameOf(letter?.to), type = nameOf(letter?.type);
  const reason = keyIn(DEAD_REASONS, letter?.reason);
  if (from === undefined || to === undefined || type === undefined || !reason) return undefined;
  return { from, to, type, reason };
}
