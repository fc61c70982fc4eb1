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
import type { DOOR, OTHERS } from "../handlers.ts";
import type { ActorRef, Message } from "../types.ts";

/** Serial of the system itself, in isolate 0. */
export const SYSTEM_SERIAL = 0;

/** Handlers by message type, whatever the protocol. */
export type AnyHandlers =
  & Readonly<Record<string, (message: Message) => void | Promise<void>>>
  & {
    readonly [OTHERS]?: (message: Message) => void | Promise<void>;
    readonly [DOOR]?: (message: Message, isForeign: boolean) => string | undefined;
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
export interface Actor {
  readonly ref: ActorRef;
  /** Absent for the system itself. */
  readonly parent: ActorRef | undefined;
  readonly capacity: number;
  readonly mailbox: Mailbox;
  /** What the runtime makes it do, before and between messages: start, resume, finish. */
  readonly agenda: Ring<Envelope>;
  /** In order of spawning, by {@linkcode keyOf}. */
  readonly children: Map<string, Child>;
  /** Isolates where somebody watches this actor. */
  readonly watchers: Set<number>;
  /** Keys of the actors that this one watches. */
  readonly watching: Set<string>;
  /** Questions whose answers it owes. */
  readonly owed: BriefMap<ReplyTo, true>;
  readonly timers: Map<string | symbol, Timer>;
  readonly cleanups: (() => void | Promise<void>)[];
  readonly streams: Map<string, () => number>;
  /** How many messages came, by id of the sender. */
  readonly received: Map<string, number>;
  /** Questions that it has asked. */
  asked: number;
  /** Gives its state to those who look: see {@linkcode Context.expose}. */
  expose: (() => unknown) | undefined;
  handlers: AnyHandlers;
  state: "starting" | "ready" | "stopping";
  reason: Reason;
  /** The step at work, or the one that waits if none may overlap it. */
  step: Step | undefined;
  /** Most steps under way at once: see {@linkcode Context.reentrant}. */
  maxSteps: number;
  /** Steps that wait while others may begin. */
  readonly parked: Set<Step>;
  isFinishing: boolean;
  /** It handles what has arrived, takes nothing more, and stops then. */
  isDraining: boolean;
  doing: string;
  /** The envelope that the picker holds for this actor. */
  offered: Envelope | undefined;
}

/** A new actor that has not started. */
export function createActor(ref: ActorRef, parent: ActorRef | undefined, capacity: number): Actor {
  return {
    ref,
    parent,
    capacity,
    mailbox: new Mailbox(),
    agenda: new Ring(),
    children: new Map(),
    watchers: new Set(),
    watching: new Set(),
    owed: new BriefMap(),
    timers: new Map(),
    cleanups: [],
    streams: new Map(),
    received: new Map(),
    asked: 0,
    expose: undefined,
    handlers: {},
    state: "starting",
    reason: "stopped",
    step: undefined,
    maxSteps: 1,
    parked: new Set(),
    isFinishing: false,
    isDraining: false,
    doing: "",
    offered: undefined,
  };
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
  if (actor.step || actor.state !== "ready") return actor.agenda.at(0);
  if (actor.maxSteps === 1) return actor.mailbox.head();
  // What is under way comes before what has not begun.
  return actor.agenda.at(0) ?? (mayBegin(actor) ? actor.mailbox.head() : undefined);
}

/** All that the actor may do next. */
export function headsOf(actor: Actor): Envelope[] {
  if (actor.step && !isSuspended(actor)) return [];
  if (actor.step || actor.state !== "ready") {
    return oldestOfEachSender(actor.agenda);
  }
  if (actor.maxSteps === 1) return actor.mailbox.heads();
  return [...oldestOfEachSender(actor.agenda), ...mayBegin(actor) ? actor.mailbox.heads() : []];
}

function mayBegin({ parked, maxSteps }: Actor): boolean {
  return parked.size < maxSteps;
}

/** All steps that are under way. */
export function stepsOf({ step, parked }: Actor): Step[] {
  return step ? [step, ...parked] : [...parked];
}

/** What the actor is doing in a step, for a report. */
export function describeStep({ doing }: Actor, step: Step | undefined): string | undefined {
  const type = step?.envelope.message.type;
  return type === undefined || doing === "" ? type : `${type} (${doing})`;
}
