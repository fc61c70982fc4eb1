/**
 * Observes an isolate for a journal: the begin and end of each step, and its effects.
 *
 * @module
 */

import { messageOf } from "./failure.ts";
import { type ActorRef, assertInput, functionOf, type Message, resultOr } from "./types.ts";

/**
 * Maximum depth copied in JavaScript: that of the answer to a step. Deeper values and cycles are cloned
 * by the platform.
 */
const MAX_DEPTH = 8;

const NOT_PLAIN = Symbol("not plain");

/** Prototypes of the typed arrays that messages contain. */
const NUMBERS: ReadonlySet<object> = new Set(
  [Float32Array, Float16Array, Float64Array, Int32Array, Uint8Array].map(({ prototype }) =>
    prototype
  ),
);

/** Copies primitives, arrays, plain objects, maps and typed arrays; returns NOT_PLAIN for other
 * values, and for an object or a buffer that comes twice. */
function copyPlain(value: unknown, depth: number, seen: Set<object>): unknown {
  if (typeof value !== "object" || value === null) {
    return typeof value === "function" || typeof value === "symbol" ? NOT_PLAIN : value;
  }
  if (depth === 0 || seen.has(value)) return NOT_PLAIN;
  seen.add(value);
  if (Array.isArray(value)) return copyArray(value, depth, seen);
  const prototype = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype) {
    if (NUMBERS.has(prototype)) return copyNumbers(value as Float32Array, seen);
    return prototype === Map.prototype
      ? copyMap(value as Map<unknown, unknown>, depth, seen)
      : NOT_PLAIN;
  }
  const copy: Record<string, unknown> = {};
  for (const key of Object.keys(value)) {
    const item = copyPlain((value as Record<string, unknown>)[key], depth - 1, seen);
    if (item === NOT_PLAIN || key === "__proto__") return NOT_PLAIN;
    copy[key] = item;
  }
  return copy;
}

/**
 * Returns true if an array with these keys has neither holes nor named properties: indices precede
 * other keys, so if there is one key for each element, the last key shows that all are indices.
 */
export function isDense(keys: readonly string[], length: number): boolean {
  return keys.length === length && (length === 0 || keys[length - 1] === `${length - 1}`);
}

function copyArray(values: readonly unknown[], depth: number, seen: Set<object>): unknown {
  const { length } = values;
  if (!isDense(Object.keys(values), length)) return NOT_PLAIN;
  const copy = new Array(length);
  for (let index = 0; index < length; index++) {
    const item = copyPlain(values[index], depth - 1, seen);
    if (item === NOT_PLAIN) return NOT_PLAIN;
    copy[index] = item;
  }
  return copy;
}

/** Copies an array that covers its whole buffer. For a part of a buffer, the platform copies the
 * whole buffer. */
function copyNumbers(values: Float32Array, seen: Set<object>): unknown {
  const { buffer, byteLength } = values;
  const isWhole = buffer instanceof ArrayBuffer && buffer.byteLength === byteLength;
  if (!isWhole || buffer.detached || buffer.resizable || seen.has(buffer)) return NOT_PLAIN;
  seen.add(buffer);
  return values.slice();
}

function copyMap(map: Map<unknown, unknown>, depth: number, seen: Set<object>): unknown {
  const copy = new Map();
  for (const [key, value] of map) {
    const ownKey = copyPlain(key, depth - 1, seen), own = copyPlain(value, depth - 1, seen);
    if (ownKey === NOT_PLAIN || own === NOT_PLAIN) return NOT_PLAIN;
    copy.set(ownKey, own);
  }
  return copy;
}

/** Size in bytes up to which a copy costs less than a move by the platform. */
const SMALL_BYTES = 4096;

/** Returns true if all are small buffers, which are copied and then detached. */
function areSmall(transfer: readonly Transferable[]): transfer is readonly ArrayBuffer[] {
  return transfer.every((one) => one instanceof ArrayBuffer && one.byteLength <= SMALL_BYTES);
}

/**
 * Checks buffers to move.
 *
 * @throws {TypeError} if a buffer is listed twice or detached.
 */
export function checkTransfer(transfer: readonly Transferable[]): void {
  if (transfer.length > 1 && new Set(transfer).size < transfer.length) {
    throw new TypeError("An ArrayBuffer that is transferred twice could not be cloned.");
  }
  if (transfer.some((one) => (one as ArrayBuffer).detached)) {
    throw new TypeError("An ArrayBuffer is detached and could not be cloned.");
  }
}

/**
 * Returns a deep copy of `value` that takes over the buffers in `transfer`, like a message between
 * isolates. Small plain records, which most messages are, are copied in JavaScript, which is many
 * times faster than structured clone.
 *
 * @throws {DOMException} `DataCloneError` if the platform cannot clone the value.
 */
export function snapshot<T>(value: T, transfer: readonly Transferable[] = []): T {
  return cloning(() => {
    checkTransfer(transfer);
    if (areSmall(transfer)) {
      const copy = copyPlain(value, MAX_DEPTH, new Set());
      if (copy !== NOT_PLAIN) {
        for (const buffer of transfer) buffer.transfer(0);
        return copy as T;
      }
    }
    return structuredClone(value, { transfer: [...transfer] });
  });
}

