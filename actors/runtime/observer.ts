/**
 * What a journal sees of an isolate: each step as it begins and ends, and all that its actor does
 * that others can notice.
 *
 * @module
 */

import { messageOf } from "./failure.ts";
import type { ActorRef, Message } from "./types.ts";

/** Deepest nesting that is copied by hand; beyond it, and for cycles, the platform does it. */
const MAX_DEPTH = 6;

const NOT_PLAIN = Symbol("not plain");

/** Arrays of numbers that messages are made of. */
const NUMBERS: ReadonlySet<object> = new Set(
  [Float32Array, Float16Array, Float64Array, Int32Array, Uint8Array].map(({ prototype }) =>
    prototype
  ),
);

/** Copies primitives, arrays, plain objects, maps and numbers, and gives up at anything else. */
function copyPlain(value: unknown, depth: number): unknown {
  if (typeof value !== "object" || value === null) {
    return typeof value === "function" || typeof value === "symbol" ? NOT_PLAIN : value;
  }
  if (depth === 0) return NOT_PLAIN;
  if (Array.isArray(value)) {
    const copy = new Array(value.length);
    for (let index = 0; index < value.length; index++) {
      const item = copyPlain(value[index], depth - 1);
      if (item === NOT_PLAIN) return NOT_PLAIN;
      copy[index] = item;
    }
    return copy;
  }
  const prototype = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype) {
    if (NUMBERS.has(prototype)) return copyNumbers(value as Float32Array);
    return prototype === Map.prototype ? copyMap(value as Map<unknown, unknown>, depth) : NOT_PLAIN;
  }
  const copy: Record<string, unknown> = {};
  for (const key of Object.keys(value)) {
    const item = copyPlain((value as Record<string, unknown>)[key], depth - 1);
    if (item === NOT_PLAIN || key === "__proto__") return NOT_PLAIN;
    copy[key] = item;
  }
  return copy;
}

/** Copies what has its memory to itself: of a part of a buffer, the platform copies the whole. */
function copyNumbers(values: Float32Array): unknown {
  const { buffer, byteLength } = values;
  const isWhole = buffer instanceof ArrayBuffer && buffer.byteLength === byteLength;
  return isWhole && !buffer.detached && !buffer.resizable ? values.slice() : NOT_PLAIN;
}

function copyMap(map: Map<unknown, unknown>, depth: number): unknown {
  const copy = new Map();
  for (const [key, value] of map) {
    const ownKey = copyPlain(key, depth - 1), own = copyPlain(value, depth - 1);
    if (ownKey === NOT_PLAIN || own === NOT_PLAIN) return NOT_PLAIN;
    copy.set(ownKey, own);
  }
  return copy;
}

/** Bytes up to which a copy costs less than asking the platform to move a buffer. */
const SMALL_BYTES = 4096;

/** Whether these can be copied and then taken away by hand. */
function areSmall(transfer: readonly Transferable[]): transfer is readonly ArrayBuffer[] {
  return transfer.every((one) => one instanceof ArrayBuffer && one.byteLength <= SMALL_BYTES);
}

/** Checks buffers that are to move. @throws {TypeError} when one is listed twice or has moved. */
export function checkTransfer(transfer: readonly Transferable[]): void {
  if (transfer.length > 1 && new Set(transfer).size < transfer.length) {
    throw new TypeError("An ArrayBuffer that is transferred twice could not be cloned.");
  }
  if (transfer.some((one) => (one as ArrayBuffer).detached)) {
    throw new TypeError("An ArrayBuffer is detached and could not be cloned.");
  }
}

/**
 * A copy that shares nothing with `value`, and takes over the buffers in `transfer`: what a
 * message between isolates goes through. Small plain records, most messages of an actor system,
 * are copied by hand, which is many times as fast.
 *
 * @throws {DOMException} `DataCloneError` when the platform cannot clone the value.
 */
export function snapshot<T>(value: T, transfer: readonly Transferable[] = []): T {
  return cloning(() => {
    checkTransfer(transfer);
    if (areSmall(transfer)) {
      const copy = copyPlain(value, MAX_DEPTH);
      if (copy !== NOT_PLAIN) {
        for (const buffer of transfer) buffer.transfer(0);
        return copy as T;
      }
    }
    return structuredClone(value, { transfer: [...transfer] });
  });
}

