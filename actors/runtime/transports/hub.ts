/**
 * The root's book of the other isolates: starts each where it belongs, introduces them to each
 * other, and tells all when one is gone.
 *
 * @module
 */

import { describeFailure, type Reason } from "../failure.ts";
import { snapshot } from "../snapshot.ts";
import { Lines } from "./lines.ts";
import { ProcessHost } from "./process.ts";
import { Reception } from "./reception.ts";
import type { Host, Root, RootTransport } from "./transport.ts";
import type { ForwardFrame, Frame, LaunchFrame, Line, UpFrame } from "./wire.ts";
import { WorkerHost } from "./worker.ts";

/** What waits for an isolate whose start is still on its way to the root. It gets none when the
 * system stops before. */
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
    const { seed, stopGraceMs, observer } = this.#root;
    const boot = { kind: "boot", isolate: number, seed, stopGraceMs, observer, launch } as const;
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
    this.#whenThere(to, (host) => host?.post(copy, []));
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
    for (const greet of [...this.#early.values()].flat()) greet(undefined);
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
      default:
        return this.#root.deliver(frame);
    }
  }

  /** Passes a frame on from a process, whose lines to workers are `lines`. */
  forward(lines: Lines, { to, frame, transfer }: ForwardFrame): void {
    if (!this.#gone.has(to)) this.#whenThere(to, (host) => host?.relay(lines, frame, transfer));
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
      else if (isPort) line.close();
    });
  }

  #whenThere(number: number, greet: Early): void {
    const host = this.#hosts.get(number);
    if (host) greet(host);
    else this.#early.set(number, [...this.#early.get(number) ?? [], greet]);
  }

  #await(promise: Promise<void>): void {
    const settled = promise.finally(() => this.#pending.delete(settled));
    this.#pending.add(settled);
  }
}
