/**
 * Channels from one worker to another: the one that sends makes both ends of it.
 *
 * @module
 */

import { receiveMessageOnPort } from "node:worker_threads";
import { checkTransfer, cloning } from "../runtime/observer.ts";
import { turn } from "../runtime/steps.ts";
import type { Invitation, PeerConnector, PeerReceiver, PeerSender } from "../runtime/transport.ts";

interface LockManager {
  /** Calls `hold` when the lock is free and keeps it until the promise returned settles. */
  request(name: string, hold: () => unknown): Promise<unknown>;
  /** @throws {DOMException} (as a rejection) when aborted before the lock is free. */
  request(name: string, options: { signal: AbortSignal }, hold: () => unknown): Promise<unknown>;
}

/** The locks of this process. */
export const locks: LockManager = (navigator as unknown as { locks: LockManager }).locks;

/**
 * A frame and its place on its channel, as the only entry of a map.
 *
 * [Note: why a map] `receiveMessageOnPort` searches what it received for ports, element by element
 * of every typed array: 10 ms for 512 KB. It does not look into maps.
 */
type Numbered = ReadonlyMap<number, unknown>;

/** Most frames of a channel that are received at once: a fast sender must not keep all from work.
 * Many times what an isolate handles until it receives again, so that what waits is counted. */
const MAX_DRAIN = 65_536;

/** Turns of the event loop without a frame after which a dead isolate's channel counts as empty. */
const QUIET_TURNS = 4;

/** One end of a channel; each direction is in order. */
export class PortChannel {
  readonly #port: MessagePort;
  readonly #receive: (frame: unknown) => void;
  #sent = 0;
  #received = 0;
  #isListening = false;
  /** Frames that came before their turn: draining overtakes the one that the event loop has. */
  readonly #early = new Map<number, { readonly frame: unknown }>();

  /** @param receive handles a frame, from {@linkcode listen} on. */
  constructor(port: MessagePort, receive: (frame: unknown) => void) {
    this.#port = port;
    this.#receive = receive;
  }

  /** Sends a frame. @throws {DOMException} when it cannot be cloned. */
  send(frame: unknown, transfer: readonly Transferable[]): void {
    const numbered: Numbered = new Map([[this.#sent, frame]]);
    cloning(() => (checkTransfer(transfer), this.#port.postMessage(numbered, [...transfer])));
    // Only now: a frame that cannot be cloned has not been sent.
    this.#sent++;
  }

  /** Begins to receive. */
  listen(): void {
    this.#isListening = true;
    this.#port.onmessage = ({ data }) => {
      this.#hear(data as Numbered);
      // What waits behind it is to count for the capacity of its actor before that goes on.
      this.drain();
    };
  }

  /** Receives what has come by now. The event loop hands over one frame of a port a turn, which
   * would keep a control message behind as many steps as there are frames before it. */
  drain(): void {
    for (let n = 0; n < MAX_DRAIN && this.#isListening; n++) {
      // The types know the ports of node only; this takes those of the web as well.
      const got = receiveMessageOnPort(this.#port as never);
      if (!got) break;
      this.#hear(got.message as Numbered);
    }
  }

  /** Waits until all that a dead isolate has sent is received. */
  async settle(): Promise<void> {
    for (let quiet = 0; this.#isListening && quiet < QUIET_TURNS; quiet++) {
      const before = this.#received;
      await turn();
      this.drain();
      if (this.#received !== before) quiet = -1;
    }
  }

  /** Closes both ends. */
  close(): void {
    this.#isListening = false;
    this.#port.close();
  }

  #hear(numbered: Numbered): void {
    for (const [n, frame] of numbered) this.#early.set(n, { frame });
    let next: { readonly frame: unknown } | undefined;
    while ((next = this.#early.get(this.#received))) {
      this.#early.delete(this.#received++);
      this.#receive(next.frame);
    }
  }
}

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
