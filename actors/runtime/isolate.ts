/**
 * One isolate of the actor system: its actors, what they wait for, and the world around it.
 *
 * [Note: busy is not wedged] An isolate whose thread computes hears and says nothing until it has
 * done, which may take minutes. Only what it wrote before tells it from one that hangs. So actors
 * say what may take its time ({@linkcode Context.busy}), another thread looks, and what is busy for
 * longer than any work takes hangs all the same.
 *
 * @module
 */

import { type Actor, CompactingMap, keyOf, type PendingAsk, type Watch } from "./actor.ts";
import { choosingPicker, fifoPicker, type Offers, type Picker } from "./choose.ts";
import type { Choose, SendOptions, Subscription, SystemEvent } from "./context.ts";
import {
  type DeadLetter,
  describeFailure,
  type Failure,
  goneFailure,
  type Reason,
} from "./failure.ts";
import type { Envelope, ReplyTo } from "./mailbox.ts";
import {
  both,
  guarded,
  isCloneError,
  type Observer,
  type ObserverSpec,
  openObserver,
  snapshot,
} from "./observer.ts";
import type { Collectives } from "./transport.ts";
import { type ActorRef, isMessage, isRef, kindOf, type Lane, type Message } from "./types.ts";
import type { Frame, LaunchFrame, MessageFrame, Outcome, PlaceKind } from "./wire.ts";
import type { Clock } from "./world.ts";

/** Work that goes on for longer is none. */
const MAX_WORK_MS = 3_600_000;

/** Time between two looks counts up to here: a suspended machine does not work. */
const MAX_LOOK_MS = 60_000;

/** Places of the counts. */
const BEGUN = 0, ENDED = 1;

/** Counts the work of an isolate that has begun and ended. */
export class Heartbeat {
  /** Shared with those who look. */
  readonly buffer: SharedArrayBuffer;
  readonly #counts: Int32Array;
  /** What was seen last, when, and for how long it has been the same. */
  #seen = 0;
  #lookedAt = 0;
  #sameMs = 0;

  /** @param buffer that of the isolate, where this is another. */
  constructor(buffer: SharedArrayBuffer = new SharedArrayBuffer(2 * Int32Array.BYTES_PER_ELEMENT)) {
    this.buffer = buffer;
    this.#counts = new Int32Array(buffer);
  }

