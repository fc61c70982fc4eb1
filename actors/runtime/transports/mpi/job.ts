/**
 * A job: the ranks that a launcher of MPI has started, this process being one of them.
 *
 * @module
 */

import { RULER } from "./addresses.ts";
import { openComm } from "./comm.ts";
import type { Facts } from "./facts.ts";
import { isFirstOfHost, type Launched, launchedBy } from "./mpi_abi.ts";
import { Ruler, type RulerOrder, type RulerReport } from "./ruler.ts";

/** Options of {@linkcode openJob}. */
export interface JobOptions {
  /** MPI's library; by default that of the launcher, by its usual name. */
  readonly library?: string | undefined;
  /**
   * The interface on which ranks announce messages to each other: its name, its address or its
   * network, such as 10.1.0.0/16. By default 127.0.0.1 on one host; on several the one network that
   * they share.
   */
  readonly interface?: string | undefined;
  /** What all ranks must have in common, by name. Default: nothing but MPI's library. */
  readonly facts?: Facts | undefined;
  /** How long the other ranks may take to join, in milliseconds. Default 120,000. */
  readonly joinMs?: number | undefined;
}

/** The job, seen from one of its ranks. */
export interface Job {
  readonly rank: number;
  readonly size: number;
  /** MPI's library, as it calls itself. */
  readonly version: string;
  /** What rank 0 does: see {@linkcode mpiTransport}. */
  readonly root: RootSide;
  /** Rejects when the job is lost: no message reaches another rank any more. */
  readonly lost: Promise<never>;
  /** What the others do: they start isolates as rank 0 asks, until it says that the job is over. */
  serve(): Promise<void>;
}

/** What is told of one isolate. */
export type IsolateReport =
  | Exclude<RulerReport, { kind: "stirred" }>
  | { readonly kind: "stirred" };

/** The root's side of a job. */
export interface RootSide {
  /** Has the ruler of a rank do something. */
  order(rank: number, order: RulerOrder, transfer?: readonly Transferable[]): void;
  /** Gives an isolate a number that no other of the job has, and tells `report` what is said of it. */
  enlist(report: (report: IsolateReport) => void): number;
  /** Receives what has come by now. */
  drain(): void;
  /** Ends the job on all ranks. */
  close(): Promise<void>;
}

/** What the environment says. Who may not look is no rank, as a rank may do all. */
function told(variable: string): string | undefined {
  const { state } = Deno.permissions.querySync({ name: "env", variable });
  return state === "granted" ? Deno.env.get(variable) : undefined;
}

/** Whether a launcher of MPI has started this process. */
export const isLaunched = (): boolean => launchedRanks() !== undefined;

/** Whether this process says what is wrong on its host. */
export const speaksForHost = (): boolean => isFirstOfHost(told);

/** What the launcher has told this process of its place in the job. */
export const launchedRanks = (): Launched | undefined => launchedBy(told);

/**
 * Joins the job that this process is a rank of; without a launcher, a job of one rank.
 *
 * @throws {JobRefusal} when no rank can join, for one reason.
 * @throws {Error} when MPI's library cannot be loaded, or is not that of the launcher, or other ranks
 * never come.
 */
export async function openJob(options: JobOptions = {}): Promise<Job> {
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
    receive: (frame) => receive(frame),
    failed(error) {
      isLost = true;
      lost.reject(error);
    },
  });
  const enlisted = new Map<number, (report: IsolateReport) => void>();
  let isolates = RULER;
  const report = (one: RulerReport) => {
    if (one.kind === "stirred") {
      for (const isolate of one.isolates) enlisted.get(isolate)?.({ kind: "stirred" });
      return;
    }
    enlisted.get(one.isolate)?.(one);
    if (one.kind === "ended") enlisted.delete(one.isolate);
  };
  const root: RootSide = {
    order(rank, order, transfer = []) {
      if (rank === 0) obey(order, transfer);
      else comm.frames.send({ rank, isolate: RULER }, order, transfer);
    },
    enlist(report) {
      enlisted.set(++isolates, report);
      return isolates;
    },
    drain() {
      ruler.drain();
      comm.frames.drain();
    },
    async close() {
      if (isLost) return;
      for (let rank = 1; rank < comm.size; rank++) root.order(rank, { kind: "over" });
      await comm.close();
    },
  };
  const ruler = new Ruler(comm, (one) => {
    if (comm.rank === 0) report(one);
    else comm.frames.send({ rank: 0, isolate: RULER }, one, []);
  });
  const obey = (order: RulerOrder, transfer: readonly Transferable[] = []) => {
    if (order.kind === "over") over.resolve();
    else ruler.receive(order, transfer);
  };
  const receive = (frame: unknown) => {
    if (comm.rank === 0) report(frame as RulerReport);
    else obey(frame as RulerOrder);
  };
  return {
    rank: comm.rank,
    size: comm.size,
    version: comm.version,
    root,
    lost: lost.promise,
    async serve() {
      await Promise.race([over.promise, lost.promise]);
      await comm.close();
    },
  };
}
