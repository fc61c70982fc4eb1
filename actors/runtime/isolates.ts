/**
 * The root's registry of all other isolates. It starts each one with the transport of its place,
 * forwards frames between them, and notifies all when an isolate is gone.
 *
 * @module
 */

import { type DeadLetter, describeFailure, messageOf, type Reason } from "./failure.ts";
import type { Network } from "./isolate.ts";
import { isCloneError, snapshot } from "./observer.ts";
import { starterOf } from "./spawning.ts";
import type { OpenTransport, RemoteIsolate, StartRequest, Transport } from "./transport.ts";
import type { BootFrame, Frame, LaunchFrame, SwitchFrame, UpFrame } from "./wire.ts";

/**
 * Starts an isolate. It counts as gone if a frame cannot be sent to it, or if its transport fails
 * to end it or does not report its end within a limit. Later frames are ignored, and the addresses in
 * them declined, which may be open ports.
 *
 * @param limitMs maximum time until its end is reported, in milliseconds.
 * @throws the error of the transport if the isolate cannot be started.
 */
function startGuarded(
  transport: OpenTransport,
  request: StartRequest,
  limitMs: number,
): RemoteIsolate {
  const gone = Promise.withResolvers<string>(), ended = Promise.withResolvers<void>();
  let isGone = false;
  const ignore = (frame: unknown) => {
    const { kind, address } = frame as { readonly kind: string; readonly address?: unknown };
    if (kind === "invite" || kind === "accept") transport.decline?.(address);
  };
  const remote = transport.start({
    ...request,
    receive: (frame) => isGone ? ignore(frame) : request.receive(frame),
  });
  const lose = (cause: string) => {
    isGone = true;
    gone.resolve(cause);
  };
  const fail = (what: string, error: unknown) =>
    lose(`its transport cannot ${what}: ${messageOf(error)}`);
  const end = (how: "close" | "kill") => {
    try {
      remote[how]();
    } catch (error) {
      fail(`${how} it`, error);
    }
    limit(gone.promise, limitMs, () => lose(`its transport has not said so within ${limitMs} ms`));
  };
  remote.gone.then(lose, (error) => fail("tell of its end", error));
  remote.ended.then(ended.resolve, () => ended.resolve());
  return {
    gone: gone.promise,
    ended: ended.promise,
    send(frame, transfer) {
      if (isGone) return ignore(frame);
      try {
        remote.send(frame, transfer);
      } catch (error) {
        if (isCloneError(error)) throw error;
        fail("send", error);
        end("kill");
      }
    },
    close: () => end("close"),
    kill: () => end("kill"),
    exclude: remote.exclude,
    abandon() {
      remote.abandon?.();
      limit(ended.promise, limitMs, () => ended.resolve());
    },
    ...remote.isAlive && { isAlive: () => remote.isAlive!() },
  };
}

/** Calls `late` if `promise` has not settled after `ms` milliseconds. */
function limit(promise: Promise<unknown>, ms: number, late: () => void): void {
  const timer = setTimeout(late, ms);
  promise.finally(() => clearTimeout(timer));
}

/** The parts of the root isolate that the registry needs. */
export interface Root extends Omit<BootFrame, "kind" | "isolate" | "launch" | "places"> {
  readonly onDeadLetter: (letter: DeadLetter, message?: unknown) => void;
  deliver(frame: Frame): void;
  reject(to: number, frame: Frame | SwitchFrame, why?: string): void;
  isolateGone(isolate: number, reason: Reason): void;
}

/** A living isolate. */
interface Member {
  /** Id of its first actor. */
  readonly actor: string;
  readonly transport: Transport;
  readonly remote: RemoteIsolate;
  /** The reason why its last actor has ended, once reported. */
  reason?: Reason;
  /** The reason why it was killed. */
  why?: string;
  /** True if a frame has arrived since the last call of {@linkcode IsolateRegistry.activity}. */
  sawActivity: boolean;
}

/** A callback that waits for an isolate whose start has not reached the root yet. Its argument is
 * undefined if the isolate does not exist. */
type Early = (member: Member | undefined) => void;

/** All isolates except the root. */
export class IsolateRegistry implements Network {
  readonly #open = new Map<Transport, OpenTransport>();
  readonly #members = new Map<number, Member>();
  readonly #gone = new Map<number, Reason>();
  readonly #early = new Map<number, Early[]>();
  /** For each isolate on an untrusted host, also after its end, the function that excludes the host. */
  readonly #excludes = new Map<number, (why: string) => void>();
  /** Isolates that still have resources, each with a promise of its complete end. */
  readonly #pending = new Map<RemoteIsolate, Promise<unknown>>();
  #activity = 0;