/** Returns true if an error is a `DataCloneError`. */
export function isCloneError(error: unknown): error is DOMException {
  return error instanceof DOMException && error.name === "DataCloneError";
}

/**
 * Runs a function that clones a value. Turns any error, such as one thrown by a getter or for an
 * invalid transfer list, into a `DataCloneError`.
 *
 * @throws {DOMException} `DataCloneError`
 */
export function cloning<T>(clone: () => T): T {
  try {
    return clone();
  } catch (error) {
    throw isCloneError(error) ? error : new DOMException(messageOf(error), "DataCloneError");
  }
}

/** An observed actor. */
export interface ObservedActor {
  /** Its address. */
  readonly ref: ActorRef;
  /** The activity of the actor, such as `2F0`; empty if it has not set one. */
  readonly activity: string;
  /** Returns the state of the actor, if it exposes one: see {@linkcode Context.expose}. */
  readonly expose: (() => unknown) | undefined;
}

/** An observed message. */
export interface ObservedMessage {
  /** Address of the sender. */
  readonly from: ActorRef;
  /** Number of earlier messages from this sender to this actor. */
  readonly nth: number;
  /** The message itself. */
  readonly message: Message;
  /** Set when the sender waits for an answer. */
  readonly replyTo?: unknown;
  /** Set on work of the runtime: start, resume, finish. */
  readonly run?: unknown;
}

/** An effect of an actor on others, or an input from outside. */
export interface Effect {
  /** Kind of the effect. */
  readonly kind:
    | "send"
    | "ask"
    | "reply"
    | "refuse"
    | "outside"
    | "spawn"
    | "spawned"
    | "watch"
    | "after"
    | "stop"
    | "now";
  /** The other actor, if there is one. */
  readonly to?: ActorRef | undefined;
  /** The message, answer, init or key, before any of its buffers is transferred. */
  readonly value?: unknown;
}

/**
 * Observes the steps of an isolate without changing anything. Steps of an isolate do not overlap,
 * so an effect belongs to the step that began last.
 */
export interface Observer {
  /** A message was taken out of its queue and will now be handled. */
  begins(actor: ObservedActor, message: ObservedMessage, now: number): void;
  /** The actor has an effect. Called before it happens, except for `spawned`. */
  did(actor: ObservedActor, effect: Effect): void;
  /** The step has ended or waits for answers. */
  ends(actor: ObservedActor): void;
  /** The last actor has ended. Called after its last step. */
  closes(): void;
}

/** An observer that an isolate opens by name, because functions cannot be sent: a module, its
 * exported function, and the second argument of that function. */
export interface ObserverSpec {
  /** Absolute URL of the module. */
  readonly module: string;
  /** Name of the exported {@linkcode ObserverFactory}. */
  readonly export: string;
  /** Second argument of the factory; structured-cloneable. */
  readonly init: unknown;
}

/** Creates an observer in the isolate it observes. The first argument is the isolate's number. */
export type ObserverFactory = (isolate: number, init: unknown) => Observer;

/**
 * Opens the observer of an isolate.
 *
 * @throws {TypeError} if the module does not export a function, or the function does not return an
 * observer.
 */
export async function openObserver(spec: ObserverSpec, isolate: number): Promise<Observer> {
  const open = functionOf("Cannot observe", spec, await import(spec.module)) as ObserverFactory;
  const observer = open(isolate, spec.init);
  for (const part of ["begins", "did", "ends", "closes"] as const) {
    const has = typeof observer?.[part] === "function", received = `one without ${part}`;
    const must = `Cannot observe: "${spec.export}" must return an observer`;
    assertInput(has, must, received, TypeError);
  }
  return observer;
}

/**
 * Wraps an observer so that its errors do not affect the isolate. The first error is reported, and
 * the observer is not called again.
 */
export function guarded(observer: Observer, onError: (error: unknown) => void): Observer {
  let isBroken = false;
  const guard = (see: () => void, isItsFault = () => true) => {
    if (isBroken) return;
    try {
      see();
    } catch (error) {
      if (!isItsFault()) return;
      isBroken = true;
      onError(error);
    }
  };
  return {
    begins: (actor, envelope, now) => guard(() => observer.begins(actor, envelope, now)),
    // A value that cannot be read cannot be sent either; its actor gets that error.
    did: (actor, effect) => guard(() => observer.did(actor, effect), () => canBeSent(effect.value)),
    ends: (actor) => guard(() => observer.ends(actor)),
    closes: () => guard(() => observer.closes()),
  };
}

/** Combines two observers into one. */
export function both(one: Observer | undefined, other: Observer | undefined): Observer | undefined {
  if (!one || !other) return one ?? other;
  const all = [one, other];
  return {
    begins: (...given) => all.forEach((each) => each.begins(...given)),
    did: (...given) => all.forEach((each) => each.did(...given)),
    ends: (actor) => all.forEach((each) => each.ends(actor)),
    closes: () => all.forEach((each) => each.closes()),
  };
}

const canBeSent = (value: unknown): boolean => resultOr(() => (snapshot(value), true), false);

/** Returns the name of an observed message, unique among messages to its actor. */
export function messageName(from: ActorRef, nth: number): string {
  return `${from.id}#${nth}`;
}
