/**
 * The root's book of the other isolates: starts each where it belongs, introduces them to each
 * other, and tells all when one is gone.
 *
 * @module
 */

import { describeFailure, goneFailure, type Reason } from "../failure.ts";
import { snapshot } from "../snapshot.ts";
import { starterOf } from "../isolate/spawning.ts";
import { Lines } from "./worker/lines.ts";
import { ProcessHost } from "./process/host.ts";
import { Reception } from "./process/reception.ts";
import type { Host, Root, RootTransport } from "./transport.ts";
import type { ForwardFrame, Frame, LaunchFrame, Line, SwitchFrame, UpFrame } from "./wire.ts";
import { WorkerHost } from "./worker/host.ts";

/** What waits for an isolate whose start is still on its way to the root. It gets none when there
 * never is one. */
type Early = (host: Host | undefined) => void;

/** All isolates but the root, seen from it. */
export class Hub implements RootTransport {
  /** The lines of the root itself to and from workers. */
  readonly lines: Lines;
  /** Where processes call. */
  readonly reception = new Reception();
  readonly #root: Root;
  readonly #hosts = new Map<number, Host>();
  readonly #gone = new Map<number, Reason>();
  readonly #early = new Map<number, Early[]>();
  /** Lines to isolates that never were. */
  readonly #lost = new Lines((frame) => this.#bury(frame), () => {});
  #lostLines = 0;
  /** What must be over before the system is. */
  readonly #pending = new Set<Promise<void>>();
  readonly #giveUp = new AbortController();
  #activity = 0;

  /** @param root the isolate that owns the others. */
  constructor(root: Root) {
    this.#root = root;
    this.lines = new Lines(root.deliver, (to, port) => this.introduce(0, to, port));
  }

