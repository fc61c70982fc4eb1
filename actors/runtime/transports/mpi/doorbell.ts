/**
 * The doors of a job: where each rank hears the doorbells of the others, and who may ring.
 *
 * A secret of the job, which travels by MPI alone, tells its ranks from strangers.
 *
 * @module
 */

import type { Mpi } from "./mpi.ts";

/** Bytes of the job's secret. */
const SECRET_BYTES = 32;

/** Bytes in which a rank tells where its door is. */
const ADDRESS_BYTES = 128;

/** The secret, and a rank. */
const GREETING_BYTES = SECRET_BYTES + 4;

/** A place where others can ring. */
export interface Door {
  readonly address: { readonly hostname: string; readonly port: number };
  /** From now on who knows the secret is let in. */
  admit(secret: Uint8Array): void;
}

/**
 * Opens a door.
 *
 * @param hostname the address of the interface that it is on.
 * @param ring is called with each connection of another rank.
 */
export function openDoor(
  hostname: string,
  ring: (conn: Deno.Conn, rank: number) => void,
): Door {
  const listener = Deno.listen({ hostname, port: 0 });
  const secret = Promise.withResolvers<Uint8Array>();
  const greet = async (conn: Deno.TcpConn) => {
    conn.setNoDelay(true);
    const greeting = new Uint8Array(GREETING_BYTES);
    for (let at = 0; at < greeting.length;) {
      const count = await conn.read(greeting.subarray(at));
      if (count === null) return conn.close();
      at += count;
    }
    const wanted = await secret.promise;
    // No early end: its time must not tell how much of a guess is right.
    const wrong = wanted.reduce((sum, byte, i) => sum | (byte ^ greeting[i]!), 0);
    if (wrong) return conn.close();
    ring(conn, new DataView(greeting.buffer).getInt32(SECRET_BYTES));
  };
  (async () => {
    for await (const conn of listener) greet(conn).catch(() => conn.close());
  })();
  const { port } = listener.addr as Deno.NetAddr;
  return { address: { hostname, port }, admit: secret.resolve };
}

/** Tells all ranks of a job where the doors of the others are, and gives the job its secret. */
export function exchangeDoors(mpi: Pick<Mpi, "rank" | "gather">, door: Door) {
  const own = new Uint8Array(SECRET_BYTES + ADDRESS_BYTES);
  if (mpi.rank === 0) crypto.getRandomValues(own.subarray(0, SECRET_BYTES));
  new TextEncoder().encodeInto(JSON.stringify(door.address), own.subarray(SECRET_BYTES));
  const all = mpi.gather(own), secret = all.slice(0, SECRET_BYTES);
  door.admit(secret);
  const addressOf = (rank: number): Door["address"] => {
    const at = rank * own.length + SECRET_BYTES;
    const text = new TextDecoder().decode(all.subarray(at, at + ADDRESS_BYTES));
    return JSON.parse(text.replace(/\0.*$/s, ""));
  };
  return {
    /** Rings at the door of a rank. */
    async connect(rank: number): Promise<Deno.Conn> {
      const conn = await Deno.connect(addressOf(rank)), greeting = new Uint8Array(GREETING_BYTES);
      conn.setNoDelay(true);
      greeting.set(secret);
      new DataView(greeting.buffer).setInt32(SECRET_BYTES, mpi.rank);
      for (let at = 0; at < greeting.length;) at += await conn.write(greeting.subarray(at));
      return conn;
    },
  };
}
