/**
 * Two ranks whose actors pass a megabyte to and fro, add 16 MB while they compute, or do nothing.
 *
 * @module
 */

import { type ActorRef, createSystem } from "../actors/mod.ts";
import { PINGER, type PingerMessage } from "../actors/planner/pinger.ts";
import { mpiTransport, openJob } from "../actors/transports/mpi/transport.ts";
import { ADDER, type AdderMessage, type Computed } from "./mpi_adder.ts";
import { answer } from "./report.ts";
import { spread } from "./timing.ts";

const BYTES = 2 ** 20, TRIPS = 100, COMPUTE_MS = 50, IDLE_MS = 2000;

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
  /** Milliseconds of one way, in the middle of all. */
  const play = async ([one, to]: typeof afar) => {
    const game = { type: "Play", to, bytes: BYTES, trips: TRIPS } as const;
    const times = await system.ask<PingerMessage, number[]>(one, game);
    return { ms: spread(times).median / 2 };
  };
  const askBoth = <T>(message: AdderMessage) =>
    Promise.all(adders.map((one) => system.ask<AdderMessage, T>(one, message)));
  const count = Math.max(...await askBoth<number>({ type: "Calibrate", ms: COMPUTE_MS }));
  const cpuMs = () => askBoth<number>({ type: "Cpu" });
  /** Of both ranks what took longer, and the CPU time of both together. */
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
Deno.exit(0);
