/**
 * The module that runs in a Deno worker: an isolate, its channels, and a lock that tells its end.
 *
 * @module
 */

import { serveIsolate } from "../serve.ts";
import { locks } from "./locks.ts";
import { PortChannel } from "./port_channel.ts";
import { PortConnector } from "./port_connector.ts";

/** The first and only message to the worker itself. */
export interface WorkerOrders {
  /** The worker's end of the channel to the root. */
  readonly root: MessagePort;
  /** Where the worker shows that it is at work. */
  readonly pulse: SharedArrayBuffer;
}

/** The global scope of a Deno worker. */
interface WorkerScope {
  readonly name: string;
  onmessage: (event: MessageEvent<WorkerOrders>) => void;
  postMessage(message: "ready"): void;
}

const scope = globalThis as unknown as WorkerScope;

scope.onmessage = ({ data: { root, pulse } }) => {
  const channel = new PortChannel(root, (frame) => isolate.receive(frame));
  const peers = new PortConnector();
  const isolate = serveIsolate({
    send: (frame, transfer) => channel.send(frame, transfer),
    drain() {
      channel.drain();
      peers.drain();
      return undefined;
    },
    pulse,
    peers,
  });
  channel.listen();
};
// Held until the end of the worker, however that comes: the root waits for it.
locks.request(scope.name, () => {
  scope.postMessage("ready");
  return new Promise(() => {});
});