  /** Runs what may take its time. */
  async busy<T>(run: () => T | Promise<T>): Promise<T> {
    Atomics.add(this.#counts, BEGUN, 1);
    try {
      return await run();
    } finally {
      Atomics.add(this.#counts, ENDED, 1);
    }
  }

  /** Whether there is work, or has been since this was asked last. */
  isAlive(): boolean {
    const begun = Atomics.load(this.#counts, BEGUN), ended = Atomics.load(this.#counts, ENDED);
    const seen = begun + ended, isSame = seen === this.#seen, now = performance.now();
    this.#sameMs = isSame ? this.#sameMs + Math.min(now - this.#lookedAt, MAX_LOOK_MS) : 0;
    this.#seen = seen;
    this.#lookedAt = now;
    return !isSame || (begun !== ended && this.#sameMs < MAX_WORK_MS);
  }
}

/**
 * Reaches other isolates. It keeps the order of the frames from one isolate to another, and tells
 * the isolate it serves, after the last frame of one that died, that it is gone
 * ({@linkcode isolateGone}).
 */
export interface Network {
  /** Starts an isolate with a first actor. @throws {DOMException} when init cannot be cloned. */
  start(isolate: number, launch: LaunchFrame, transfer: readonly ArrayBuffer[]): void;
  /** Sends a frame. @throws {DOMException} when it cannot be cloned. */
  post(isolate: number, frame: Frame, transfer: readonly ArrayBuffer[]): void;
  /** Receives what has come by now; called whenever the event loop has had its turn. */
  drain(): Promise<void> | undefined;
  /** Ends an isolate that does not stop by itself. */
  kill(isolate: number, why: string): void;
}

/**
 * The world around an isolate: all that is not a function of its actors and their messages. A
 * simulation is another environment under the same actors.
 */
export interface Environment {
  /** Tells the addresses of this system from those of others. Absent where there is but one. */
  readonly system?: number | undefined;
  /** The root of all {@linkcode substream}s. */
  readonly seed: number;
  readonly clock: Clock;
  /** Absent: plain order. */
  readonly choose?: Choose | undefined;
  /** What an actor offers to `choose`. Default: the oldest message of each sender. */
  readonly offers?: Offers | undefined;
  /** Sees what happens, or how to make what does. */
  readonly observer?: Observer | ObserverSpec | undefined;
  /** Loads the module of an actor. Default: `import`. */
  readonly load?: ((module: string) => Promise<Record<string, unknown>>) | undefined;
  /** Asked after each step: a promise when the event loop must have its turn first. */
  readonly breathe: () => Promise<void> | undefined;
  /** Carries what actors of this isolate send each other. Absent: each frame arrives, once. */
  readonly delivery?: ((frame: Frame, deliver: (frame: Frame) => void) => void) | undefined;
  /** How other isolates are reached. Absent: every actor lives in this one. */
  readonly network?: Network;
  /** Exports what happens in an isolate. Default: nothing does. */
  readonly telemetry?: ((isolate: Isolate) => Observer | undefined) | undefined;
  /** Does what is outside of the actors' world. Default: as it comes. */
  readonly external?: (<T>(run: () => T | Promise<T>) => Promise<T>) | undefined;
  /** Where actors can be put, beside this isolate. Absent: wherever a transport would put them. */
  readonly places?: readonly PlaceKind[];
  /** How actors add arrays with those of other isolates. Absent: by messages only. */
  readonly collectives?: Collectives | undefined;
  /** The heartbeat of the isolate, where others look at it. */
  readonly heartbeat?: Heartbeat;
  /** How long a child in another isolate may take to stop before its isolate is ended. */
  readonly stopGraceMs: number;
  /** `message`: a copy of it, where the owner of the system wants one. */
  readonly onDeadLetter: (letter: DeadLetter, message?: unknown) => void;
  /** Tells the owner of the system of something; absent where that is elsewhere. */
  readonly onEvent?: (event: SystemEvent) => void;
  /** A failure reached the top of the tree. */
  readonly onFailure: (failure: Failure) => void;
  /** The last actor has ended. */
  readonly onEmpty: (reason: Reason) => void;
}

/** One isolate of the actor system. */
export class Isolate {
  readonly number: number;
  readonly env: Environment;
  /** By serial. */
  readonly actors = new Map<number, Actor>();
  /** Ids of the living actors here and of those spawned from here, and whose key each is. */
  readonly ids = new Map<string, string>();
  /** Failures of actors that were here, by serial: for those who watch too late. */
  readonly failures = new Map<number, Failure>();
  /** Isolates that are gone, and how their first actor ended. */
  readonly gone = new Map<number, Reason>();
  /** Who in this isolate watches whom, by key of the watched. */
  readonly watches = new Map<string, Watch[]>();
  readonly asks = new CompactingMap<number, PendingAsk>();
  readonly picker: Picker;
  readonly heartbeat: Heartbeat;
  /** What the owner of the system wants to be told of. */
  subscription: Subscription | undefined;
  /** Sees what happens; no step begins before it does. */
  observer: Observer | undefined;
  /** Handles a frame for this isolate. */
  readonly deliver: (frame: Frame) => void;
  /** The loop runs; it clears this in the turn in which it finds nothing left to do. */
  isRunning = false;
  /** Actors that stop while their handlers, whose questions have been given up, still unwind. */
  readonly unwinding = new Set<Actor>();
  /** The actor whose step the loop waits for. */
  current: Actor | undefined;
  nextSerial = 0;
  nextSeq = 0;
  nextAsk = 0;
  /** Isolates started from here. */
  started = 0;
  readonly #run: (isolate: Isolate) => Promise<void>;
  /** Settles when the observer is there, if that takes time. */
  #observing: Promise<void> | undefined;

  /** Makes an isolate without actors. */
  constructor(
    number: number,
    env: Environment,
    deliver: (isolate: Isolate, frame: Frame) => void,
    run: (isolate: Isolate) => Promise<void>,
  ) {
    this.number = number;
    this.env = env;
    this.heartbeat = env.heartbeat ?? new Heartbeat();
    this.picker = env.choose ? choosingPicker(env.choose, env.offers) : fifoPicker();
    this.deliver = (frame) => deliver(this, frame);
    this.#run = run;
    const { observer } = env, telemetry = env.telemetry?.(this);
    const blame = (kind: "throw" | "init") => (error: unknown) =>
      env.onFailure(describeFailure("system", kind, error, "observer"));
    const see = (made: Observer) =>
      void (this.observer = both(guarded(made, blame("throw")), telemetry));
    this.observer = telemetry;
    if (!observer) return;
    if ("begins" in observer) see(observer);
    else this.#observing = openObserver(observer, number).then(see, blame("init"));
  }

  /** Starts the loop that handles messages, if it does not run. */
  wake(): void {
    if (this.isRunning) return;
    this.isRunning = true;
    queueMicrotask(() =>
      this.#observing ? this.#observing.then(() => this.#run(this)) : this.#run(this)
    );
  }
}

/** Sends a frame to an isolate, this one included. @throws {DOMException} when it cannot be cloned. */
export function post(
  isolate: Isolate,
  to: number,
  frame: Frame,
  transfer: readonly ArrayBuffer[] = [],
): void {
  if (to === isolate.number) {
    const { delivery } = isolate.env, copy = copyOf(frame, transfer);
    if (delivery) delivery(copy, isolate.deliver);
    else isolate.deliver(copy);
  } else if (!isolate.gone.has(to)) isolate.env.network?.post(to, frame, transfer);
}

/** What arrives of a frame. Addresses are never changed, so of most frames only the message is
 * copied, which is half of the work. */
function copyOf(frame: Frame, transfer: readonly ArrayBuffer[]): Frame {
  if (frame.kind !== "message") return snapshot(frame, transfer);
  return { ...frame, message: snapshot(frame.message, transfer) };
}

/** Tells the sender of a message that it waits no more, where it wants to know. */
export function sendReceipt(isolate: Isolate, to: ActorRef, message?: Message): void {
  if (message) post(isolate, to.isolate, { kind: "receipt", to, message });
}

/** An envelope without its place in the order. */
export type Contents = Omit<Envelope, "seq" | "nth" | "run">;

/** Puts a message at the end of an actor's lane. */
export function enqueue(isolate: Isolate, actor: Actor, contents: Contents): Envelope {
  const { lane, from, message, replyTo, timerKey, receipt } = contents;
  const nth = count(isolate, actor, from), seq = isolate.nextSeq++;
  const envelope: Envelope = { seq, nth, lane, from, message, replyTo, timerKey, receipt };
  actor.mailbox.push(envelope);
  offer(isolate, actor);
  return envelope;
}

/** The number of the next message of a sender to an actor, if anybody wants to know. */
function count({ env }: Isolate, { received }: Actor, { id }: ActorRef): number {
  // A long run may have any number of senders, so they are not counted for nothing.
  if (!env.choose && !env.observer) return 0;
  const nth = received.get(id) ?? 0;
  received.set(id, nth + 1);
  return nth;
}

/** Makes an actor do `run` as soon as it is its turn, before what waits in its mailbox. */
export function schedule(
  isolate: Isolate,
  actor: Actor,
  message: Message,
  from: ActorRef,
  run: () => void | Promise<void>,
): void {
  const nth = count(isolate, actor, from), seq = isolate.nextSeq++;
  actor.agenda.push({ seq, nth, lane: "control", from, message, run });
  offer(isolate, actor);
}

/** Lets the loop know that an actor may have something to do. */
export function offer(isolate: Isolate, actor: Actor): void {
  isolate.picker.changed(actor);
  isolate.wake();
}

/** Lets the id of an actor that has ended be given again. */
export function releaseId(isolate: Isolate, ref: ActorRef): void {
  if (isolate.ids.get(ref.id) === keyOf(ref)) isolate.ids.delete(ref.id);
}

/** Tells this isolate and those below it what is wanted from now on; undefined: nothing. */
export function subscribe(isolate: Isolate, subscription: Subscription | undefined): void {
  isolate.subscription = subscription;
  const below = new Set<number>();
  for (const { children } of isolate.actors.values()) {
    for (const { ref } of children.values()) {
      if (ref.isolate !== isolate.number) below.add(ref.isolate);
    }
  }
  for (const number of below) post(isolate, number, { kind: "subscribe", subscription });
}

/** Tells an isolate that was started just now what is wanted. */
export function sendSubscription(isolate: Isolate, number: number): void {
  const { subscription } = isolate;
  if (subscription) post(isolate, number, { kind: "subscribe", subscription });
}

/** Tells of a dead letter, with a copy of what it holds if somebody wants that. */
export function reportDeadLetter(isolate: Isolate, letter: DeadLetter, message: unknown): void {
  const { env: { onDeadLetter }, subscription } = isolate;
  if (!subscription) return onDeadLetter(letter);
  try {
    onDeadLetter(letter, snapshot(message));
  } catch (error) {
    if (!isCloneError(error)) throw error;
    onDeadLetter(letter);
  }
}

/** The names of the lanes. */
export const LANES: readonly Lane[] = ["control", "data"];

/**
 * Sends a message. Enqueued at once: no other actor runs before the step ends, so the order is
 * the order of the program. Whatever is wrong with it, it ends as a dead letter.
 */
export function sendMessage(
  isolate: Isolate,
  from: ActorRef,
  to: ActorRef,
  message: Message,
  options: SendOptions | undefined,
  replyTo?: ReplyTo,
): void {
  const { lane = "data", transfer, receipt } = options ?? {};
  const frame = { kind: "message", to, from, lane, message, replyTo, receipt } as const;
  if (!isRef(to) || !isMessage(message) || !LANES.includes(lane)) {
    return rejectMessage(isolate, frame, "malformed");
  }
  if (to.system !== isolate.env.system) {
    const why = "it must be an actor of the same system";
    return rejectMessage(isolate, frame, "no-such-actor", undefined, { status: "unsent", why });
  }
  if (isolate.gone.has(to.isolate)) {
    return rejectMessage(isolate, frame, "isolate-gone", isolate.gone.get(to.isolate));
  }
  try {
    post(isolate, to.isolate, frame, transfer);
  } catch (error) {
    if (!isCloneError(error)) throw error;
    rejectMessage(isolate, frame, "not-cloneable", undefined, {
      status: "unsent",
      why: error.message,
    });
  }
}

/** Makes a message a dead letter, and tells who waits for an answer to it. */
export function rejectMessage(
  isolate: Isolate,
  { from, to, message, replyTo, receipt }: Omit<MessageFrame, "kind" | "lane">,
  reason: DeadLetter["reason"],
  end?: Reason,
  unsent?: Outcome,
): void {
  const letter: DeadLetter = {
    from: from.id,
    to: isRef(to) ? to.id : kindOf(to),
    type: isMessage(message) ? message.type : kindOf(message),
    reason,
  };
  reportDeadLetter(isolate, letter, message);
  sendReceipt(isolate, from, receipt);
  if (!replyTo) return;
  const outcome = unsent ?? { status: "gone", failure: goneFailure(to.id, end) };
  post(isolate, replyTo.isolate, { kind: "answer", ask: replyTo.ask, outcome });
}

/** As much of OpenTelemetry's API as is used. */
interface Span {
  setAttribute(name: string, value: string): unknown;
  end(): void;
}

interface Tracer {
  startSpan(name: string, options?: { readonly attributes: Readonly<Attributes> }): Span;
}

type Attributes = Record<string, string | number>;

/** A number that is told when it changes. */
export interface Gauge {
  /** Tells it. */
  record(value: number, attributes: Attributes): void;
}

interface ObservableGauge {
  addCallback(callback: (result: Observed) => void): void;
  removeCallback(callback: (result: Observed) => void): void;
}

interface Observed {
  observe(value: number, attributes: Attributes): void;
}

/** Makes the instruments of metrics. */
interface Meter {
  createGauge(name: string, options: object): Gauge;
  createHistogram(name: string, options: object): {
    record(value: number, attributes: Attributes): void;
  };
  createObservableGauge(name: string, options: object): ObservableGauge;
}

interface Providers {
  readonly tracerProvider: { getTracer(name: string): Tracer };
  readonly meterProvider: { getMeter(name: string): Meter };
}

/** Name of the instrumentation. */
const NAME = "troupe";

/**
 * Observes an isolate with OpenTelemetry. Each step, and each part of one that waits for answers,
 * is a span named by the type of its message, with the attributes `troupe.actor`, `troupe.from`,
 * `troupe.isolate` and, where the actor says it, `troupe.doing`. Metrics: `troupe.step.duration`, a
 * histogram in milliseconds by actor and message, whose count is that of the messages handled; and
 * `troupe.mailbox.depth`, the messages that wait, by actor.
 *
 * @returns undefined where telemetry is off.
 */
export function openTelemetry(isolate: Isolate): Observer | undefined {
  const tracer = openTracer(), meter = openMeter();
  if (!tracer || !meter) return undefined;
  const duration = meter.createHistogram("troupe.step.duration", { unit: "ms" });
  const depth = meter.createObservableGauge("troupe.mailbox.depth", { unit: "{message}" });
  const tellDepths = (result: Observed) => {
    for (const { ref, mailbox, parent } of isolate.actors.values()) {
      if (parent) result.observe(mailbox.length, placeOf(ref));
    }
  };
  const placeOf = ({ id }: { readonly id: string }) => ({
    "troupe.actor": id,
    "troupe.isolate": isolate.number,
  });
  depth.addCallback(tellDepths);
  let step: { readonly span: Span; readonly begun: number; readonly type: string } | undefined;
  return {
    begins({ ref }, { from, message: { type } }) {
      const attributes = { ...placeOf(ref), "troupe.from": from.id };
      step = { span: tracer.startSpan(type, { attributes }), begun: performance.now(), type };
    },
    did() {},
    ends({ ref, activity }) {
      if (!step) return;
      const { span, begun, type } = step;
      if (activity !== "") span.setAttribute("troupe.doing", activity);
      span.end();
      duration.record(performance.now() - begun, { ...placeOf(ref), "troupe.message": type });
      step = undefined;
    },
    closes() {
      depth.removeCallback(tellDepths);
    },
  };
}

/** What metrics are told to; undefined where telemetry is off. */
export function openMeter(): Meter | undefined {
  return openTracer() && providers?.meterProvider.getMeter(NAME);
}

const { telemetry: providers } = Deno as unknown as { telemetry?: Providers };

/** Deno's tracer refuses to make a span where it exports none. */
function openTracer(): Tracer | undefined {
  try {
    const tracer = providers?.tracerProvider.getTracer(NAME);
    tracer?.startSpan("probe");
    return tracer;
  } catch {
    return undefined;
  }
}
