/**
 * What a journal sees of an isolate: each step as it begins and ends, and all that its actor does
 * that others can notice.
 *
 * @module
 */

import { snapshot } from "./snapshot.ts";
import type { ActorRef, Message } from "./types.ts";

/** What is seen of an actor. */
export interface ObservedActor {
  /** Its address. */
  readonly ref: ActorRef;
  /** What it says that it does, such as `2F0`; empty while it says nothing. */
  readonly doing: string;
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
