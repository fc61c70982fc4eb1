/**
 * Gives the sockets of an isolate their turn between steps.
 *
 * [Note: a byte sent round] While there is always something to do, the event loop looks at its
 * sockets once in sixty turns only, so a control message could wait behind sixty steps. When it
 * has nothing to do it looks at once. So the isolate sends itself a byte through a socket of its
 * own and waits for it, which takes some 20 µs and brings in whatever else has come.
 *
 * @module
 */

import type { Invitation, PeerConnector, PeerReceiver, PeerSender } from "../runtime/transport.ts";
import { type Address, connect, type Endpoint, listen, type Rendezvous } from "./rendezvous.ts";
import { Outbox, receiveFrames } from "./stream.ts";

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

/** Milliseconds between two looks at least: they cost a few percent of them. */
const INTERVAL_MS = 0.5;

/** Looks at sockets, as soon as its own is there. */
export class SocketPoll {
  readonly #byte = new Uint8Array(1);
  readonly #endpoint: Endpoint;
  #near: Deno.Conn | undefined;
  #far: Deno.Conn | undefined;
  #isClosed = false;
  #lastMs = performance.now();

  /** @param isolate the number of this one. */
  constructor(rendezvous: Rendezvous, isolate: number) {
    this.#endpoint = listen(rendezvous, `${isolate}-self`, (conn) => {
      this.#far = conn;
      if (this.#isClosed) conn.close();
    });
    connect(rendezvous, this.#endpoint.address, isolate).then((conn) => {
      this.#near = conn;
      if (this.#isClosed) conn.close();
    }, () => {});
  }

  /** A promise of the next look, when it is time for one. */
  look(): Promise<void> | undefined {
    if (!this.#near || !this.#far || performance.now() - this.#lastMs < INTERVAL_MS) {
      return undefined;
    }
    return this.#look(this.#near, this.#far);
  }

  /** Closes its socket. */
  close(): void {
    this.#isClosed = true;
    this.#endpoint.close();
    this.#near?.close();
    this.#far?.close();
  }

  async #look(near: Deno.Conn, far: Deno.Conn): Promise<void> {
    const back = far.read(this.#byte);
    // It is closed when the last process has ended in the meantime.
    await near.write(this.#byte).catch(() => {});
    await back.catch(() => {});
    this.#lastMs = performance.now();
  }
}
