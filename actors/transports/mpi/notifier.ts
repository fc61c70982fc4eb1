/**
 * Exchanges the addresses at which the ranks of a job listen, and the job's secret, which is sent
 * only over MPI.
 *
 * [Note: untrusted connections] Any process that reaches the listener's port can connect. A
 * connection is closed if it does not send the job's secret in time. The number of unauthenticated
 * connections is limited: another one closes the oldest. So they cost a bounded number of small
 * buffers and cannot keep a rank out: a rank sends the secret immediately, and connects again if
 * its connection was closed. The secret only authenticates ranks; as in MPI itself, data is not
 * encrypted.
 *
 * @module
 */

import { deadline } from "@std/async/deadline";
import { delay } from "@std/async/delay";
import { readAll, writeAll } from "../stream.ts";
import type { Mpi } from "./library.ts";
import { notifierAddresses, type RankNetworks } from "./networks.ts";
import { gatherValues } from "./wire.ts";

/** Bytes of the client's half of the secret, and of the listener's half. */
const WORD_BYTES = 32;

/** Bytes of the job's secret: both halves. */
export const SECRET_BYTES = 2 * WORD_BYTES;

/** Bytes of a greeting: the client's half of the secret, its rank, and the rank it connects to. */
const GREETING_BYTES = WORD_BYTES + 8;

/** Milliseconds for a client to send its greeting, and for the listener to reply. */
const GREETING_MS = 5000;

/** Maximum number of connections that have not been authenticated. */
const MAX_GUESTS = 64;

/**
 * Milliseconds to wait when the system accepts no connection, for example without file descriptors.
 */
const REST_MS = 50;

/** A listener for connections of other ranks. */
export interface Notifier {
  readonly address: { readonly hostname: string; readonly port: number };
  /** Starts to accept clients that know the secret. */
  admit(rank: number, secret: Uint8Array): void;
  close(): void;
}

/**
 * Opens a listener.
 *
 * @param hostname the address to listen on.
 * @param ring called with each connection of another rank.
 * @param greetingMs milliseconds for a client to send its greeting.
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
      // The client has disconnected or was disconnected.
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
 * Connects to the listener of a rank.
 *
 * @param from the rank that connects.
 * @throws {Error} when the connection fails, or the listener does not know the secret.
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

/** Compares bytes with a word in constant time, which reveals nothing about the word. */
const isSame = (bytes: Uint8Array, word: Uint8Array) =>
  word.reduce((sum, byte, i) => sum | (byte ^ bytes[i]!), 0) === 0;

/** Maximum attempts to connect to a host that refuses, and milliseconds between two attempts. */
const MAX_REFUSALS = 5;
const WAIT_MS = 500;

/** Milliseconds in which a rank must answer. On a busy machine, starting takes many seconds. */
const REACH_MS = 60_000;

/**
 * Opens the listener of this rank; every rank calls it.
 *
 * @param ring called with each connection of another rank.
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
    /** Connects to the listener of a rank. @throws {Error} when all attempts fail. */
    async connect(rank: number): Promise<Deno.TcpConn> {
      const address = addresses[rank]!, end = performance.now() + REACH_MS;
      for (let attempt = 1;; attempt++) {
        try {
          return await connectTo(address, mpi.rank, rank, secret);
        } catch (error) {
          const isRefused = error instanceof Deno.errors.ConnectionRefused;
          if (isRefused ? attempt >= MAX_REFUSALS : performance.now() > end) {
            throw unreachable(mpi.rank, rank, address, error as Error);
          }
          await delay(WAIT_MS);
        }
      }
    },
    /** Closes the listener. */
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
