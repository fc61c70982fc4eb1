/**
 * One isolate of the actor system: its actors, their questions and watches, and its environment.
 *
 * [Note: busy isolates] An isolate whose thread computes neither receives nor sends until the
 * computation ends, which may take minutes. To distinguish it from a hanging isolate, actors mark
 * long work ({@linkcode Context.busy}) in shared memory, which another thread reads. Work that
 * takes longer than {@linkcode MAX_WORK_MS} counts as hanging.
 *
 * @module
 */

import {
  type Actor,
  choosingPicker,
  CompactingMap,
  fifoPicker,
  keyOf,
  type Offers,
  type PendingAsk,
  type Picker,
  type Watch,
} from "./actor.ts";
import type { Envelope, ReplyTo } from "./mailbox.ts";
import type { Choose, SendOptions, Subscription, SystemEvent } from "./context.ts";
import {
  type DeadLetter,
  describeFailure,
  type Failure,
  goneFailure,
  type Reason,
} from "./failure.ts";
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
import {
  type ActorRef,
  isMessage,
  isRef,
  kindOf,
  type Lane,
  type Message,
  resultOr,
} from "./types.ts";
import type { BootFrame, Frame, LaunchFrame, MessageFrame } from "./wire.ts";
import type { Clock } from "./world.ts";

/** Maximum duration of work before an isolate counts as hanging. */
const MAX_WORK_MS = 3_600_000;

/** Maximum time counted between two checks, because a suspended machine does not work. */
const MAX_LOOK_MS = 60_000;

/** Indices of the counts of begun and of ended work. */
const BEGUN = 0, ENDED = 1;

/** Counts begun and ended work of an isolate. */
export class Heartbeat {
  /** Buffer shared with the thread that checks. */
  readonly buffer: SharedArrayBuffer;
  readonly #counts: Int32Array;
  /** Counts at the last check, time of that check, and time since the counts last changed. */
  #seen = 0;
  #lookedAt = 0;
  #sameMs = 0;

  /** @param buffer the buffer of the isolate to check, in another thread. */
  constructor(buffer: SharedArrayBuffer = new SharedArrayBuffer(2 * Int32Array.BYTES_PER_ELEMENT)) {
    this.buffer = buffer;
    this.#counts = new Int32Array(buffer);
  }

