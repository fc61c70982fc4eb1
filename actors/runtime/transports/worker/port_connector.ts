/**
 * Channels from one worker to another: the one that sends makes both ends of it.
 *
 * @module
 */

import type { Invitation, PeerConnector, PeerReceiver, PeerSender } from "../transport.ts";
import { PortChannel } from "./port_channel.ts";

/** Connects a worker to others of its program. */
export class PortConnector implements PeerConnector {
  /** The receiving ends. */
  readonly #receiving = new Set<PortChannel>();

  invite(_: number, connected: (sender: PeerSender) => void): Invitation {
    const { port1, port2 } = new MessageChannel();
    const channel = new PortChannel(port1, () => connected(this.#senderOf(channel)));
    channel.listen();
    return { address: port2, transfer: [port2] };
  }

  connect(_: number, address: unknown, receive: (frame: unknown) => void): PeerReceiver {
    const channel = new PortChannel(address as MessagePort, receive);
    // Tells the other end that somebody is here.
    channel.send("connected", []);
    return {
      listen: () => {
        this.#receiving.add(channel);
        channel.listen();
      },
      settle: () => channel.settle(),
      close: () => {
        this.#receiving.delete(channel);
        channel.close();
      },
    };
  }

  /** Receives what has come by now. */
  drain(): void {
    for (const channel of this.#receiving) channel.drain();
  }

  #senderOf(channel: PortChannel): PeerSender {
    return {
      send: (frame, transfer) => channel.send(frame, transfer),
      finish: () => Promise.resolve(),
      close: () => channel.close(),
    };
  }
}
