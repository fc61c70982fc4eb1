/**
 * The root's own door for its processes: there as long as one of them lives.
 *
 * @module
 */

import { SocketPoll } from "./socket_poll.ts";
import {
  type Address,
  beatOf,
  closeStation,
  type Door,
  openDoor,
  openStation,
  type Station,
} from "./station.ts";

/** What a process must know to find the root. */
export interface Orders {
  readonly isolate: number;
  readonly station: Station;
  readonly root: Address;
}

/** Expects the calls of processes. */
export class Reception {
  readonly #expected = new Map<number, (conn: Deno.Conn) => void>();
  #station: Station | undefined;
  #door: Door | undefined;
  #poll: SocketPoll | undefined;

  /**
   * Expects a call from a process, until {@linkcode leave}.
   *
   * @param onBeat called whenever the process tells that it is at work.
   */
  enter(isolate: number, attach: (conn: Deno.Conn) => void, onBeat: () => void): Orders {
    const station = this.#station ??= openStation();
    this.#door ??= openDoor(station, "0", (conn, caller) => {
      const attach = this.#expected.get(caller);
      if (attach) attach(conn);
      else conn.close();
    });
    this.#poll ??= new SocketPoll(station, 0);
    this.#expected.set(isolate, attach);
    this.#expected.set(beatOf(isolate), (conn) => void hearBeats(conn, onBeat));
    return { isolate, station, root: this.#door.address };
  }

  /** A process has ended. After the last one nothing is left. */
  leave(isolate: number): void {
    this.#expected.delete(isolate);
    this.#expected.delete(beatOf(isolate));
    if (this.#expected.size > 0) return;
    this.#door?.close();
    this.#poll?.close();
    if (this.#station) closeStation(this.#station);
    this.#door = this.#poll = this.#station = undefined;
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