  start(number: number, launch: LaunchFrame, transfer: readonly ArrayBuffer[]): void {
    const { system, seed, stopGraceMs, observer } = this.#root;
    const root = { system, seed, stopGraceMs, observer };
    const boot = { kind: "boot", isolate: number, ...root, launch } as const;
    const Kind = launch.place.isolate === "process" ? ProcessHost : WorkerHost;
    const host = new Kind(this, boot, transfer);
    this.#hosts.set(number, host);
    this.#await(host.ended(this.#giveUp.signal));
    for (const greet of this.#early.get(number) ?? []) greet(host);
    this.#early.delete(number);
  }

  post(to: number, frame: Frame, transfer: readonly ArrayBuffer[]): void {
    const host = this.#hosts.get(to);
    if (host) return host.post(frame, transfer);
    if (this.#gone.has(to)) return;
    const copy = snapshot(frame, transfer);
    this.#whenThere(to, (host) => host ? host.post(copy, []) : this.#bury(copy));
  }

  drain(): Promise<void> | undefined {
    this.lines.drain();
    return this.reception.look();
  }

  kill(number: number, why: string): void {
    this.#hosts.get(number)?.kill(why);
  }

  activity(): number {
    for (const host of this.#hosts.values()) if (host.stirs()) this.#activity++;
    return this.#activity;
  }

  async close(): Promise<void> {
    for (const host of this.#hosts.values()) host.kill("the system has stopped");
    // A worker in an endless loop cannot be ended: its thread is left behind.
    const timer = setTimeout(() => this.#giveUp.abort(), this.#root.stopGraceMs);
    while (this.#pending.size > 0) await Promise.all(this.#pending);
    clearTimeout(timer);
    this.lines.closeAll();
    for (const number of [...this.#early.keys()]) this.#giveUpOn(number);
    this.#lost.closeAll();
  }

  /** What isolate `number` tells the root. */
  hear(number: number, frame: UpFrame | Frame): void {
    switch (frame.kind) {
      case "introduce":
        return this.introduce(number, frame.to, frame.line);
      case "start":
        return this.#startFor(frame);
      case "done":
        return this.lose(number, frame.reason);
      case "kill":
        return this.kill(frame.isolate, frame.why);
      case "dead-letter":
        return this.#root.onDeadLetter(frame.letter);
      case "started":
        return this.#hasTold(number, frame.about);
      default:
        return this.#root.deliver(frame);
    }
  }

  /** Passes a frame on from a process, whose lines to workers are `lines`. */
  forward(lines: Lines, { to, frame, transfer }: ForwardFrame): void {
    if (this.#gone.has(to)) return;
    this.#whenThere(
      to,
      (host) => host ? host.relay(lines, frame, transfer) : this.#bury(frame),
    );
  }

  /** An isolate has ended, or is ended now. Only the first reason counts. */
  lose(number: number, reason: Reason): void {
    const host = this.#hosts.get(number);
    if (!host) return;
    this.#hosts.delete(number);
    this.#gone.set(number, reason);
    this.#await(this.#partFrom(number, host, reason));
  }

  async #partFrom(number: number, host: Host, reason: Reason): Promise<void> {
    await host.leave();
    this.#tell(number, reason);
    // It can no longer say whether it has started them.
    for (const about of [...this.#early.keys()]) this.#askFor(about);
  }

  #tell(number: number, reason: Reason): void {
    for (const other of this.#hosts.values()) other.isolateGone(number, reason);
    this.#root.isolateGone(number, reason);
  }

  #startFor({ isolate, launch, transfer }: Extract<UpFrame, { kind: "start" }>): void {
    try {
      this.start(isolate, launch, transfer);
    } catch (error) {
      const reason = describeFailure(launch.ref.id, "exit", error);
      this.#gone.set(isolate, reason);
      this.#tell(isolate, reason);
    }
  }

  /** Has isolate `to` listen to a line from isolate `from`. */
  introduce(from: number, to: number, line: Line): void {
    const isPort = line instanceof MessagePort;
    if (to === 0 && isPort) return this.lines.accept(from, line);
    const gone = this.#gone.get(to);
    // Who comes too late has not been told yet.
    if (gone) this.#hosts.get(from)?.isolateGone(to, gone);
    if (gone && isPort) line.close();
    if (gone) return;
    this.#whenThere(to, (host) => {
      if (host) host.accept(from, line);
      else if (isPort) this.#lost.accept(this.#lostLines++, line);
    });
  }

  #whenThere(number: number, greet: Early): void {
    const host = this.#hosts.get(number), early = this.#early.get(number);
    if (host) return greet(host);
    if (early) return void early.push(greet);
    this.#early.set(number, [greet]);
    this.#askFor(number);
  }

  /**
   * Has the isolate that must have started `about`, or started the one that has, say so.
   *
   * [Note: isolates that never were] An address exists only after the start of its isolate was sent
   * to the root. So when the starter has been asked after a message came, and answers, then either
   * the start has come before the answer, or the address was made up.
   */
  #askFor(about: number): void {
    const starter = this.#starterOf(about);
    if (starter) this.#hosts.get(starter)!.hasStarted(about);
    else this.#giveUpOn(about);
  }

  /** The nearest living isolate among the starters of this one; 0, the root, knows what it started. */
  #starterOf(about: number): number {
    let starter = starterOf(about);
    while (starter > 0 && !this.#hosts.has(starter)) starter = starterOf(starter);
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

  /** Lets those know who wait for what comes of a frame to an isolate that never was. */
  #bury(frame: Frame | SwitchFrame): void {
    if (frame.kind === "message") {
      const { from, to, message: { type }, replyTo } = frame;
      this.#root.onDeadLetter({ from: from.id, to: to.id, type, reason: "no-such-actor" });
      const outcome = { status: "gone", failure: goneFailure(to.id) } as const;
      if (replyTo) this.#answer(replyTo.isolate, { kind: "answer", ask: replyTo.ask, outcome });
    } else if (frame.kind === "watch") {
      this.#answer(frame.by, { kind: "down", ref: frame.ref, reason: "stopped" });
    } else if (frame.kind === "answer" && frame.letter) {
      this.#root.onDeadLetter({ ...frame.letter, reason: "no-such-actor" });
    }
  }

  #answer(to: number, frame: Frame): void {
    if (to === 0) this.#root.deliver(frame);
    else this.#hosts.get(to)?.post(frame, []);
  }

  #await(promise: Promise<void>): void {
    const settled = promise.finally(() => this.#pending.delete(settled));
    this.#pending.add(settled);
  }
}
