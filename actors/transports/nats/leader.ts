/**
 * The leader of a run on hosts that meet at a server of NATS: it admits hosts, starts isolates on
 * them, and notices when one is lost.
 *
 * All frames pass through the leader, which checks them. So no host can harm another, and all hosts are
 * notified of a lost host at the same time.
 *
 * [Note: limits of the checks] An untrusted program may have the credentials of a host. A host may only send
 * frames of isolates that it runs: no frame claims to be from other actors, ends an isolate that the
 * host has not started, stops an actor of the leader, or starts one there, or with another module than
 * the leader has sent. A message that an actor of the leader cannot handle excludes its host. Other
 * contents of messages between actors are not checked: they may be wrong, like the results of the host.
 *
 * @module
 */

import { messageOf } from "../../runtime/failure.ts";
import { LANES } from "../../runtime/isolate.ts";
import { starterOf } from "../../runtime/spawning.ts";
import type { OpenTransport, StartRequest, Transport } from "../../runtime/transport.ts";
import { type ActorRef, isMessage, isRef } from "../../runtime/types.ts";
import type { BootFrame } from "../../runtime/wire.ts";
import { type AgentOrder, type AgentReport, Enlisted } from "../agent.ts";
import { flush, Outbox, receiveFrames } from "../stream.ts";
import {
  BEAT_MS,
  type Connection,
  connectMember,
  decodeControl,
  type MeetingPlace,
} from "./connection.ts";
import { CONTROL, Link, linkOf } from "./link.ts";

/** Facts that the leader and its hosts must have in common, by name. */
export type HostFacts = Readonly<Record<string, string>>;

/** Messages between leader and hosts besides frames. */
export type Control =
  | { readonly type: "hello"; readonly session: number; readonly facts: HostFacts }
  | {
    readonly type: "welcome";
    readonly session: number;
    readonly link: number;
    /** URL of the folder of Troupe's modules at the leader. */
    readonly base: string;
    readonly timeoutMs: number;
  }
  | { readonly type: "refused"; readonly why: string }
  /** The host wants to leave. */
  | { readonly type: "leave"; readonly link: number }
  /** The run is over for the host: it has ended, or continues without the host for a reason. */
  | { readonly type: "over"; readonly link: number; readonly why?: string };

/** URL of the folder of Troupe's modules. */
export const BASE: string = new URL(".", new URL("../../../deno.json", import.meta.url)).href;

/** Options of {@linkcode Leader.open}. */
export interface LeaderOptions extends MeetingPlace {
  readonly facts: HostFacts;
  /** Time after which a silent host is lost, in milliseconds. */
  readonly timeoutMs: number;
  /** Receives a line for each host that joins, leaves or is lost. */
  readonly announce: (line: string) => void;
}

/** Maximum bytes of a frame of a host. */
const FRAME_MAX = 2 ** 31;

/** Milliseconds within which a host must reconnect; it usually takes half a second. */
const RECONNECT_MS = 2000;

/** Name of the transport to the hosts. */
const TRANSPORT = "nats";

const JOINED_ANEW = "it has joined anew", LEFT = "it has left the run";

/** A host that has joined. */
interface Host {
  readonly number: number;
  readonly session: number;
  readonly link: Link;
  readonly outbox: Outbox;
  /** Numbers of its isolates in their systems, by their numbers here. */
  readonly isolates: Map<number, number>;
  /** Beats since its last message. */
  quiet: number;
  /** Beats since then that the server could not deliver. */
  absent: number;
  isLeaving: boolean;
}

/** The leader of a run. */
export class Leader {
  readonly #enlisted = new Enlisted();
  readonly #hosts = new Map<number, Host>();
  /** Excluded hosts, with the reason of each. */
  readonly #excluded = new Map<number, string>();
  /** Modules of the actors that hosts were sent. */
  readonly #modules = new Set<string>();
  #connection!: Connection;
  #links = 0;
  #timer: ReturnType<typeof setInterval> | undefined;
  #change = Promise.withResolvers<void>();
  #failure: Error | undefined;

  private constructor(private readonly options: LeaderOptions) {}