  /** Runs work that may take long, and counts it. */
  async busy<T>(run: () => T | Promise<T>): Promise<T> {
    Atomics.add(this.#counts, BEGUN, 1);
    try {
      return await run();
    } finally {
      Atomics.add(this.#counts, ENDED, 1);
    }
  }

  /** Returns true if work is running, or has run since the last call. */
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
 * Connects isolates. Frames from one isolate to another keep their order. When an isolate dies, the
 * others are notified after its last frame ({@linkcode isolateGone}).
 */
export interface Network {
  /**
   * Starts an isolate with its first actor.
   *
   * @throws {DOMException} if `init` cannot be cloned.
   */
  start(isolate: number, launch: LaunchFrame, transfer: readonly ArrayBuffer[]): void;
  /**
   * Sends a frame.
   *
   * @throws {DOMException} if the frame cannot be cloned.
   */
  post(isolate: number, frame: Frame, transfer: readonly ArrayBuffer[]): void;
  /** Receives pending frames; called after each turn of the event loop. */
  drain(): Promise<void> | undefined;
  /** Kills an isolate that does not stop. */
  kill(isolate: number, why: string): void;
  /**
   * Excludes the host of an isolate, because an actor could not handle a message from there. Returns
   * false if that host is trusted. Absent: all hosts are trusted.
   */
  exclude?(isolate: number, why: string): boolean;
}

/**
 * The environment of an isolate: everything that does not depend only on its actors and their
 * messages. A simulation runs the same actors in another environment.
 */
export interface Environment
  extends Pick<BootFrame, "seed" | "stopGraceMs">, Partial<Pick<BootFrame, "system" | "places">> {
  readonly clock: Clock;
  /** Picks the next message. Absent: FIFO order. */
  readonly choose?: Choose | undefined;
  /** The candidates of each actor for `choose`. Default: the oldest message of each sender. */
  readonly offers?: Offers | undefined;
  /** The observer of the isolate, or its module. */
  readonly observer?: Observer | ObserverSpec | undefined;
  /** Loads the module of an actor. Default: `import`. */
  readonly load?: ((module: string) => Promise<Record<string, unknown>>) | undefined;
  /** Called after each step. Returns a promise if the event loop must take a turn first. */
  readonly breathe: () => Promise<void> | undefined;
  /** Delivers frames between actors of this isolate. Absent: immediately, each once. */
  readonly delivery?: ((frame: Frame, deliver: (frame: Frame) => void) => void) | undefined;
  /** Connects this isolate to others. Absent: there are no others. */
  readonly network?: Network;
  /** Opens an observer that exports telemetry. Default: none. */
  readonly telemetry?: ((isolate: Isolate) => Observer | undefined) | undefined;
  /** Runs external operations: see {@linkcode Context.external}. Default: directly. */
  readonly external?: (<T>(run: () => T | Promise<T>) => Promise<T>) | undefined;
  /** Adds arrays across isolates. Absent: by messages only. */
  readonly collectives?: Collectives | undefined;
  /** The heartbeat of the isolate, if another thread checks it. */
  readonly heartbeat?: Heartbeat;
  /** Reports a dead letter. `message`: a copy of it, if the owner of the system has subscribed. */
  readonly onDeadLetter: (letter: DeadLetter, message?: unknown) => void;
  /** Reports an event to the owner of the system; absent outside the root. */
  readonly onEvent?: (event: SystemEvent) => void;
  /** Reports a failure that has reached the top of the tree. */
  readonly onFailure: (failure: Failure) => void;
  /** Called when the last actor has ended. */
  readonly onEmpty: (reason: Reason) => void;
}

/** One isolate of the actor system. */
export class Isolate {
  /** Actors by serial. */
  readonly actors = new Map<number, Actor>();
  /** Keys of the living actors of this isolate and of those spawned from it, by id. */
  readonly ids = new Map<string, string>();
  /** Failures of ended actors, by serial, for late watchers. */
  readonly failures = new Map<number, Failure>();
  /** Isolates that are gone, with the reason why their first actor ended. */
  readonly gone = new Map<number, Reason>();
  /** Watches of this isolate, by the key of the watched actor. */
  readonly watches = new Map<string, Watch[]>();
  readonly asks = new CompactingMap<number, PendingAsk>();
  readonly picker: Picker;
  readonly heartbeat: Heartbeat;
  /** Events that the owner of the system has subscribed to. */
  subscription: Subscription | undefined;
  /** The observer. No step begins before it is opened. */
  observer: Observer | undefined;
  /** Handles a frame for this isolate. */
  readonly deliver: (frame: Frame) => void;
  /** True while the dispatch loop runs. The loop clears it in the turn that finds no work. */
  isRunning = false;
  /** Stopping actors whose handlers still unwind after their questions were abandoned. */
  readonly unwinding = new Set<Actor>();
  /** The actor whose step the loop waits for. */
  current: Actor | undefined;
  nextSerial = 0;
  nextSeq = 0;
  nextAsk = 0;
  /** Number of isolates started from this one. */
  started = 0;
  /** Settles when the observer is opened, if that takes time. */
  #observing: Promise<void> | undefined;

  /** Creates an isolate without actors. */
  constructor(
    readonly number: number,
    readonly env: Environment,
    deliver: (isolate: Isolate, frame: Frame) => void,
    private readonly run: (isolate: Isolate) => Promise<void>,
  ) {
    this.heartbeat = env.heartbeat ?? new Heartbeat();
    this.picker = env.choose ? choosingPicker(env.choose, env.offers) : fifoPicker();
    this.deliver = (frame) => deliver(this, frame);
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

  /** Starts the dispatch loop unless it is running. */
  wake(): void {
    if (this.isRunning) return;
    this.isRunning = true;
    queueMicrotask(() =>
      this.#observing ? this.#observing.then(() => this.run(this)) : this.run(this)
    );
  }
}

/**
 * Sends a frame to an isolate, which may be this one.
 *
 * @throws {DOMException} if the frame cannot be cloned.
 */
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

/** Returns the copy of a frame that is delivered. Addresses are immutable, so usually only the
 * message is copied, which halves the cost. */
function copyOf(frame: Frame, transfer: readonly ArrayBuffer[]): Frame {
  if (frame.kind !== "message") return snapshot(frame, transfer);
  return { ...frame, message: snapshot(frame.message, transfer) };
}

/** Sends the receipt of a message that was handled or lost, if it has one. */
export function sendReceipt(isolate: Isolate, to: ActorRef, message?: Message): void {
  if (message) post(isolate, to.isolate, { kind: "receipt", to, message });
}

/** Contents of an envelope, without its position in the order. */
export type Contents = Omit<Envelope, "seq" | "nth" | "run">;

/** Adds a message at the end of an actor's lane. */
export function enqueue(isolate: Isolate, actor: Actor, contents: Contents): Envelope {
  const { lane, from, message, replyTo, timerKey, receipt } = contents;
  const nth = count(isolate, actor, from), seq = isolate.nextSeq++;
  const envelope: Envelope = { seq, nth, lane, from, message, replyTo, timerKey, receipt };
  actor.mailbox.push(envelope);
  offer(isolate, actor);
  return envelope;
}

/** Returns the number of the next message of a sender to an actor; 0 if the number is not used. */
function count({ env }: Isolate, { received }: Actor, { id }: ActorRef): number {
  // A long run may have many senders, so they are counted only if needed.
  if (!env.choose && !env.observer) return 0;
  const nth = received.get(id) ?? 0;
  received.set(id, nth + 1);
  return nth;
}

/** Schedules work of the runtime for an actor, to run before the messages in its mailbox. */
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

/** Notifies the dispatch loop that an actor may be able to run. */
export function offer(isolate: Isolate, actor: Actor): void {
  isolate.picker.changed(actor);
  isolate.wake();
}

/** Frees the id of an actor that has ended. */
export function releaseId(isolate: Isolate, ref: ActorRef): void {
  if (isolate.ids.get(ref.id) === keyOf(ref)) isolate.ids.delete(ref.id);
}

/** Sets the subscription of this isolate and its descendants; undefined: none. */
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

/** Reports a dead letter, with a copy of its message if there is a subscriber. */
export function reportDeadLetter(isolate: Isolate, letter: DeadLetter, message: unknown): void {
  const { env: { onDeadLetter }, subscription } = isolate;
  onDeadLetter(letter, subscription && copyOrNone(message));
}

/** Returns a copy of a value; undefined if it cannot be cloned. */
const copyOrNone = <T>(value: T): T | undefined => resultOr(() => snapshot(value), undefined);

/** The names of the lanes. */
export const LANES: readonly Lane[] = ["control", "data", "idle"];

/** Copies a receipt when its message is sent, because the receiver cannot answer for it later.
 * Undefined if it cannot be copied. */
function copyOfReceipt(receipt: unknown): Message | undefined {
  const copy = isMessage(receipt) ? copyOrNone(receipt) : undefined;
  return isMessage(copy) ? copy : undefined;
}

/**
 * Sends a message. It is enqueued immediately: no other actor runs before the step ends, so
 * messages are in program order. An invalid message becomes a dead letter.
 */
export function sendMessage(
  isolate: Isolate,
  from: ActorRef,
  to: ActorRef,
  message: Message,
  options: SendOptions | undefined,
  replyTo?: ReplyTo,
): void {
  const { lane = "data", transfer } = options ?? {}, receipt = copyOfReceipt(options?.receipt);
  const frame = { kind: "message", to, from, lane, message, replyTo, receipt } as const;
  if (!isRef(to) || !isMessage(message) || !LANES.includes(lane)) {
    return rejectMessage(isolate, frame, "malformed");
  }
  if (!receipt && options?.receipt !== undefined) {
    const why = "its receipt must be a record with a type that can be cloned";
    return rejectMessage(isolate, frame, "malformed", undefined, why);
  }
  if (to.system !== isolate.env.system) {
    const why = "it must be an actor of the same system";
    return rejectMessage(isolate, frame, "no-such-actor", undefined, why);
  }
  if (isolate.gone.has(to.isolate)) {
    return rejectMessage(isolate, frame, "isolate-gone", isolate.gone.get(to.isolate));
  }
  try {
    post(isolate, to.isolate, frame, transfer);
  } catch (error) {
    if (!isCloneError(error)) throw error;
    rejectMessage(isolate, frame, "not-cloneable", undefined, error.message);
  }
}

/** Makes a message a dead letter, and answers its asker, if any, with an error. */
export function rejectMessage(
  isolate: Isolate,
  { from, to, message, replyTo, receipt }: Omit<MessageFrame, "kind" | "lane">,
  reason: DeadLetter["reason"],
  end?: Reason,
  why?: string,
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
  const outcome = why === undefined
    ? { status: "gone", failure: goneFailure(to.id, end) } as const
    : { status: "unsent", why } as const;
  const { isolate: by, ask } = replyTo;
  post(isolate, by, { kind: "answer", from: to.isolate, ask, outcome });
}

/** The part of OpenTelemetry's API that is used. */
interface Span {
  setAttribute(name: string, value: string): unknown;
  end(): void;
}

type Attributes = Record<string, string | number>;

/** A metric that is recorded when it changes. */
export interface Gauge {
  /** Records the value. */
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
  createHistogram(name: string, options: object): Gauge;
  createObservableGauge(name: string, options: object): ObservableGauge;
}

/** Name of the instrumentation. */
const NAME = "troupe";

/**
 * Observes an isolate with OpenTelemetry. Each step, and each part of a step between waits for
 * answers, is a span named by the type of its message, with the attributes `troupe.actor`,
 * `troupe.from`, `troupe.isolate` and, if the actor has set an activity, `troupe.doing`. Metrics:
 * `troupe.step.duration`, a histogram in milliseconds by actor and message, whose count is the
 * number of messages handled; and `troupe.mailbox.depth`, the number of waiting messages by actor.
 *
 * @returns undefined if telemetry is off.
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

/** Returns the meter of metrics; undefined if telemetry is off. */
export function openMeter(): Meter | undefined {
  return openTracer() && Deno.telemetry.meterProvider.getMeter(NAME);
}

/** Opens the tracer; undefined if telemetry is off, because Deno's tracer then throws when it
 * starts a span. */
const openTracer = () =>
  resultOr(() => {
    const tracer: {
      startSpan(name: string, options?: { readonly attributes: Readonly<Attributes> }): Span;
    } = Deno.telemetry.tracerProvider.getTracer(NAME);
    tracer.startSpan("probe");
    return tracer;
  }, undefined);
