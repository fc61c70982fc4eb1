/**
 * The transport of Deno workers.
 *
 * [Note: noticing death] A worker that calls `Deno.exit` or `self.close`, or is terminated, ends
 * without an event. So each worker holds a Web Lock while it lives, and the root waits for that
 * lock.
 *
 * @module
 */

import { messageOf } from "../runtime/failure.ts";
import { Heartbeat } from "../runtime/isolate.ts";
import type {
  OpenTransport,
  RemoteIsolate,
  StartRequest,
  Transport,
} from "../runtime/transport.ts";
import { locks, PortChannel } from "./ports.ts";
import type { WorkerOrders } from "./serve.ts";

/** Prefix of the names of worker locks, unique to this program or to this thread of it. */
export const PROGRAM = `troupe ${crypto.randomUUID()}`;

/** A kind of worker; the MPI transport defines another one for the threads of a rank. */
interface WorkerKind {
  /** Module of the worker; it receives a {@linkcode WorkerOrders}. */
  readonly module: URL;
  /** Returns additional data for an isolate, and its transferable parts. */
  readonly more: (isolate: number) => { value: unknown; transfer: readonly Transferable[] };
}

/** Workers of the worker transport. */
const PLAIN: WorkerKind = {
  module: new URL("./worker_entry.ts", import.meta.url),
  more: () => ({ value: undefined, transfer: [] }),
};

/** Opens the transport of Deno workers. */
export function openWorkers(kind = PLAIN): OpenTransport {
  const channels = new Set<PortChannel>();
  return {
    start: (request) => new WorkerIsolate(request, channels, kind),
    drain() {
      for (const channel of channels) channel.drain();
      return undefined;
    },
    decline: (port) => (port as MessagePort).close(),
  };
}

/** A Deno worker, seen from the root. */
class WorkerIsolate implements RemoteIsolate {
  readonly ended: Promise<void>;
  readonly #gone = Promise.withResolvers<string>();
  readonly gone: Promise<string> = this.#gone.promise;
  readonly #worker: Worker;
  readonly #heartbeat = new Heartbeat();
  /** Name of the lock that the worker holds. */
  readonly #lock = `${PROGRAM} ${crypto.randomUUID()}`;
  /** Queues frames until the worker listens. */
  readonly #channel: PortChannel;
  /** The worker's end of the channel, until the worker is ready. */
  #far: MessagePort | undefined;
  /** The last uncaught error of the worker. */
  #lastError = "";
  #isEnding = false;
  /** True when the worker holds its lock, false when it ended before. */
  readonly #locked = Promise.withResolvers<boolean>();
  readonly #abandoned = new AbortController();

  /**
   * @param channels open channels of all workers; this worker's channel is added while it lives.
   * @throws {DOMException} when the first frame cannot be cloned.
   */
  constructor(
    { isolate, boot, transfer, receive }: StartRequest,
    private readonly channels: Set<PortChannel>,
    kind: WorkerKind,
  ) {
    const { port1, port2 } = new MessageChannel();
    this.#channel = new PortChannel(port1, receive, (error) => {
      this.#lastError = `it has sent a message that cannot be read: ${messageOf(error)}`;
      this.#end();
    });
    this.#far = port2;
    try {
      this.#channel.send(boot, transfer);
    } catch (error) {
      for (const port of [port1, port2]) port.close();
      throw error;
    }
    this.#channel.listen();
    channels.add(this.#channel);
    this.#worker = new Worker(kind.module, { type: "module", name: this.#lock });
    this.#worker.onmessage = () => this.#ready(kind.more(isolate));
    this.#worker.onerror = (event) => {
      // Without this, the root would end too.
      event.preventDefault();
      this.#lastError = event.message;
      if (this.#far) this.#end();
    };
    this.ended = this.#awaitEnd();
  }

  send(frame: unknown, transfer: readonly Transferable[]): void {
    this.#channel.send(frame, transfer);
  }

  isAlive(): boolean {
    return this.#heartbeat.isAlive();
  }

  close(): void {
    this.#end();
  }

  kill(): void {
    this.#end();
  }

  abandon(): void {
    this.#abandoned.abort();
  }

  async #awaitEnd(): Promise<void> {
    if (!await this.#locked.promise) return;
    const { signal } = this.#abandoned;
    const isEnded = locks.request(this.#lock, { signal }, () => true);
    if (await isEnded.catch(() => false)) this.#end();
  }

  /** Ends the worker; its later frames are not received. */
  async #end(): Promise<void> {
    if (this.#isEnding) return;
    this.#isEnding = true;
    this.#worker.terminate();
    await this.#channel.settle();
    this.channels.delete(this.#channel);
    this.#channel.close();
    this.#far?.close();
    this.#locked.resolve(false);
    const unknown = "it called Deno.exit or self.close, crashed or was terminated";
    this.#gone.resolve(this.#lastError || unknown);
  }

  /**
   * Handles the worker's `ready`: it holds its lock and listens. Earlier messages could be lost.
   */
  #ready({ value, transfer }: ReturnType<WorkerKind["more"]>): void {
    if (!this.#far) return;
    this.#locked.resolve(true);
    const orders: WorkerOrders = {
      root: this.#far,
      heartbeat: this.#heartbeat.buffer,
      more: value,
    };
    this.#worker.postMessage(orders, [this.#far, ...transfer]);
    this.#far = undefined;
  }
}

/** The transport of Deno workers. */
export const WORKER_TRANSPORT: Transport = {
  name: "worker",
  sharesMemory: true,
  canKill: false,
  limitsMemory: false,
  open: () => openWorkers(),
};
