/**
 * What a Deno worker runs: an isolate, its channels, and a lock that tells its end.
 *
 * @module
 */

import { serveIsolate } from "../serve.ts";
import type { Collectives, PeerConnector } from "../transport.ts";
import { locks } from "./locks.ts";
import { PortChannel } from "./port_channel.ts";

/** The first and only message to the worker itself. */
export interface WorkerOrders {
  /** The worker's end of the channel to the root. */
  readonly root: MessagePort;
  /** Where the worker shows that it is at work. */
  readonly pulse: SharedArrayBuffer;
  /** What the workers of another transport get beside. */
  readonly more: unknown;
}

/** The global scope of a Deno worker. */
interface WorkerScope {
  readonly name: string;
  onmessage: (event: MessageEvent<WorkerOrders>) => void;
  postMessage(message: "ready"): void;
}

/** Connects a worker to others. */
export interface WorkerConnector extends PeerConnector {
  /** Receives what has come by now. */
  drain(): void;
  readonly collectives?: Collectives;
}

/**
 * Serves this worker's isolate.
 *
 * @param connect makes the connector, from what came beside the orders.
 */
export function serveWorker(connect: (more: unknown) => WorkerConnector): void {
  const scope = globalThis as unknown as WorkerScope;
  scope.onmessage = ({ data: { root, pulse, more } }) => {
    const channel = new PortChannel(root, (frame) => isolate.receive(frame));
    const peers = connect(more);
    const isolate = serveIsolate({
      send: (frame, transfer) => channel.send(frame, transfer),
      drain() {
        channel.drain();
        peers.drain();
        return undefined;
      },
      pulse,
      peers,
      collectives: peers.collectives,
    });
    channel.listen();
  };
  // Held until the end of the worker, however that comes: the root waits for it.
  locks.request(scope.name, () => {
    scope.postMessage("ready");
    return new Promise(() => {});
  });
}
