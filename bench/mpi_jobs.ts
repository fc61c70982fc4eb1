/**
 * The programs of two ranks that `mpi.ts` measures: `links` passes a megabyte back and forth, by calls
 * of MPI and over the link of communication workers; `actors` passes it between actors, adds 16 MB
 * while it computes, and idles.
 *
 * @module
 */

import type { ActorRef } from "../actors/runtime/types.ts";
import { createSystem } from "../actors/transports/system.ts";
import { PINGER, type PingerMessage } from "../actors/planner/pinger.ts";
import {
  HANDLE_TYPES,
  launchedRanks,
  LIBRARIES,
  MPICH_HANDLES,
  openMpi,
  openMpiHandles,
} from "../actors/transports/mpi/library.ts";
import { Outgoing, receivePackets } from "../actors/transports/mpi/link.ts";
import { exchangeNotifiers, ownNetworks } from "../actors/transports/mpi/networks.ts";
import { Transfers } from "../actors/transports/mpi/transfers.ts";
import type { Packet } from "../actors/transports/mpi/wire.ts";
import { mpiTransport, openJob } from "../actors/transports/mpi/transport.ts";
import { ADDER, type AdderMessage, type Computed } from "./mpi.ts";
import { answer } from "./report.ts";
import { spread } from "./timing.ts";

/** Bytes of a message, and round trips of a round. */
const BYTES = 2 ** 20, TRIPS = 100;

/** Milliseconds of a computation, and of idling. */
const COMPUTE_MS = 50, IDLE_MS = 2000;

/** Passes messages between actors. */
async function runActors(): Promise<void> {
  const job = await openJob();
  if (job.rank === 0) {
    await using system = createSystem({ transport: mpiTransport(job, undefined, [[0, 1]]) });
    const pingersIn = (isolate: string) =>
      [1, 2].map((n) =>
        system.spawn(PINGER, undefined, { id: `pinger ${n} ${isolate}`, isolate })
      ) as [ActorRef<PingerMessage>, ActorRef<PingerMessage>];
    const afar = pingersIn("mpi"), near = pingersIn("worker");
    const adders = [0, 1].map((member): ActorRef<AdderMessage> =>
      system.spawn(ADDER, member, { id: `adder ${member}`, isolate: "mpi" })
    );
    /** Returns the median milliseconds of one way. */
    const play = async ([one, to]: typeof afar) => {
      const game = { type: "Play", to, bytes: BYTES, trips: TRIPS } as const;
      const times = await system.ask<PingerMessage, number[]>(one, game);
      return { ms: spread(times).median / 2 };
    };
    const askBoth = <T>(message: AdderMessage) =>
      Promise.all(adders.map((one) => system.ask<AdderMessage, T>(one, message)));
    const count = Math.max(...await askBoth<number>({ type: "Calibrate", ms: COMPUTE_MS }));
    const cpuMs = () => askBoth<number>({ type: "Cpu" });
    /** Returns the time of the slower rank, and the CPU time of both. */
    const compute = async (count: number, isAdding: boolean) => {
      const before = await cpuMs();
      const both = await askBoth<Computed>({ type: "Compute", count, isAdding });
      const after = await cpuMs();
      return {
        ms: Math.max(...both.map(({ ms }) => ms)),
        waitPercent: Math.max(...both.map(({ ms, waitMs }) => 100 * waitMs / (ms - waitMs))),
        cpuMs: after.reduce((sum, one, i) => sum + one - before[i]!, 0),
      };
    };
    await answer({
      afar: () => play(afar),
      near: () => play(near),
      compute: () => compute(count, false),
      add: () => compute(0, true),
      both: () => compute(count, true),
      async idle() {
        const before = await cpuMs(), start = performance.now();
        await new Promise((resolve) => setTimeout(resolve, IDLE_MS));
        const after = await cpuMs(), ms = performance.now() - start;
        return { percent: 100 * Math.max(...after.map((one, i) => one - before[i]!)) / ms };
      },
    });
    await system.stop();
    await job.close();
  } else await job.serve();
}

type Abi = NonNullable<ReturnType<typeof launchedRanks>>["abi"];

/** Returns a function that sends and receives in turn, and returns the milliseconds of each trip. */
function openBare(abi: Abi, rank: number): () => number[] {
  const other = 1 - rank;
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
      if (rank === 0) send();
      receive();
      if (rank === 1) send();
      return performance.now() - start;
    });
}

/** Passes messages by MPI and over a link. */
async function runLinks(): Promise<void> {
  const { abi, size } = launchedRanks()!;
  const mpi = openMpi({ abi, ranks: size }), other = 1 - mpi.rank;
  const failed = (error: Error) => {
    throw error;
  };
  const transfers = new Transfers(mpi, failed), parts = { mpi, transfers };
  const bare = openBare(abi, mpi.rank);

  /** Bodies of packets without buffers. */
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

  /** Returns the median milliseconds of one way. */
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
}

await (Deno.args[0] === "links" ? runLinks() : runActors());
Deno.exit(0);
