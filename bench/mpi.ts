/**
 * Messages between ranks of MPI: to be started by a launcher on two ranks. Prints what a megabyte takes
 * one way by MPI alone, and from actor to actor.
 *
 * @module
 */

import process from "node:process";
import { openJob } from "../actors/runtime/transports/mpi/job.ts";
import { mpiTransport } from "../actors/runtime/transports/mpi/mpi_transport.ts";
import { type ActorRef, createSystem } from "../actors/mod.ts";
import { print } from "../console/print.ts";
import { COURIER, type CourierMessage } from "./support/courier.ts";

const MEGABYTE = 2 ** 20;

/** CPU time of this process, in milliseconds. */
const cpuMs = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
};

const job = await openJob();
if (job.rank === 0) {
  await using system = createSystem({ transport: mpiTransport(job) });
  const couriers = [1, 2].map((n) =>
    system.spawn(COURIER, undefined, { id: `courier ${n}`, isolate: "mpi" })
  ) as [ActorRef<CourierMessage>, ActorRef<CourierMessage>];
  const play = (bytes: number, passes: number, isMoved = true) =>
    system.ask<CourierMessage, number>(couriers[0], {
      type: "Play",
      to: couriers[1],
      bytes,
      isMoved,
      tensors: 1,
      passes,
    });
  await play(MEGABYTE, 100);
  for (const bytes of [0, 1024, 65536, MEGABYTE, 16 * MEGABYTE]) {
    const passes = bytes > MEGABYTE ? 40 : 400;
    const rounds: number[] = [];
    for (let i = 0; i < 5; i++) rounds.push(1000 * await play(bytes, passes) / passes);
    rounds.sort((a, b) => a - b);
    print(JSON.stringify({ what: "actor to actor", bytes, us: Math.round(rounds[2]!) }));
  }
  const before = cpuMs();
  await new Promise((resolve) => setTimeout(resolve, 3000));
  print(JSON.stringify({ what: "idle rank", percent: (cpuMs() - before) / 30 }));
  await system.stop();
  await job.root.close();
} else {
  await job.serve();
}
Deno.exit(0);
