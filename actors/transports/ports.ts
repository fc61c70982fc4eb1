/**
 * Channels between workers. The sender creates both ends of a channel.
 *
 * @module
 */

import { receiveMessageOnPort } from "node:worker_threads";
import { checkTransfer, cloning } from "../runtime/observer.ts";
import { turn } from "../runtime/steps.ts";
import type { Collectives, PeerConnector } from "../runtime/transport.ts";

interface LockManager {
  /** Calls `hold` when the lock is free, and keeps the lock until the returned promise settles. */
  request(name: string, hold: () => unknown): Promise<unknown>;
  /** @throws {DOMException} (as a rejection) when aborted before the lock is free. */
  request(name: string, options: { signal: AbortSignal }, hold: () => unknown): Promise<unknown>;
}

/** Locks of this process. */
export const locks: LockManager = (navigator as unknown as { locks: LockManager }).locks;

/**
 * A frame with its sequence number on the channel, as the only entry of a map.
 *
 * [Note: why a map] `receiveMessageOnPort` searches received values for ports, including every
 * element of typed arrays: 10 ms for 512 KB. It does not search maps.
 */
type Numbered = ReadonlyMap<number, unknown>;

/**
 * Maximum frames that one call receives from a channel, so that a fast sender cannot block the
 * isolate. It is much larger than the number of frames handled between two calls, so waiting frames
 * are counted.
 */
const MAX_DRAIN = 65_536;

/** Event-loop turns without a frame after which a dead isolate's channel counts as empty. */
const QUIET_TURNS = 4;

/** One end of a channel; frames of each direction keep their order. */
export class PortChannel {
  #sent = 0;
  #received = 0;
  #isListening = false;
  /**
   * Frames received out of order: draining can overtake a frame that the event loop already holds.
   */
  readonly #early = new Map<number, { readonly frame: unknown }>();

  /**
   * @param receive handles a frame, after {@linkcode listen} is called.
   * @param lost called when a frame cannot be read, for example because it is nested almost as deep as
   * its sender can clone. Later frames would wait for it.
   */
  constructor(
    private readonly port: MessagePort,
    private readonly receive: (frame: unknown) => void,
    private readonly lost: (error: unknown) => void = (error) => reportError(error),
  ) {}

  /**
   * Sends a frame. After {@linkcode close} it is lost, and its ports are closed.
   *
   * @throws {DOMException} when the frame cannot be cloned.
   */
  send(frame: unknown, transfer: readonly Transferable[]): void {
    const numbered: Numbered = new Map([[this.#sent, frame]]);
    cloning(() => (checkTransfer(transfer), this.port.postMessage(numbered, [...transfer])));
    // A closed port ignores the message and leaves its ports open, even if Deno has closed it because
    // the other end is gone. Closing a port that was moved has no effect.
    for (const one of transfer) if (one instanceof MessagePort) one.close();
    // Not incremented earlier, because a frame that cannot be cloned is not sent.
    this.#sent++;
  }

  /** Starts to receive. */
  listen(): void {
    this.#isListening = true;
    this.port.onmessage = ({ data }) => {
      this.#hear(data as Numbered);
      // Waiting frames must count for the capacity of their actor before it continues.
      this.drain();
    };
    this.port.onmessageerror = ({ data }) => this.lost(data);
  }

  /**
   * Receives all pending frames. The event loop delivers only one frame of a port per turn, so a
   * control message would wait for one step for each frame before it.
   */
  drain(): void {
    for (let n = 0; n < MAX_DRAIN && this.#isListening; n++) {
      const got = this.#next();
      if (!got) break;
      this.#hear(got.message as Numbered);
    }
  }

  #next(): ReturnType<typeof receiveMessageOnPort> {
    try {
      // The type only allows Node's ports, but web ports work too.
      return receiveMessageOnPort(this.port as never);
    } catch (error) {
      this.lost(error);
    }
  }

  /** Waits until all frames of a dead isolate are received. */
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
    this.port.close();
  }

  #hear(numbered: Numbered): void {
    for (const [n, frame] of numbered) this.#early.set(n, { frame });
    let next: { readonly frame: unknown } | undefined;
    while ((next = this.#early.get(this.#received))) {
      this.#early.delete(this.#received++);
      this.receive(next.frame);
    }
  }
}

/** Connects a worker to others. */
export interface WorkerConnector extends PeerConnector {
  /** Receives all pending frames. */
  drain(): void;
  readonly collectives?: Collectives;
}

/** Connects a worker to other workers of its program. */
export function openPortConnector(): WorkerConnector {
  /** Receiving ends of channels. */
  const receiving = new Set<PortChannel>();
  return {
    invite(_, connected) {
      const { port1, port2 } = new MessageChannel();
      const channel: PortChannel = new PortChannel(port1, () =>
        connected({
          send: (frame, transfer) => channel.send(frame, transfer),
          finish: () => Promise.resolve(),
          close: () => channel.close(),
        }));
      channel.listen();
      return { address: port2, transfer: [port2] };
    },
    connect(_, address, receive) {
      const channel = new PortChannel(address as MessagePort, receive);
      // Notifies the other end that this end is connected.
      channel.send("connected", []);
      return {
        listen() {
          receiving.add(channel);
          channel.listen();
        },
        settle: () => channel.settle(),
        close() {
          receiving.delete(channel);
          channel.close();
        },
      };
    },
    drain() {
      for (const channel of receiving) channel.drain();
    },
  };
}
