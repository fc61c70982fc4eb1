/**
 * The MPI transport: isolates on the ranks of a job.
 *
 * @module
 */

import type { OpenTransport, Transport } from "../../runtime/transport.ts";
import { type AgentReport, Enlisted } from "../agent.ts";
import { RankAgent, type RankOrder } from "./agent.ts";
import { openComm } from "./comm.ts";
import { launchedRanks } from "./library.ts";
import type { GroupRanks } from "./transfers.ts";
import { AGENT, type JobFacts } from "./wire.ts";

/** Options of {@linkcode openJob}. */
interface JobOptions {
  /** MPI's library. Default: the launcher's, by its usual name. */
  readonly library?: string | undefined;
  /**
   * The interface on which ranks announce messages to each other: its name, its address or its
   * network, such as 10.1.0.0/16. Default: 127.0.0.1 on one host, and the only shared network on
   * several hosts.
   */
  readonly interface?: string | undefined;
  /** Facts that must be the same on all ranks, by name. Default: only MPI's library. */
  readonly facts?: JobFacts | undefined;
  /** Milliseconds that the other ranks may take to join. Default: 120,000. */
  readonly joinMs?: number | undefined;
}

/** The view of a job on one of its ranks. */
export type Job = Awaited<ReturnType<typeof openJob>>;

/**
 * Joins the job of this process as one of its ranks; without a launcher, a job of one rank.
 *
 * @throws {JobRefusal} when no rank can join, all for the same reason.
 * @throws {Error} when MPI's library cannot be loaded or is not the launcher's, or when other ranks
 * do not join in time.
 */
export async function openJob(options: JobOptions = {}) {
  const { facts = {}, joinMs = 120_000 } = options, launched = launchedRanks();
  const over = Promise.withResolvers<void>(), lost = Promise.withResolvers<never>();
  let isLost = false;
  const comm = await openComm({
    abi: launched?.abi ?? "mpich",
    library: options.library,
    ranks: launched?.size ?? 1,
    on: options.interface,
    facts,
    joinMs,
    receive(frame) {
      if (comm.rank === 0) return root.enlisted.report(frame as AgentReport);
      const order = frame as RankOrder | { readonly kind: "over" };
      if (order.kind === "over") over.resolve();
      else agent.receive(order);
    },
    failed(error) {
      isLost = true;
      lost.reject(error);
    },
  });
  const { rank, size, version, frames } = comm;
  const agent = new RankAgent(comm, (report) => {
    if (rank === 0) root.enlisted.report(report);
    else frames.send({ rank: 0, isolate: AGENT }, report, []);
  });
  /** The root's side of the job, on rank 0: see {@linkcode mpiTransport}. */
  const root = {
    enlisted: new Enlisted(),
    /** Sends an order to the agent of a rank. */
    order(rank: number, order: RankOrder, transfer: readonly Transferable[] = []): void {
      if (rank === 0) agent.receive(order, transfer);
      else frames.send({ rank, isolate: AGENT }, order, transfer);
    },
    /** Receives all pending frames. */
    drain(): undefined {
      agent.drain();
      frames.drain();
    },
  };
  return {
    rank,
    size,
    /** The version text of MPI's library. */
    version,
    root,
    /** Rejects when the job is lost: messages no longer reach other ranks. */
    lost: lost.promise,
    /** Ends the job on all ranks; called on rank 0. */
    async close(): Promise<void> {
      if (isLost) return;
      for (let other = 1; other < size; other++) {
        frames.send({ rank: other, isolate: AGENT }, { kind: "over" }, []);
      }
      await comm.close();
    },
    /** Starts isolates for rank 0 until the job is over; called on the other ranks. */
    async serve(): Promise<void> {
      await Promise.race([over.promise, lost.promise]);
      await comm.close();
    },
  };
}

/**
 * Returns the transport of a job, for rank 0.
 *
 * @param rankOf returns the rank of the n-th isolate. Default: round robin, starting with rank 0.
 * @param groups groups whose members add arrays with MPI.
 */
export function mpiTransport(
  job: Job,
  rankOf: (nth: number) => number = (nth) => nth % job.size,
  groups: readonly GroupRanks[] = [],
): Transport {
  return {
    name: "mpi",
    sharesMemory: false,
    canKill: false,
    limitsMemory: false,
    open(): OpenTransport {
      let started = 0;
      if (groups.length > 0) {
        for (let rank = 0; rank < job.size; rank++) job.root.order(rank, { kind: "group", groups });
      }
      return {
        start(request) {
          const rank = rankOf(started++), { root } = job;
          const order = (one: RankOrder, transfer?: readonly Transferable[]) =>
            root.order(rank, one, transfer);
          return root.enlisted.start(order, request);
        },
        drain: job.root.drain,
      };
    },
  };
}
