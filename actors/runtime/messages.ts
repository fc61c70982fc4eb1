/**
 * What a message and an address must be, where TypeScript has not looked.
 *
 * @module
 */

import type { ActorRef, Message } from "./types.ts";

/** Whether a value is an address. */
export function isRef(value: unknown): value is ActorRef {
  try {
    const { id, isolate, serial } = value as ActorRef;
    return typeof id === "string" && isCount(isolate) && isCount(serial);
  } catch {
    return false;
  }
}

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && value as number >= 0;
}

/** Whether a value is a record with a type. */
export function isMessage(value: unknown): value is Message {
  try {
    return typeof value === "object" && typeof (value as Message).type === "string";
  } catch {
    return false;
  }
}

/** What a value is, for a report of what it should have been. */
export function kindOf(value: unknown): string {
  return value === null ? "null" : typeof value;
}

/** @throws {TypeError} when a value is no message. */
export function assertMessage(what: string, value: unknown): asserts value is Message {
  if (isMessage(value)) return;
  throw new TypeError(
    `Cannot ${what}: its message must be a record with a type, received ${kindOf(value)}`,
  );
}

/** @throws {TypeError} when a value is no address. */
export function assertRef(what: string, value: unknown): asserts value is ActorRef {
  if (isRef(value)) return;
  throw new TypeError(
    `Cannot ${what}: it must be given the reference of an actor, received ${kindOf(value)}`,
  );
}
