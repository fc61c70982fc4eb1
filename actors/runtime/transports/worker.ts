/**
 * The root's side of Deno workers: starts them, introduces them to each other, and notices
 * however they end.
 *
 * [Note: noticing death] A worker that calls `Deno.exit` or `self.close`, or is terminated, ends
 * without an event. So each holds a Web Lock for as long as it lives, and the root waits for it.
 *
 * @module
 */

import { describeFailure, type Reason } from "../failure.ts";
import { Lines } from "./lines.ts";
import { locks } from "./locks.ts";
import type { Root, RootTransport } from "./transport.ts";
import type { DownFrame, Frame, LaunchFrame, UpFrame } from "./wire.ts";

/** A Deno worker and what is known of it. */
interface Host {
  /** Id of its first actor. */
  readonly actor: string;
  readonly worker: Worker;
  /** Name of the lock that the worker holds. */
  readonly lock: string;
  /** Carries {@linkcode DownFrame}s there and {@linkcode UpFrame}s back; keeps what is sent until
   * the worker listens. */
  readonly control: MessagePort;
  /** The worker's end of `control`, until the worker is ready. */
  far: MessagePort | undefined;
  /** The last error that nobody in the worker caught. */
  lastError: string;
}

/** Deno workers, seen from the root. They start when actors are spawned into them. */
export class WorkerTransport implements RootTransport {
  readonly #root: Root;
  readonly #lines: Lines;
  readonly #name = `troupe ${crypto.randomUUID()}`;
  readonly #hosts = new Map<number, Host>();
  readonly #gone = new Set<number>();
  /** Lines to isolates whose start is still on its way to the root. */
  readonly #early = new Map<number, [from: number, port: MessagePort][]>();
  /** For each worker that has not ended, a promise of its end. */
  readonly #living = new Set<Promise<void>>();
  readonly #giveUp = new AbortController();

  /** @param root the isolate that owns the workers. */
  constructor(root: Root) {
    this.#root = root;
    this.#lines = new Lines(root.deliver, (to, port) => this.#introduce(0, to, port));
  }

  start(number: number, launch: LaunchFrame, transfer: readonly ArrayBuffer[]): void {
    const { port1, port2 } = new MessageChannel();
    const { seed, stopGraceMs } = this.#root;
    const boot: DownFrame = { kind: "boot", isolate: number, seed, stopGraceMs, launch };
    try {
      port1.postMessage(boot, [...transfer]);
    } catch (error) {
      for (const port of [port1, port2]) port.close();
      throw error;
    }
    const lock = `${this.#name} ${number}`;
    const url = new URL("./worker_entry.ts", import.meta.url);
    const worker = new Worker(url, { type: "module", name: lock });
    const actor = launch.ref.id;
    const host: Host = { actor, worker, lock, control: port1, far: port2, lastError: "" };
    this.#hosts.set(number, host);
    port1.onmessage = ({ data }) => this.#hear(number, data as UpFrame);
    worker.onmessage = () => this.#ready(number, host);
    worker.onerror = (event) => {
      // Or the root would end as well.
      event.preventDefault();
      host.lastError = event.message;
      if (host.far) this.#lose(number, exit(host));
    };
    for (const [from, port] of this.#early.get(number) ?? []) this.#introduce(from, number, port);
    this.#early.delete(number);
  }

  post(to: number, frame: Frame, transfer: readonly ArrayBuffer[]): void {
    this.#lines.post(to, frame, transfer);
  }

  drain(): void {
    this.#lines.drain();
  }

  kill(number: number, why: string): void {
    const host = this.#hosts.get(number);
    if (!host) return;
    host.lastError = why;
    this.#lose(number, exit(host));
  }

  async close(): Promise<void> {
    await Promise.all([...this.#hosts].map(([number, host]) => this.#lose(number, exit(host))));
    // A worker in an endless loop cannot be ended: its thread is left behind.
    const timer = setTimeout(() => this.#giveUp.abort(), this.#root.stopGraceMs);
    await Promise.all(this.#living);
    clearTimeout(timer);
    this.#lines.closeAll();
    for (const [, port] of [...this.#early.values()].flat()) port.close();
  }

  #control(number: number, frame: DownFrame, transfer: readonly Transferable[] = []): void {
    this.#hosts.get(number)?.control.postMessage(frame, [...transfer]);
  }

  #introduce(from: number, to: number, port: MessagePort): void {
    if (to === 0) this.#lines.accept(from, port);
    else if (this.#hosts.has(to)) this.#control(to, { kind: "accept", from, port }, [port]);
    else if (this.#gone.has(to)) port.close();
    else this.#early.set(to, [...this.#early.get(to) ?? [], [from, port]]);
  }

  /** The worker holds its lock and can hear; before, a message to it could be lost. */
  #ready(number: number, host: Host): void {
    if (!host.far) return;
    const { signal } = this.#giveUp;
    const ended = locks.request(host.lock, { signal }, () => {}).then(
      () => this.#lose(number, exit(host)),
      () => {},
    ).finally(() => this.#living.delete(ended));
    this.#living.add(ended);
    host.worker.postMessage(host.far, [host.far]);
    host.far = undefined;
  }

  #hear(number: number, frame: UpFrame): void {
    switch (frame.kind) {
      case "introduce":
        return this.#introduce(number, frame.to, frame.port);
      case "start":
        return this.start(frame.isolate, frame.launch, frame.transfer);
      case "done":
        return void this.#lose(number, frame.reason);
      case "kill":
        return this.kill(frame.isolate, frame.why);
      case "dead-letter":
        return this.#root.onDeadLetter(frame.letter);
    }
  }

  /** An isolate has ended, or is ended now. */
  async #lose(number: number, reason: Reason): Promise<void> {
    const host = this.#hosts.get(number);
    if (!host) return;
    this.#hosts.delete(number);
    this.#gone.add(number);
    host.worker.terminate();
    await this.#lines.settle(number);
    this.#lines.close(number);
    host.control.close();
    host.far?.close();
    for (const other of this.#hosts.keys()) {
      this.#control(other, { kind: "isolate-gone", isolate: number, reason });
    }
    this.#root.isolateGone(number, reason);
  }
}

/** The failure of an actor whose worker ended without a word. */
function exit({ actor, lastError }: Host): Reason {
  const cause = lastError || "it called Deno.exit or self.close, crashed or was terminated";
  return describeFailure(actor, "exit", new Error(`the worker of "${actor}" has ended: ${cause}`));
}
