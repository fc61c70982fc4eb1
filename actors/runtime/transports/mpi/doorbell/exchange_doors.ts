/**
 * How the ranks of a job learn where the doors of the others are, and the job's secret, which travels
 * by MPI alone.
 *
 * @module
 */

import { delay } from "@std/async/delay";
import type { Mpi } from "../mpi.ts";
import { type Door, openDoor, ringAt, SECRET_BYTES } from "./door.ts";
import { gatherValues } from "./gather_values.ts";
import { doorAddresses, type RankNetworks } from "./networks.ts";

/** How often a rank rings at a door before it gives up, and how long it waits, in milliseconds. */
const MAX_RINGS = 5;
const WAIT_MS = 200;

/**
 * Opens the door of this rank; every rank does.
 *
 * @param ring is called with each connection of another rank.
 * @throws {JobRefusal} when ranks cannot reach each other.
 */
export function exchangeDoors(
  mpi: Pick<Mpi, "rank" | "gather">,
  networks: RankNetworks,
  ring: (conn: Deno.TcpConn, rank: number) => void,
) {
  const hostname = doorAddresses(gatherValues(mpi, networks))[mpi.rank]!;
  const door = openDoor(hostname, ring);
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
          return await ringAt(address, mpi.rank, rank, secret);
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

const unreachable = (from: number, to: number, { hostname, port }: Door["address"], cause: Error) =>
  new Error(
    `Cannot reach rank ${to} from rank ${from}: ${hostname}:${port} must be open to it, received "${cause.message}"; open the firewall between the hosts, or name another interface with --mpi-interface`,
    { cause },
  );
