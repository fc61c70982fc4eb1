/**
 * Where the root accepts the connections of its processes: there as long as one of them lives.
 *
 * @module
 */

import {
  type Address,
  beatOf,
  closeRendezvous,
  type Endpoint,
  listen,
  openRendezvous,
  type Rendezvous,
} from "./rendezvous.ts";
import { SocketPoll } from "./socket_poll.ts";

/** What a process must know to find the root. */
export interface Orders {
  readonly isolate: number;
  readonly rendezvous: Rendezvous;
  readonly root: Address;
}

/** Accepts connections of processes. */
export class Acceptor {
  readonly #expected = new Map<number, (conn: Deno.Conn) => void>();
  #rendezvous: Rendezvous | undefined;
  #endpoint: Endpoint | undefined;
  #poll: SocketPoll | undefined;

  /**
   * Expects a connection from a process, until {@linkcode forget}.
   *
   * @param onBeat called whenever the process tells that it is at work.
   */
  expect(isolate: number, attach: (conn: Deno.Conn) => void, onBeat: () => void): Orders {
    const rendezvous = this.#rendezvous ??= openRendezvous();
    this.#endpoint ??= listen(rendezvous, "0", (conn, caller) => {
      const attach = this.#expected.get(caller);
      if (attach) attach(conn);
      else conn.close();
    });
    this.#poll ??= new SocketPoll(rendezvous, 0);
    this.#expected.set(isolate, attach);
    this.#expected.set(beatOf(isolate), (conn) => void hearBeats(conn, onBeat));
    return { isolate, rendezvous, root: this.#endpoint.address };
  }

  /** A process has ended. After the last one nothing is left. */
  forget(isolate: number): void {
    this.#expected.delete(isolate);
    this.#expected.delete(beatOf(isolate));
    if (this.#expected.size > 0) return;
    this.#endpoint?.close();
    this.#poll?.close();
    if (this.#rendezvous) closeRendezvous(this.#rendezvous);
    this.#endpoint = this.#poll = this.#rendezvous = undefined;
  }

  /** Gives the sockets their turn, if there are any. */
  look(): Promise<void> | undefined {
    return this.#poll?.look();
  }
}

/** Until the process ends, which closes the connection. */
async function hearBeats(conn: Deno.Conn, onBeat: () => void): Promise<void> {
  const bytes = new Uint8Array(64);
  while (await conn.read(bytes).catch(() => null) !== null) onBeat();
  conn.close();
}
