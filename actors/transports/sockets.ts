/**
 * Polls the sockets of an isolate between its steps.
 *
 * [Note: self-pipe polling] While the event loop has work, it polls its sockets only once in sixty
 * turns, so a control message could wait behind sixty steps. An idle event loop polls immediately.
 * So the isolate sends a byte to itself through a socket and waits for it, which takes about 20 µs
 * and also receives all other pending data.
 *
 * @module
 */

import type { PeerConnector, PeerSender } from "../runtime/transport.ts";
import { type Address, connect, type Endpoint, listen, type Rendezvous } from "./rendezvous.ts";
import { Outbox, receiveFrames } from "./stream.ts";

/**
 * Connects a process to other processes of its program.
 *
 * @param number the number of this isolate.
 */
export function openSocketConnector(rendezvous: Rendezvous, number: number) {
  const invited = new Map<number, (sender: PeerSender) => void>();
  const outboxes = new Set<Outbox>();
  const senderOver = (conn: Deno.Conn): PeerSender => {
    const outbox = new Outbox();
    outbox.attach(conn);
    outboxes.add(outbox);
    return {
      send: (frame, transfer) => outbox.post(frame, transfer as readonly ArrayBuffer[]),
      finish: () => outbox.finish(),
      close() {
        outboxes.delete(outbox);
        outbox.close();
      },
    };
  };
  const { address } = listen(rendezvous, `${number}`, (conn, caller) => {
    const connected = invited.get(caller);
    invited.delete(caller);
    if (connected) connected(senderOver(conn));
    else conn.close();
  });
  const peers: PeerConnector = {
    invite(isolate, connected) {
      invited.set(isolate, connected);
      return { address, transfer: [] };
    },
    connect(_, address, receive) {
      const isHeard = Promise.withResolvers<boolean>();
      const hear = async () => {
        const to = address as Address;
        const conn = await connect(rendezvous, to, number).catch(() => undefined);
        // The sender has died in the meantime.
        if (!conn) return;
        if (await isHeard.promise) await receiveFrames(conn, receive);
        conn.close();
      };
      const heard = hear();
      return {
        listen: () => isHeard.resolve(true),
        settle() {
          // Messages sent through the root before are lost, so later ones must not be received
          // either.
          isHeard.resolve(false);
          return heard;
        },
        close: () => isHeard.resolve(false),
      };
    },
  };
  return { peers, outboxes };
}

/** Minimum milliseconds between two polls, so that they cost a few percent of the time. */
const INTERVAL_MS = 0.5;

/** Polls the sockets of an isolate with a byte that it sends to itself. */
export class SocketPoll {
  readonly #byte = new Uint8Array(1);
  readonly #endpoint: Endpoint;
  #near: Deno.Conn | undefined;
  #far: Deno.Conn | undefined;
  #isClosed = false;
  #lastMs = performance.now();

  /** @param isolate the number of this isolate. */
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

  /** Polls if the interval has passed; undefined otherwise. */
  look(): Promise<void> | undefined {
    if (!this.#near || !this.#far || performance.now() - this.#lastMs < INTERVAL_MS) {
      return undefined;
    }
    return this.#look(this.#near, this.#far);
  }

  /** Closes the sockets of the poll. */
  close(): void {
    this.#isClosed = true;
    this.#endpoint.close();
    this.#near?.close();
    this.#far?.close();
  }

  async #look(near: Deno.Conn, far: Deno.Conn): Promise<void> {
    const back = far.read(this.#byte);
    // The socket is closed if the last process has ended in the meantime.
    await near.write(this.#byte).catch(() => {});
    await back.catch(() => {});
    this.#lastMs = performance.now();
  }
}
