/**
 * The transport of MPI: isolates on the ranks of a job, reached over its network.
 *
 * @module
 */

import type {
  OpenTransport,
  RemoteIsolate,
  StartRequest,
  Transport,
} from "../../runtime/transport.ts";
import { type AgentOrder, type AgentReport, RankAgent } from "./agent.ts";
import { type Comm, openComm } from "./comm.ts";
import { launchedRanks } from "./library.ts";
import type { GroupRanks } from "./transfers.ts";
import { AGENT, type JobFacts } from "./wire.ts";

/** Options of {@linkcode openJob}. */
interface JobOptions {
  /** MPI's library; by default that of the launcher, by its usual name. */
  readonly library?: string | undefined;
  /**
   * The interface on which ranks announce messages to each other: its name, its address or its
   * network, such as 10.1.0.0/16. By default 127.0.0.1 on one host; on several the one network that
   * they share.
   */
  readonly interface?: string | undefined;
  /** What all ranks must have in common, by name. Default: nothing but MPI's library. */
  readonly facts?: JobFacts | undefined;
  /** How long the other ranks may take to join, in milliseconds. Default 120,000. */
  readonly joinMs?: number | undefined;
}

/** The root's side of a job, for rank 0: see {@linkcode mpiTransport}. */
class RootSide {
  readonly #comm: Comm;
  readonly #agent: RankAgent;
  readonly #enlisted = new Map<number, (report: AgentReport) => void>();
  #isolates = AGENT;

  constructor(comm: Comm, agent: RankAgent) {
    this.#comm = comm;
    this.#agent = agent;
  }

  /** Has the agent of a rank do something. */
  order(rank: number, order: AgentOrder, transfer: readonly Transferable[] = []): void {
    if (rank === 0) this.#agent.receive(order, transfer);
    else this.#comm.frames.send({ rank, isolate: AGENT }, order, transfer);
  }

  /** Gives an isolate a number that no other of the job has; `report` gets its reports. */
  enlist(report: (report: AgentReport) => void): number {
    this.#enlisted.set(++this.#isolates, report);
    return this.#isolates;
  }

  /** Hands on a report. */
  report(one: AgentReport): void {
    this.#enlisted.get(one.isolate)?.(one);
    if (one.kind === "ended") this.#enlisted.delete(one.isolate);
  }

  /** Receives what has come by now. */
  drain(): void {
    this.#agent.drain();
    this.#comm.frames.drain();
  }
}

/** The job, seen from one of its ranks. */
export type Job = Awaited<ReturnType<typeof openJob>>;

/**
 * Joins the job that this process is a rank of; without a launcher, a job of one rank.
 *
 * @throws {JobRefusal} when no rank can join, for one reason.
 * @throws {Error} when MPI's library cannot be loaded, or is not that of the launcher, or other ranks
 * never come.
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
      if (comm.rank === 0) return root.report(frame as AgentReport);
      const order = frame as AgentOrder | { readonly kind: "over" };
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
    if (rank === 0) root.report(report);
    else frames.send({ rank: 0, isolate: AGENT }, report, []);
  });
  const root = new RootSide(comm, agent);
  return {
    rank,
    size,
    /** MPI's library, as it calls itself. */
    version,
    root,
    /** Rejects when the job is lost: no message reaches another rank any more. */
    lost: lost.promise,
    /** Ends the job on all ranks; for rank 0. */
    async close(): Promise<void> {
      if (isLost) return;
      for (let other = 1; other < size; other++) {
        frames.send({ rank: other, isolate: AGENT }, { kind: "over" }, []);
      }
      await comm.close();
    },
    /** Starts isolates as rank 0 asks, until it says that the job is over; for the other ranks. */
    async serve(): Promise<void> {
      await Promise.race([over.promise, lost.promise]);
      await comm.close();
    },
  };
}

/**
 * Makes the transport of a job, for rank 0.
 *
 * @param rankOf returns the rank of the n-th isolate. Default: one after the other from rank 0 on.
 * @param groups the groups whose members add arrays by MPI.
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
        start: (request) => startIsolate(job, rankOf(started++), request),
        drain() {
          job.root.drain();
          return undefined;
        },
      };
    },
  };
}

/** Starts an isolate on a rank. */
function startIsolate(
  { root }: Job,
  rank: number,
  { boot, transfer, receive }: StartRequest,
): RemoteIsolate {
  const gone = Promise.withResolvers<string>(), ended = Promise.withResolvers<void>();
  let sawActivity = true;
  const isolate = root.enlist((report) => {
    if (report.kind === "frame") receive(report.frame);
    else if (report.kind === "gone") gone.resolve(report.cause);
    else if (report.kind === "ended") ended.resolve();
    else sawActivity = true;
  });
  root.order(rank, { kind: "start", isolate, boot }, transfer);
  const order = (kind: "close" | "kill" | "abandon") => root.order(rank, { kind, isolate });
  return {
    send: (frame, transfer) => root.order(rank, { kind: "frame", isolate, frame }, transfer),
    close: () => order("close"),
    kill: () => order("kill"),
    abandon: () => order("abandon"),
    gone: gone.promise,
    ended: ended.promise,
    isAlive() {
      const did = sawActivity;
      sawActivity = false;
      return did;
    },
  };
}