  /** Connects to the server. @throws {Error} as {@linkcode connectMember}. */
  static async open(options: LeaderOptions): Promise<Leader> {
    const leader = new Leader(options);
    leader.#connection = await connectMember(options, {
      hear: (from, message) => leader.#hear(from, message),
      absent: (number) => leader.#absent(number),
      reconnected: () => leader.#reconnected(),
      closed: (error) => leader.#closed(error),
    });
    leader.#timer = setInterval(() => leader.#beat(), BEAT_MS);
    return leader;
  }

  /** The transport to the hosts: an isolate starts on a host that has the fewest. */
  readonly transport: Transport = {
    name: TRANSPORT,
    sharesMemory: false,
    // A thread that does not end is left on its host, and no run waits for it.
    canKill: true,
    limitsMemory: false,
    open: (): OpenTransport => ({
      start: (request) => this.#start(request),
      drain: () => flush([...this.#hosts.values()].map(({ outbox }) => outbox)),
    }),
  };

  /** Waits at most `joinMs` until `count` hosts are available; returns the number of available hosts. */
  async gather(count: number, joinMs: number, signal?: AbortSignal): Promise<number> {
    let isLate = signal?.aborted ?? false;
    const stop = () => {
      isLate = true;
      this.#changed();
    };
    const timer = setTimeout(stop, joinMs);
    signal?.addEventListener("abort", stop, { once: true });
    while (this.#available().length < count && !isLate && !this.#failure) {
      await this.#change.promise;
    }
    clearTimeout(timer);
    signal?.removeEventListener("abort", stop);
    if (this.#failure) throw this.#failure;
    return this.available;
  }

  /** Number of connected hosts that do not want to leave. */
  get available(): number {
    return this.#available().length;
  }

  /** Releases the hosts that want to leave; called between steps. */
  release(): void {
    for (const host of this.#hosts.values()) {
      if (host.isLeaving) this.#lose(host, LEFT, {});
    }
  }

  /** Ends the run on all hosts. */
  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    for (const { number, link } of this.#hosts.values()) {
      this.#say(number, { type: "over", link: link.number });
      link.close();
    }
    await this.#connection.close();
  }

  #available(): Host[] {
    return [...this.#hosts.values()].filter(({ isLeaving }) => !isLeaving);
  }

  #start(request: StartRequest) {
    const [host] = this.#available().sort((a, b) => a.isolates.size - b.isolates.size);
    if (!host) throw new Error("Cannot start a worker: there must be a host, received none");
    const { outbox, isolates } = host;
    this.#modules.add((request.boot as BootFrame).launch.spec.module);
    const order = (one: AgentOrder, transfer: readonly Transferable[] = []) =>
      outbox.post(one, transfer as readonly ArrayBuffer[]);
    const isolate = this.#enlisted.start(order, request);
    isolates.set(isolate.number, request.isolate);
    isolate.ended.then(() => isolates.delete(isolate.number));
    return {
      ...isolate,
      exclude: (why: string) => {
        if (this.#hosts.get(host.number) === host) this.#exclude(host.number, why);
      },
    };
  }

  #say(to: number, control: Control): void {
    this.#connection.say(to, control);
  }

  /** Handles a message of a host; an invalid message excludes the host. */
  #hear(from: number, message: Uint8Array): void {
    if (this.#excluded.has(from)) return this.#refuse(from);
    try {
      if (message[0] === CONTROL) return this.#hearControl(from, decodeControl(message));
      const host = this.#hosts.get(from), link = linkOf(message);
      if (host?.link.number !== link) {
        return this.#say(from, { type: "over", link, why: "the run does not know it" });
      }
      host.quiet = host.absent = 0;
      host.link.hear(message);
    } catch (error) {
      this.#exclude(from, messageOf(error));
    }
  }

  #hearControl(from: number, control: Record<string, unknown>): void {
    const { type, session, facts, link } = control, host = this.#hosts.get(from);
    if (type === "leave") {
      if (host?.link.number !== link) return;
      host!.isLeaving = true;
      if (host!.isolates.size === 0) this.#lose(host!, LEFT, {});
      return;
    }
    if (type !== "hello" || !Number.isSafeInteger(session)) {
      throw new RangeError(`it has sent ${JSON.stringify(String(type).slice(0, 40))}`);
    }
    const problem = differenceOf(this.options.facts, Object(facts));
    if (problem !== undefined) return this.#say(from, { type: "refused", why: problem });
    if (host && host.session !== session) this.#lose(host, JOINED_ANEW, { why: JOINED_ANEW });
    const welcomed = this.#hosts.get(from) ?? this.#admit(from, session as number);
    this.#say(from, {
      type: "welcome",
      session: session as number,
      link: welcomed.link.number,
      base: BASE,
      timeoutMs: this.options.timeoutMs,
    });
  }

  #admit(number: number, session: number): Host {
    const publish = (message: Uint8Array) => this.#connection.publish(number, message);
    // Links of an earlier leader of the run have other numbers.
    this.#links ||= crypto.getRandomValues(new Uint16Array(1))[0]! * 2 ** 15;
    const link = new Link(++this.#links, publish, this.#connection.maxBytes), outbox = new Outbox();
    outbox.attach(link);
    const isolates = new Map<number, number>();
    const host = { number, session, link, outbox, isolates, quiet: 0, absent: 0, isLeaving: false };
    const receive = (report: unknown) => {
      if (this.#hosts.get(number) !== host) return;
      checkReport(report, isolates, this.#modules);
      this.#enlisted.report(report);
    };
    receiveFrames(link, receive, FRAME_MAX).catch((error) => {
      if (this.#hosts.get(number) === host) this.#exclude(number, messageOf(error));
    });
    this.#hosts.set(number, host);
    this.options.announce(`host ${number} has joined`);
    this.#changed();
    return host;
  }

  /** Ends a host for the whole run, because it has sent an invalid message. */
  #exclude(number: number, why: string): void {
    this.#excluded.set(number, why);
    const host = this.#hosts.get(number);
    if (host) this.#lose(host, `it was excluded: ${why}`);
    this.#refuse(number);
  }

  #refuse(number: number): void {
    const why = `host ${number} was excluded: ${this.#excluded.get(number)}`;
    this.#say(number, { type: "refused", why });
  }

  /** @param last fields of the last message to the host; absent if none is sent. */
  #lose(host: Host, why: string, last?: { readonly why?: string }): void {
    const { number, link, isolates } = host;
    if (last) this.#say(number, { type: "over", link: link.number, ...last });
    this.#hosts.delete(number);
    link.close();
    this.options.announce(`host ${number} is lost: ${why}`);
    for (const isolate of isolates.keys()) {
      this.#enlisted.report({ kind: "gone", isolate, cause: why });
      this.#enlisted.report({ kind: "ended", isolate });
    }
    this.#changed();
  }

  #beat(): void {
    const { timeoutMs } = this.options;
    for (const host of this.#hosts.values()) {
      host.link.beat();
      // Beats are counted instead of time, because a stopped or busy process receives none.
      if (++host.quiet * BEAT_MS <= timeoutMs) continue;
      const why = `it was silent for ${timeoutMs / 1000} s`;
      this.#lose(host, why, { why });
    }
  }

  /** Counts a beat to a host that is not connected: it has died, or is about to reconnect. */
  #absent(number: number): void {
    const host = this.#hosts.get(number), why = "it is not connected to the server";
    if (host && ++host.absent * BEAT_MS >= RECONNECT_MS) this.#lose(host, why, { why });
  }

  #reconnected(): void {
    for (const host of this.#hosts.values()) {
      host.quiet = 0;
      // All have lost the server, and may be back later than the leader.
      host.absent = -Infinity;
      host.link.resend();
    }
  }

  #closed(error: Error): void {
    this.#failure ??= new Error(`Cannot continue: the server has closed: ${error.message}`);
    for (const host of this.#hosts.values()) this.#lose(host, this.#failure.message);
    this.#changed();
  }

  #changed(): void {
    this.#change.resolve();
    this.#change = Promise.withResolvers();
  }
}

