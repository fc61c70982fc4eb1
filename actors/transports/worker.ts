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
  /** Returns additional data for an isolate, and its transferable parts. Default: none. */
  readonly more?: (isolate: number) => { value: unknown; transfer: readonly Transferable[] };
}

/** Workers of the worker transport. */
const PLAIN: WorkerKind = { module: new URL("./worker_entry.ts", import.meta.url) };

/** Opens the transport of Deno workers. */
export function openWorkers(kind = PLAIN): OpenTransport {
  const channels = new Set<PortChannel>();
  return {
    start: (request) => startWorker(request, channels, kind),
    drain(): undefined {
      for (const channel of channels) channel.drain();
    },
    decline: (port) => (port as MessagePort).close(),
  };
}

/**
 * Starts a Deno worker.
 *
 * @param channels open channels of all workers; this worker's channel is added while it lives.
 * @throws {DOMException} when the first frame cannot be cloned.
 */
function startWorker(
  { isolate, boot, transfer, receive }: StartRequest,
  channels: Set<PortChannel>,
  { module, more }: WorkerKind,
): RemoteIsolate {
  const { port1, port2 } = new MessageChannel(), heartbeat = new Heartbeat();
  /** Name of the lock that the worker holds. */
  const lock = `${PROGRAM} ${crypto.randomUUID()}`;
  /** True when the worker holds its lock, false when it ended before. */
  const locked = Promise.withResolvers<boolean>();
  const gone = Promise.withResolvers<string>(), abandoned = new AbortController();
  /** The worker's end of the channel, until the worker is ready. */
  let far: MessagePort | undefined = port2;
  /** The last uncaught error of the worker. */
  let lastError = "", isEnding = false;
  /** Queues frames until the worker listens. */
  const channel = new PortChannel(port1, receive, (error) => {
    lastError = `it has sent a message that cannot be read: ${messageOf(error)}`;
    end();
  });
  try {
    channel.send(boot, transfer);
  } catch (error) {
    for (const port of [port1, port2]) port.close();
    throw error;
  }
  channel.listen();
  channels.add(channel);
  const worker = new Worker(module, { type: "module", name: lock });
  // The worker is ready: it holds its lock and listens. Earlier messages could be lost.
  worker.onmessage = () => {
    if (!far) return;
    locked.resolve(true);
    const { value, transfer = [] } = more?.(isolate) ?? {};
    const orders: WorkerOrders = { root: far, heartbeat: heartbeat.buffer, more: value };
    worker.postMessage(orders, [far, ...transfer]);
    far = undefined;
  };
  worker.onerror = (event) => {
    event.preventDefault(); // without this, the root would end too
    lastError = event.message;
    if (far) end();
  };
  /** Ends the worker; its later frames are not received. */
  const end = async () => {
    if (isEnding) return;
    isEnding = true;
    worker.terminate();
    await channel.settle();
    channels.delete(channel);
    channel.close();
    far?.close();
    locked.resolve(false);
    gone.resolve(lastError || "it called Deno.exit or self.close, crashed or was terminated");
  };
  const awaitEnd = async () => {
    if (!await locked.promise) return;
    const isEnded = locks.request(lock, { signal: abandoned.signal }, () => true);
    if (await isEnded.catch(() => false)) end();
  };
  return {
    send: (frame, transfer) => channel.send(frame, transfer),
    isAlive: () => heartbeat.isAlive(),
    close: end,
    kill: end,
    abandon: () => abandoned.abort(),
    gone: gone.promise,
    ended: awaitEnd(),
  };
}

/** The transport of Deno workers. */
export const WORKER_TRANSPORT: Transport = {
  name: "worker",
  sharesMemory: true,
  canKill: false,
  limitsMemory: false,
  open: () => openWorkers(),
};
