/**
 * Two ranks that pass a megabyte to and fro: by bare calls of MPI, and over the link of
 * communication workers.
 *
 * @module
 */

import {
  HANDLE_TYPES,
  launchedRanks,
  LIBRARIES,
  MPICH_HANDLES,
  openMpi,
  openMpiHandles,
} from "../actors/transports/mpi/library.ts";
import { Outgoing, receivePackets } from "../actors/transports/mpi/link.ts";
import { ownNetworks } from "../actors/transports/mpi/networks.ts";
import { exchangeNotifiers } from "../actors/transports/mpi/notifier.ts";
import { Transfers } from "../actors/transports/mpi/transfers.ts";
import type { Packet } from "../actors/transports/mpi/wire.ts";
import { answer } from "./report.ts";
import { spread } from "./timing.ts";

const BYTES = 2 ** 20;

/** Round trips of a round. */
const TRIPS = 100;

const { abi, size } = launchedRanks()!;
const mpi = openMpi({ abi, ranks: size }), other = 1 - mpi.rank;
const failed = (error: Error) => {
  throw error;
};
const transfers = new Transfers(mpi, failed), parts = { mpi, transfers };

/** Sends and receives in turn; rank 0 begins. Tells the milliseconds of each round trip. */
function openBare(): () => number[] {
  const handle = HANDLE_TYPES[abi], result = "i32" as const;
  const { symbols } = Deno.dlopen(LIBRARIES[abi], {
    MPI_Send: { parameters: ["buffer", "i32", handle, "i32", "i32", handle], result },
    MPI_Recv: { parameters: ["buffer", "i32", handle, "i32", "i32", handle, "pointer"], result },
  });
  const { MPI_Send, MPI_Recv } = symbols as Record<string, (...args: unknown[]) => number>;
  const { world, bytes, ignoredStatus } = abi === "mpich"
    ? MPICH_HANDLES
    : openMpiHandles(LIBRARIES[abi]);
  const buffer = new Uint8Array(BYTES).fill(1), TAG = 2;
  const send = () => MPI_Send!(buffer, BYTES, bytes, other, TAG, world);
  const receive = () => MPI_Recv!(buffer, BYTES, bytes, other, TAG, world, ignoredStatus);
  return () =>
    Array.from({ length: TRIPS }, () => {
      const start = performance.now();
      if (mpi.rank === 0) send();
      receive();
      if (mpi.rank === 1) send();
      return performance.now() - start;
    });
}

const bare = openBare();

/** What a packet without buffers says. */
const [BARE, END] = [1, 2];
const word = (said: number): Packet => ({
  to: { rank: other, isolate: 1 },
  body: Uint8Array.of(said),
  buffers: [],
});

let back = (_: Packet) => {};
const ended = Promise.withResolvers<void>();
const hear = (packet: Packet) => {
  const { body } = packet;
  if (body[0] === END) return ended.resolve();
  if (body[0] === BARE) return void bare();
  if (mpi.rank === 0) back(packet);
  else link.send({ ...packet, to: { rank: other, isolate: 1 } });
};
const doors = exchangeNotifiers(
  mpi,
  ownNetworks(undefined),
  (conn, rank) => void receivePackets(parts, mpi.rank, rank, conn, hear),
);
const link = new Outgoing(parts, other, doors.connect(other), failed);

/** Milliseconds of each round trip of a packet. */
async function overLink(): Promise<number[]> {
  const times: number[] = [];
  let buffers: Packet["buffers"] = [new Uint8Array(BYTES).fill(1)];
  while (times.length < TRIPS) {
    const start = performance.now(), came = Promise.withResolvers<Packet>();
    back = came.resolve;
    link.send({ ...word(0), buffers });
    ({ buffers } = await came.promise);
    times.push(performance.now() - start);
  }
  return times;
}

/** Milliseconds of one way, in the middle of all. */
const oneWay = (times: readonly number[]) => ({ ms: spread(times).median / 2 });

if (mpi.rank === 0) {
  await answer({
    async bare() {
      link.send(word(BARE));
      await link.finish();
      return oneWay(bare());
    },
    link: async () => oneWay(await overLink()),
  });
  link.send(word(END));
} else await ended.promise;
await link.finish();
await transfers.end(mpi.barrier());
mpi.finalize();
Deno.exit(0);
