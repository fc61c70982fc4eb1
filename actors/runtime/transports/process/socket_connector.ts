/**
 * Sockets from one process to another: the one that sends listens, and each that is to hear it
 * connects.
 *
 * @module
 */

import { Outbox, receiveFrames } from "../stream/stream.ts";
import type { Invitation, PeerConnector, PeerReceiver, PeerSender } from "../transport.ts";
import { type Address, connect, type Endpoint, listen, type Rendezvous } from "./rendezvous.ts";

/** Connects a process to others of its program. */
export class SocketConnector implements PeerConnector {
  readonly #rendezvous: Rendezvous;
  readonly #number: number;
  readonly #endpoint: Endpoint;
  readonly #invited = new Map<number, (sender: PeerSender) => void>();
  readonly #outboxes = new Set<Outbox>();

  /** @param number that of this isolate. */
  constructor(rendezvous: Rendezvous, number: number) {
    this.#rendezvous = rendezvous;
    this.#number = number;
    this.#endpoint = listen(rendezvous, `${number}`, (conn, caller) => {
      const connected = this.#invited.get(caller);
      this.#invited.delete(caller);
      if (connected) connected(this.#senderOver(conn));
      else conn.close();
    });
  }

  /** The sending ends. */
  outboxes(): Iterable<Outbox> {
    return this.#outboxes;
  }

  invite(isolate: number, connected: (sender: PeerSender) => void): Invitation {
    this.#invited.set(isolate, connected);
    return { address: this.#endpoint.address, transfer: [] };
  }

  connect(_: number, address: unknown, receive: (frame: unknown) => void): PeerReceiver {
    const isHeard = Promise.withResolvers<boolean>();
    const heard = this.#hear(address as Address, isHeard.promise, receive);
    return {
      listen: () => isHeard.resolve(true),
      settle() {
        // What went by the root before is lost, so what would come after must not be heard.
        isHeard.resolve(false);
        return heard;
      },
      close: () => isHeard.resolve(false),
    };
  }

  async #hear(
    address: Address,
    isHeard: Promise<boolean>,
    receive: (frame: unknown) => void,
  ): Promise<void> {
    const conn = await connect(this.#rendezvous, address, this.#number).catch(() => undefined);
    // Nobody there: it has died since.
    if (!conn) return;
    if (await isHeard) await receiveFrames(conn, receive);
    conn.close();
  }

  #senderOver(conn: Deno.Conn): PeerSender {
    const outbox = new Outbox();
    outbox.attach(conn);
    this.#outboxes.add(outbox);
    return {
      send: (frame, transfer) => outbox.post(frame, transfer as readonly ArrayBuffer[]),
      finish: () => outbox.finish(),
      close: () => {
        this.#outboxes.delete(outbox);
        outbox.close();
      },
    };
  }
}