/** Describes the first fact that differs. */
function differenceOf(own: HostFacts, other: HostFacts): string | undefined {
  const name = Object.keys({ ...own, ...other }).find((name) => own[name] !== other[name]);
  if (name === undefined) return undefined;
  const shown = (value: unknown) => String(value ?? "none").slice(0, 100);
  return `${name} must be that of the leader, ${shown(own[name])}, received ${shown(other[name])}`;
}

type Fields = Readonly<Record<string, unknown>>;

/**
 * Checks a report of a host.
 *
 * @param isolates the isolates of the host: the number in the system of each, by its number here.
 * @param modules modules of which a host may start actors on hosts.
 * @throws {RangeError} when it is not a valid report of an agent.
 */
export function checkReport(
  report: unknown,
  isolates: ReadonlyMap<number, number>,
  modules: Modules,
): asserts report is AgentReport {
  const { kind, isolate, cause, frame } = Object(report) as Fields;
  const own = isolates.get(isolate as number);
  const isSound = own !== undefined && (
    kind === "alive" || kind === "ended" || kind === "gone" && typeof cause === "string" ||
    kind === "frame" && [TO_ROOT, TO_ALL].some((checks) => holds(checks, frame, own, modules))
  );
  if (isSound) return;
  const { kind: inner = kind } = Object(frame) as Fields;
  throw new RangeError(`it has sent ${JSON.stringify(String(inner).slice(0, 40))}`);
}