/** The platform refused to clone a value. */
export function isCloneError(error: unknown): error is DOMException {
  return error instanceof DOMException && error.name === "DataCloneError";
}

/**
 * Does what clones a value. Getters throw what they like, and of a list that holds no buffers the
 * platform complains in its own way: whatever it is, the value cannot be cloned.
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

/** What is seen of an actor. */
export interface ObservedActor {
  /** Its address. */
  readonly ref: ActorRef;
  /** What it says that it does, such as `2F0`; empty while it says nothing. */
  readonly activity: string;
  /** Gives its state, where it shows it: see {@linkcode Context.expose}. */
  readonly expose: (() => unknown) | undefined;
}

/** What is seen of a message. */
export interface ObservedMessage {
  /** Who sent it. */
  readonly from: ActorRef;
  /** How many came from this sender to this actor before. */
  readonly nth: number;
  /** The message itself. */
  readonly message: Message;
  /** Set when the sender waits for an answer. */
  readonly replyTo?: unknown;
}

/** What an actor does that others notice, and what it takes from the world. */
export interface Effect {
  /** What it does. */
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
  /** The message, answer, first state or key: as it is before anything in it is transferred. */
  readonly value?: unknown;
}

/**
 * Sees the steps of an isolate and changes nothing. Steps of an isolate do not overlap: what
 * {@linkcode Observer.did} tells belongs to the step begun last.
 */
export interface Observer {
  /** A message was taken out of its queue and is handled now. */
  begins(actor: ObservedActor, message: ObservedMessage, now: number): void;
  /** The actor did something. All but `spawned` are told before they take effect. */
  did(actor: ObservedActor, effect: Effect): void;
  /** The step is over, or waits for answers. */
  ends(actor: ObservedActor): void;
  /** The last actor ends; its step has been told. */
  closes(): void;
}

/** How an isolate that cannot be handed functions makes its observer: an ES module, the name of
 * the function that it exports, and what that is given besides the number of the isolate. */
export interface ObserverSpec {
  /** Absolute URL of the module. */
  readonly module: string;
  /** Name of the exported {@linkcode ObserverFactory}. */
  readonly export: string;
  /** Structured-cloneable. */
  readonly init: unknown;
}

/** Makes an observer in the isolate that it observes. */
export type ObserverFactory = (isolate: number, init: unknown) => Observer;

/** Makes the observer of an isolate. */
export async function openObserver(spec: ObserverSpec, isolate: number): Promise<Observer> {
  const exports: Record<string, unknown> = await import(spec.module);
  const factory = exports[spec.export];
  if (typeof factory !== "function") {
    throw new TypeError(
      `Cannot observe: ${spec.module} must export a function "${spec.export}", ` +
        `received ${typeof factory}`,
    );
  }
  const observer = (factory as ObserverFactory)(isolate, spec.init);
  for (const part of ["begins", "did", "ends", "closes"] as const) {
    if (typeof observer?.[part] === "function") continue;
    throw new TypeError(
      `Cannot observe: "${spec.export}" must return an observer, received one without ${part}`,
    );
  }
  return observer;
}

/**
 * An observer that harms nobody whom it observes: when it throws, that is told once, and it sees
 * nothing more.
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
    // A value that cannot be looked at is not sent either, which its actor is told.
    did: (actor, effect) => guard(() => observer.did(actor, effect), () => canBeSent(effect.value)),
    ends: (actor) => guard(() => observer.ends(actor)),
    closes: () => guard(() => observer.closes()),
  };
}

/** Two observers as one. */
export function both(one: Observer | undefined, other: Observer | undefined): Observer | undefined {
  if (!one || !other) return one ?? other;
  return {
    begins(actor, message, now) {
      one.begins(actor, message, now);
      other.begins(actor, message, now);
    },
    did(actor, effect) {
      one.did(actor, effect);
      other.did(actor, effect);
    },
    ends(actor) {
      one.ends(actor);
      other.ends(actor);
    },
    closes() {
      one.closes();
      other.closes();
    },
  };
}

function canBeSent(value: unknown): boolean {
  try {
    snapshot(value);
    return true;
  } catch {
    return false;
  }
}

/** An observed message, told apart from any other of a run: who sent it to whom as which. */
export function messageName(from: ActorRef, nth: number): string {
  return `${from.id}#${nth}`;
}
