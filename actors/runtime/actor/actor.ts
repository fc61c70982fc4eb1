/**
 * An actor as its isolate keeps it.
 *
 * @module
 */

import { BriefMap } from "./brief_map.ts";
import type { Reason } from "../failure.ts";
import { Mailbox, oldestOfEachSender } from "../mailbox/mailbox.ts";
import type { Envelope, ReplyTo, Step } from "../mailbox/envelope.ts";
import { Ring } from "../mailbox/ring.ts";
import type { OTHERS } from "../handlers.ts";
import type { ActorRef, Message } from "../types.ts";

/** Serial of the system itself, in isolate 0. */
export const SYSTEM_SERIAL = 0;

/** Handlers by message type, whatever the protocol. */
export type AnyHandlers =
  & Readonly<Record<string, (message: Message) => void | Promise<void>>>
  & {
    readonly [OTHERS]?: (message: Message) => void | Promise<void>;
  };

/** A child. */
export interface Child {
  readonly ref: ActorRef;
  /** Calls off the kill of one that does not stop in time. */
  cancelKill?: () => void;
  /** The parent watched it and has been told of its end. */
  isTold?: true;
  /** Resolved when it has ended and its id is free; absent while nobody waits for that. */
  ended?: PromiseWithResolvers<void>;
}

/** A timer that runs, or has fired and whose message waits. */
export interface Timer {
  cancel: () => void;
  envelope?: Envelope | undefined;
}

/** An actor as its isolate keeps it. */
export class Actor {
  readonly ref: ActorRef;
  /** Absent for the system itself. */
  readonly parent: ActorRef | undefined;
  readonly capacity: number;
  readonly mailbox = new Mailbox();
  /** What the runtime makes it do, before and between messages: start, resume, finish. */
  readonly agenda = new Ring<Envelope>();
  /** In order of spawning, by {@linkcode keyOf}. */
  readonly children = new Map<string, Child>();
  /** Isolates where somebody watches this actor. */
  readonly watchers = new Set<number>();
  /** Keys of the actors that this one watches. */
  readonly watching = new Set<string>();
  /** Questions whose answers it owes. */
  readonly owed = new BriefMap<ReplyTo, true>();
  readonly timers = new Map<string | symbol, Timer>();
  readonly cleanups: (() => void | Promise<void>)[] = [];
  readonly streams = new Map<string, () => number>();
  /** Number of messages by id of the sender. */
  readonly received = new Map<string, number>();
  /** Number of questions that it has asked. */
  asked = 0;
  /** Gives its state to those who look: see {@linkcode Context.expose}. */
  expose: (() => unknown) | undefined;
  handlers: AnyHandlers = {};
  state: "starting" | "ready" | "stopping" = "starting";
  reason: Reason = "stopped";
  /** The step under way: at work, or waiting for answers. */
  step: Step | undefined;
  isFinishing = false;
  /** It handles what has arrived, takes nothing more, and stops then. */
  isDraining = false;
  doing = "";
  /** The envelope that the picker holds for this actor. */
  offered: Envelope | undefined;

  /** Makes an actor that has not started. */
  constructor(ref: ActorRef, parent: ActorRef | undefined, capacity: number) {
    this.ref = ref;
    this.parent = parent;
    this.capacity = capacity;
  }
}

/** Tells one actor from all others, in any isolate and at any time. */
export function keyOf({ isolate, serial }: ActorRef): string {
  return `${isolate}/${serial}`;
}

/** A step waits for answers, so other actors may run. */
function isSuspended(actor: Actor): boolean {
  return actor.step !== undefined && actor.step.asks.size > 0;
}

/** What the actor does next in plain order, if it can do anything now. */
export function headOf(actor: Actor): Envelope | undefined {
  if (actor.step && !isSuspended(actor)) return undefined;
  return actor.step || actor.state !== "ready" ? actor.agenda.at(0) : actor.mailbox.head();
}

/** All that the actor may do next. */
export function headsOf(actor: Actor): Envelope[] {
  if (actor.step && !isSuspended(actor)) return [];
  if (actor.step || actor.state !== "ready") return oldestOfEachSender(actor.agenda);
  return actor.mailbox.heads();
}

/** What the actor is doing in a step, for a report. */
export function describeStep({ doing }: Actor, step: Step | undefined): string | undefined {
  const type = step?.envelope.message.type;
  return type === undefined || doing === "" ? type : `${type} (${doing})`;
}