/** Checks a field of a frame of isolate `own`, whose other fields are `fields`. */
type FieldCheck = (value: unknown, own: number, fields: Fields, modules: Modules) => boolean;

/** Modules of which a host may start actors on hosts. */
type Modules = ReadonlySet<unknown>;

/** Checks of the fields of frames, by kind. */
type FrameChecks = Readonly<Record<string, Readonly<Record<string, FieldCheck>>>>;

const isOwn: FieldCheck = (value, own) => value === own;
const isOfOwn: FieldCheck = (ref, own) => isRef(ref) && ref.isolate === own;
const isStartedBy = (isolate: unknown, own: number) =>
  isNumber(isolate) && starterOf(isolate) === own;
const asksForOwn: FieldCheck = (question, own) =>
  isRecord(question) && question["isolate"] === own && isNumber(question["ask"]);
const orNone = (holds: FieldCheck): FieldCheck => (value, ...of) =>
  value === undefined || holds(value, ...of);
const isText = (value: unknown): value is string => typeof value === "string";
const isRecord = (value: unknown): value is Fields => typeof value === "object" && value !== null;
const isNumber = (value: unknown): value is number =>
  Number.isSafeInteger(value) && (value as number) >= 0;
const isReason = (reason: unknown) => reason === "stopped" || isFailure(reason);
const isLetter = (letter: unknown) => isRecord(letter) && isText(letter["type"]);

/**
 * A frame to another isolate, or a subscription of an isolate that was started here, or the stop of
 * an actor of a host: the root knows its own by their serial only.
 */
const isForwarded: FieldCheck = (frame, own, { to }, modules) => {
  const { kind, subscription = {}, ref, drain } = Object(frame) as Fields;
  if (kind === "subscribe") return isStartedBy(to, own) && isRecord(subscription);
  return holds(TO_ALL, frame, own, modules) || kind === "stop" && isRef(ref) &&
      ref.isolate === to && to !== 0 && typeof drain === "boolean";
};

const isLaunch: FieldCheck = (launch, _own, { isolate }, modules) => {
  const { kind, ref, parent, spec, capacity, place } = Object(launch) as Fields;
  return kind === "launch" && isRef(ref) && (ref as ActorRef).isolate === isolate &&
    isRef(parent) && isRecord(spec) && modules.has(spec["module"]) && isNumber(capacity) &&
    isRecord(place) && place["isolate"] === TRANSPORT;
};

/** Frames to the root. */
const TO_ROOT: FrameChecks = {
  forward: { to: isNumber, frame: isForwarded, transfer: Array.isArray },
  start: { isolate: isStartedBy, launch: isLaunch, transfer: Array.isArray },
  done: { reason: isReason },
  started: { about: isNumber },
  kill: { isolate: isStartedBy, why: isText },
  "dead-letter": { letter: isLetter },
  event: { event: isRecord },
};

/** Frames to the root or other isolates. */
const TO_ALL: FrameChecks = {
  message: {
    to: isRef,
    from: isOfOwn,
    message: isMessage,
    lane: (lane) => LANES.includes(lane as never),
    replyTo: orNone(asksForOwn),
  },
  answer: { from: isOwn, ask: isNumber, outcome: isOutcome, letter: orNone(isLetter) },
  withdraw: { to: isRef, question: asksForOwn },
  watch: { ref: isRef, by: isOwn },
  down: { ref: isOfOwn, reason: isReason },
  receipt: { to: isRef, message: isMessage },
  ended: { parent: isRef, child: isOfOwn, reason: isReason },
};

const holds = (checks: FrameChecks, frame: unknown, own: number, modules: Modules): boolean => {
  const fields = Object(frame) as Fields, { kind } = fields;
  return isText(kind) && Object.hasOwn(checks, kind) &&
    Object.entries(checks[kind]!).every(([name, isSound]) =>
      isSound(fields[name], own, fields, modules)
    );
};

function isFailure(failure: unknown): boolean {
  const { actor, kind, handling = "", error } = Object(failure) as Fields;
  const { name, message } = Object(error) as Fields;
  return [actor, kind, handling, name, message].every(isText);
}

function isOutcome(outcome: unknown): boolean {
  const { status, why, failure } = Object(outcome) as Fields;
  return status === "answered" || status === "unanswered" ||
    status === "unsent" && isText(why) || status === "gone" && isFailure(failure);
}