  /**
   * @param root the root isolate.
   * @param transports transports that actors can be spawned with, by name.
   */
  constructor(private readonly root: Root, private readonly transports: readonly Transport[]) {}

  start(number: number, launch: LaunchFrame, transfer: readonly ArrayBuffer[]): void {
    const { isolate: name, memoryLimitMb } = launch.place;
    const transport = this.transports.find((one) => one.name === name)!;
    const { system, seed, stopGraceMs, observer } = this.root;
    const places = this.transports.map(({ name, limitsMemory }) => ({ name, limitsMemory }));
    const root = { system, seed, stopGraceMs, observer, places };
    const boot: BootFrame = { kind: "boot", isolate: number, ...root, launch };
    const remote = startGuarded(this.#opened(transport), {
      ...{ isolate: number, memoryLimitMb, boot, transfer },
      receive: (frame) => this.#receive(number, transport, frame as UpFrame | Frame),
    }, 2 * stopGraceMs);
    const member = { actor: launch.ref.id, transport, remote, sawActivity: false };
    this.#members.set(number, member);
    if (remote.exclude) this.#excludes.set(number, remote.exclude);
    this.#await(remote, remote.gone.then((cause) => this.#lose(number, member, cause)));
    for (const greet of this.#early.get(number) ?? []) greet(member);
    this.#early.delete(number);
  }

  post(to: number, frame: Frame, transfer: readonly ArrayBuffer[]): void {
    const member = this.#members.get(to);
    if (member) return member.remote.send(frame, transfer);
    if (this.#gone.has(to)) return;
    const copy = snapshot(frame, transfer);
    this.#whenThere(
      to,
      (member) => member ? member.remote.send(copy, []) : this.root.reject(to, copy),
    );
  }

  drain(): Promise<void> | undefined {
    let wait: Promise<unknown> | undefined;
    for (const transport of this.#open.values()) {
      const drained = transport.drain?.();
      if (drained) wait = wait ? Promise.all([wait, drained]) : drained;
    }
    return wait as Promise<void> | undefined;
  }

  kill(number: number, why: string): void {
    const member = this.#members.get(number);
    if (!member) return;
    // Only the first reason counts.
    member.why ??= why;
    member.remote.kill();
  }

  exclude(number: number, why: string): boolean {
    const exclude = this.#excludes.get(number);
    exclude?.(why);
    return exclude !== undefined;
  }

  /** Returns a number that grows if any isolate is busy or was since the last call. */
  activity(): number {
    for (const member of this.#members.values()) {
      if (member.remote.isAlive?.() ?? member.sawActivity) this.#activity++;
      member.sawActivity = false;
    }
    return this.#activity;
  }

