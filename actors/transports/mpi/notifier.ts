/**
 * How the ranks of a job learn where the doors of the others are, and the job's secret, which travels
 * by MPI alone.
 *
 * [Note: strangers] Whoever reaches the door's port may knock. A guest who does not greet with the
 * job's secret in time is sent away; those who wait to be heard are few, and one more sends away the
 * one who has waited longest: so strangers cost a bounded number of small buffers, and cannot keep a
 * rank out, which greets at once and, if it was sent away in a crowd, comes again. The secret tells
 * ranks from strangers, no more: as with MPI itself, what travels is not encrypted.
 *
 * @module
 */

import { deadline } from "@std/async/deadline";
import { delay } from "@std/async/delay";
import { readAll, writeAll } from "../stream.ts";
import type { Mpi } from "./library.ts";
import { notifierAddresses, type RankNetworks } from "./networks.ts";
import { gatherValues } from "./wire.ts";

/** Bytes of the word that a guest says, and of the one that the door answers with. */
const WORD_BYTES = 32;

/** Bytes of the job's secret: both words. */
export const SECRET_BYTES = 2 * WORD_BYTES;

/** The guest's word, its rank, and the rank that it wants. */
const GREETING_BYTES = WORD_BYTES + 8;

/** How long a guest may take to greet, and a door to answer, in milliseconds. */
const GREETING_MS = 5000;

/** Guests who have not greeted yet. */
const MAX_GUESTS = 64;

/** How long a door rests when the system lets nobody in, as when it is out of file descriptors. */
const REST_MS = 50;

/** A place where others can ring. */
export interface Notifier {
  readonly address: { readonly hostname: string; readonly port: number };
  /** From now on who knows the secret is let in. */
  admit(rank: number, secret: Uint8Array): void;
  close(): void;
}

/**
 * Opens a door.
 *
 * @param hostname the address of the interface that it is on.
 * @param ring is called with each connection of another rank.
 * @param greetingMs how long a guest may take to greet.
 */
export function openNotifier(
  hostname: string,
  ring: (conn: Deno.TcpConn, rank: number) => void,
  greetingMs = GREETING_MS,
): Notifier {
  const listener = Deno.listen({ hostname, port: 0 }), guests = new Set<Deno.TcpConn>();
  const admitted = Promise.withResolvers<{ rank: number; secret: Uint8Array }>();
  let isOpen = true;
  const dismiss = (conn: Deno.TcpConn) => {
    if (guests.delete(conn)) conn.close();
  };
  const greet = async (conn: Deno.TcpConn) => {
    guests.add(conn);
    if (guests.size > MAX_GUESTS) dismiss(guests.values().next().value!);
    const timer = setTimeout(() => dismiss(conn), greetingMs);
    try {
      conn.setNoDelay(true);
      const greeting = await readAll(conn, GREETING_BYTES),
        { rank, secret } = await admitted.promise;
      const numbers = new DataView(greeting.buffer, WORD_BYTES);
      if (!isSame(greeting, secret.subarray(0, WORD_BYTES))) return;
      if (numbers.getInt32(4) !== rank) return;
      await writeAll(conn, secret.subarray(WORD_BYTES));
      if (guests.delete(conn)) ring(conn, numbers.getInt32(0));
    } catch {
      // It has gone, or was sent away.
    } finally {
      clearTimeout(timer);
      dismiss(conn);
    }
  };
  const receive = async () => {
    while (isOpen) {
      try {
        void greet(await listener.accept());
      } catch {
        if (isOpen) await delay(REST_MS);
      }
    }
  };
  void receive();
  return {
    address: { hostname, port: (listener.addr as Deno.NetAddr).port },
    admit: (rank, secret) => admitted.resolve({ rank, secret }),
    close() {
      isOpen = false;
      listener.close();
      for (const conn of guests) dismiss(conn);
    },
  };
}

/**
 * Rings at the door of a rank.
 *
 * @param from the rank that rings.
 * @throws {Error} when nobody opens, or who opens does not know the secret.
 */
export async function connectTo(
  { hostname, port }: Notifier["address"],
  from: number,
  to: number,
  secret: Uint8Array,
): Promise<Deno.TcpConn> {
  const conn = await deadline(Deno.connect({ hostname, port }), GREETING_MS);
  try {
    conn.setNoDelay(true);
    const greeting = new Uint8Array(GREETING_BYTES), numbers = new DataView(greeting.buffer);
    greeting.set(secret.subarray(0, WORD_BYTES));
    numbers.setInt32(WORD_BYTES, from);
    numbers.setInt32(WORD_BYTES + 4, to);
    await writeAll(conn, greeting);
    const answer = await deadline(readAll(conn, WORD_BYTES), GREETING_MS);
    if (!isSame(answer, secret.subarray(WORD_BYTES))) {
      throw new Error("the peer must know the secret of the job");
    }
    return conn;
  } catch (error) {
    conn.close();
    throw error;
  }
}

/** Whether bytes begin with a word. No early end: its time must not tell how much of a guess is right. */
const isSame = (bytes: Uint8Array, word: Uint8Array) =>
  word.reduce((sum, byte, i) => sum | (byte ^ bytes[i]!), 0) === 0;

/** How often a rank rings at a door before it gives up, and how long it waits, in milliseconds. */
const MAX_RINGS = 5;
const WAIT_MS = 200;

/**
 * Opens the door of this rank; every rank does.
 *
 * @param ring is called with each connection of another rank.
 * @throws {JobRefusal} when ranks cannot reach each other.
 */
export function exchangeNotifiers(
  mpi: Pick<Mpi, "rank" | "gather">,
  networks: RankNetworks,
  ring: (conn: Deno.TcpConn, rank: number) => void,
) {
  const hostname = notifierAddresses(gatherValues(mpi, networks))[mpi.rank]!;
  const door = openNotifier(hostname, ring);
  const addresses = gatherValues(mpi, door.address);
  const own = new Uint8Array(SECRET_BYTES);
  if (mpi.rank === 0) crypto.getRandomValues(own);
  const secret = mpi.gather(own).slice(0, SECRET_BYTES);
  door.admit(mpi.rank, secret);
  return {
    /** Rings at the door of a rank. @throws {Error} when it is not let in. */
    async connect(rank: number): Promise<Deno.TcpConn> {
      const address = addresses[rank]!;
      for (let rings = 1;; rings++) {
        try {
          return await connectTo(address, mpi.rank, rank, secret);
        } catch (error) {
          if (rings === MAX_RINGS) throw unreachable(mpi.rank, rank, address, error as Error);
          await delay(rings * WAIT_MS);
        }
      }
    },
    /** Nobody is let in any more. */
    close: door.close,
  };
}

const unreachable = (
  from: number,
  to: number,
  { hostname, port }: Notifier["address"],
  cause: Error,
) =>
  new Error(
    `Cannot reach rank ${to} from rank ${from}: ${hostname}:${port} must be open to it, received "${cause.message}"; open the firewall between the hosts, or name another interface with --mpi-interface`,
    { cause },
  );
