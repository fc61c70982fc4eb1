/**
 * The transport of MPI: isolates on the ranks of a job, reached over its network.
 *
 * @module
 */

import type { OpenTransport, RemoteIsolate, StartRequest, Transport } from "../transport.ts";
import type { GroupRanks } from "./collectives/column_rounds.ts";
import type { Job } from "./job.ts";

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
  let hasStirred = true;
  const isolate = root.enlist((report) => {
    if (report.kind === "frame") receive(report.frame);
    else if (report.kind === "gone") gone.resolve(report.cause);
    else if (report.kind === "ended") ended.resolve();
    else hasStirred = true;
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
    stirs() {
      const did = hasStirred;
      hasStirred = false;
      return did;
    },
  };
}