  /** Kills every living isolate and waits until all have ended or the grace is over. */
  async close(): Promise<void> {
    for (const number of this.#members.keys()) this.kill(number, "the system has stopped");
    // A worker in an endless loop cannot be killed: its thread is left behind.
    const timer = setTimeout(() => {
      for (const remote of this.#pending.keys()) remote.abandon?.();
    }, this.root.stopGraceMs);
    while (this.#pending.size > 0) await Promise.all(this.#pending.values());
    clearTimeout(timer);
    for (const number of [...this.#early.keys()]) this.#giveUpOn(number);
  }

  #opened(transport: Transport): OpenTransport {
    const open = this.#open.get(transport) ??
      transport.open({ stopGraceMs: this.root.stopGraceMs });
    this.#open.set(transport, open);
    return open;
  }

  /** Handles a frame of isolate `number`. */
  #receive(number: number, transport: Transport, frame: UpFrame | Frame): void {
    const member = this.#members.get(number);
    if (member) member.sawActivity = true;
    switch (frame.kind) {
      case "invite":
        return this.#invite(number, transport, frame);
      case "forward":
        return this.#forward(number, frame);
      case "start":
        return this.#startFor(frame);
      case "done":
        return this.#release(number, frame.reason);
      case "kill":
        return this.kill(frame.isolate, frame.why);
      case "dead-letter":
        return this.root.onDeadLetter(frame.letter, frame.message);
      case "started":
        return this.#hasTold(number, frame.about);
      default:
        return this.root.deliver(frame);
    }
  }

  /** Closes an isolate whose last actor has ended. Frames to it are lost from now on. */
  #release(number: number, reason: Reason): void {
    const member = this.#members.get(number);
    if (!member) return;
    member.reason = reason;
    this.#members.delete(number);
    this.#gone.set(number, reason);
    member.remote.close();
  }

  /** Notes that an isolate is gone, and notifies all others. */
  #lose(number: number, member: Member, cause: string): void {
    const { actor, transport: { name } } = member;
    const error = new Error(`the ${name} of "${actor}" has ended: ${member.why ?? cause}`);
    const reason = member.reason ?? describeFailure(actor, "exit", error);
    this.#members.delete(number);
    this.#gone.set(number, reason);
    this.#tell(number, reason);
    // It can no longer answer if it has started these isolates.
    for (const about of [...this.#early.keys()]) this.#askFor(about);
  }

  #tell(number: number, reason: Reason): void {
    for (const other of this.#members.keys()) this.#tellOne(other, number, reason);
    this.root.isolateGone(number, reason);
  }

  #tellOne(to: number, isolate: number, reason: Reason): void {
    this.#members.get(to)?.remote.send({ kind: "isolate-gone", isolate, reason }, []);
  }

  /** Starts an isolate for another isolate. */
  #startFor({ isolate, launch, transfer }: Extract<UpFrame, { kind: "start" }>): void {
    try {
      this.start(isolate, launch, transfer);
    } catch (error) {
      const reason = describeFailure(launch.ref.id, "exit", error);
      this.#gone.set(isolate, reason);
      this.#tell(isolate, reason);
    }
  }

  /** Forwards a frame. */
  #forward(from: number, { to, frame, transfer }: Extract<UpFrame, { kind: "forward" }>): void {
    const gone = this.#gone.get(to);
    // The sender does not know yet that the isolate is gone.
    if (gone) return this.#tellOne(from, to, gone);
    this.#whenThere(to, (member) => {
      try {
        if (member) member.remote.send(frame, transfer);
        else this.root.reject(to, frame);
      } catch (error) {
        // Some transports cannot send every value that another can.
        if (!isCloneError(error)) throw error;
        this.root.reject(to, frame, error.message);
      }
    });
  }

  /** Asks isolate `to` to connect to `from`, if both have the same transport. */
  #invite(
    from: number,
    transport: Transport,
    { to, address, transfer }: Extract<UpFrame, { kind: "invite" }>,
  ): void {
    const greet = (member?: Member) => {
      if (member?.transport !== transport) this.#open.get(transport)!.decline?.(address);
      else member.remote.send({ kind: "accept", from, address }, transfer);
    };
    if (this.#gone.has(to)) greet();
    else this.#whenThere(to, greet);
  }

  #whenThere(number: number, greet: Early): void {
    const member = this.#members.get(number), early = this.#early.get(number);
    if (member) return greet(member);
    if (early) return void early.push(greet);
    this.#early.set(number, [greet]);
    this.#askFor(number);
  }

  /**
   * Asks the starter of isolate `about` whether it has been started.
   *
   * [Note: isolates that never existed] An address exists only after the start of its isolate was
   * sent to the root. If the starter is asked after a message for that address has arrived, the
   * start arrives before the starter's answer, or the address was made up.
   */
  #askFor(about: number): void {
    const starter = this.#starterOf(about);
    if (starter === 0) this.#giveUpOn(about);
    else this.#members.get(starter)!.remote.send({ kind: "has-started", about }, []);
  }

  /** Returns the nearest living ancestor of an isolate; 0, the root, if there is no other. */
  #starterOf(about: number): number {
    let starter = starterOf(about);
    while (starter > 0 && !this.#members.has(starter)) starter = starterOf(starter);
    return starter;
  }

  #hasTold(number: number, about: number): void {
    if (!this.#early.has(about)) return;
    if (this.#starterOf(about) === number) this.#giveUpOn(about);
    else this.#askFor(about);
  }

  #giveUpOn(number: number): void {
    const early = this.#early.get(number) ?? [];
    this.#early.delete(number);
    for (const greet of early) greet(undefined);
  }

  #await(remote: RemoteIsolate, told: Promise<void>): void {
    const settled = Promise.allSettled([told, remote.ended]).finally(() =>
      this.#pending.delete(remote)
    );
    this.#pending.set(remote, settled);
  }
}
