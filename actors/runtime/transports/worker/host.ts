/**
 * A Deno worker as the root sees it, which notices however it ends.
 *
 * [Note: noticing death] A worker that calls `Deno.exit` or `self.close`, or is terminated, ends
 * without an event. So each holds a Web Lock for as long as it lives, and the root waits for it.
 *
 * @module
 */

import { describeFailure, type Reason } from "../../failure.ts";
import { Pulse } from "../../isolate/pulse.ts";
import { cloning } from "../../snapshot.ts";
import type { Hub } from "../hub.ts";
import type { Lines } from "./lines.ts";
import { locks } from "./locks.ts";
import type { Host } from "../transport.ts";
import type { BootFrame, DownFrame, Frame, Line, SwitchFrame, UpFrame } from "../wire.ts";

/** Tells the locks of one system from those of another. */
const SYSTEM = `troupe ${crypto.randomUUID()}`;

/** A Deno worker, seen from the root. */
export class WorkerHost implements Host {
  readonly #hub: Hub;
  readonly #number: number;
  /** Id of its first actor. */
  readonly #actor: string;
  readonly #worker: Worker;
  readonly #pulse = new Pulse();
  /** Name of the lock that the worker holds. */
  readonly #lock: string;
  /** Carries {@linkcode DownFrame}s there and {@linkcode UpFrame}s back; keeps what is sent until
   * the worker listens. */
  readonly #control: MessagePort;
  /** The worker's end of `control`, until the worker is ready. */
  #far: MessagePort | undefined;
  /** The last error that nobody in the worker caught. */
  #lastError = "";
  /** The worker holds its lock, or never will. */
  readonly #locked = Promise.withResolvers<boolean>();

  /** Starts a worker. @throws {DOMException} when the first actor's init cannot be cloned. */
  constructor(hub: Hub, boot: BootFrame, transfer: readonly ArrayBuffer[]) {
    const { port1, port2 } = new MessageChannel();
    try {
      cloning(() => port1.postMessage({ ...boot, pulse: this.#pulse.buffer }, [...transfer]));
    } catch (error) {
      for (const port of [port1, port2]) port.close();
      throw error;
    }
    this.#hub = hub;
    this.#number = boot.isolate;
    this.#actor = boot.launch.ref.id;
    this.#control = port1;
    this.#far = port2;
    this.#lock = `${SYSTEM} ${crypto.randomUUID()}`;
    const url = new URL("./entry.ts", import.meta.url);
    this.#worker = new Worker(url, { type: "module", name: this.#lock });
    port1.onmessage = ({ data }) => hub.hear(this.#number, data as UpFrame);
    this.#worker.onmessage = () => this.#ready();
    this.#worker.onerror = (event) => {
      // Or the root would end as well.
      event.preventDefault();
      this.#lastError = event.message;
      if (this.#far) hub.lose(this.#number, this.#exit());
    };
  }

  async ended(giveUp: AbortSignal): Promise<void> {
    if (!await this.#locked.promise) return;
    const isEnded = locks.request(this.#lock, { signal: giveUp }, () => true);
    if (await isEnded.catch(() => false)) this.#hub.lose(this.#number, this.#exit());
  }

  post(frame: Frame, transfer: readonly ArrayBuffer[]): void {
    this.#hub.lines.post(this.#number, frame, transfer);
  }

  relay(lines: Lines, frame: Frame | SwitchFrame, transfer: readonly ArrayBuffer[]): void {
    if (frame.kind !== "switch") lines.post(this.#number, frame, transfer);
  }

  /** A process is not called from here: what it sends goes on being relayed. */
  accept(from: number, line: Line): void {
    if (line instanceof MessagePort) this.#tell({ kind: "accept", from, line }, [line]);
  }

  isolateGone(isolate: number, reason: Reason): void {
    this.#tell({ kind: "isolate-gone", isolate, reason });
  }

  stirs(): boolean {
    return this.#pulse.stirs();
  }

  hasStarted(about: number): void {
    this.#tell({ kind: "has-started", about });
  }

  kill(why: string): void {
    this.#lastError = why;
    this.#hub.lose(this.#number, this.#exit());
  }

  async leave(): Promise<void> {
    this.#worker.terminate();
    const { lines } = this.#hub;
    await lines.settle(this.#number);
    lines.close(this.#number);
    this.#control.close();
    this.#far?.close();
    this.#locked.resolve(false);
  }

  #tell(frame: DownFrame, transfer: readonly Transferable[] = []): void {
    this.#control.postMessage(frame, [...transfer]);
  }

  /** The worker holds its lock and can hear; before, a message to it could be lost. */
  #ready(): void {
    if (!this.#far) return;
    this.#locked.resolve(true);
    this.#worker.postMessage(this.#far, [this.#far]);
    this.#far = undefined;
  }

  /** The failure of an actor whose worker ended without a word. */
  #exit(): Reason {
    const cause = this.#lastError ||
      "it called Deno.exit or self.close, crashed or was terminated";
    const error = new Error(`the worker of "${this.#actor}" has ended: ${cause}`);
    return describeFailure(this.#actor, "exit", error);
  }
}
