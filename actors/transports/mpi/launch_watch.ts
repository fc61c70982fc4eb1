/**
 * Connects a rank to the `troupe launch` that started it: reports that the rank is alive, receives
 * requests to end, and ends the rank when its launcher has died.
 *
 * @module
 */

import { resultOr } from "../../runtime/types.ts";

/** Message from the launcher to rank 0 that requests an orderly end of the job. */
export const END_REQUEST = "end\n";

/** State of MPI in a rank: being initialized, initialized, being finalized, finalized. */
type Phase = "joining" | "joined" | "leaving" | "left";

/** A liveness report of a rank. */
export interface Liveness {
  readonly rank: number;
  readonly pid: number;
  readonly host: string;
  readonly phase: Phase;
}

/** Prefix of report lines: a control character that no text of Troupe contains. */
const MARK = "\x16";

/** Data that the worker needs. */
export type WatchOrders = Pick<Liveness, "rank" | "phase">;

/** Reports the phase of this process, in a line that is short enough to be written atomically. */
export function writeLiveness(orders: WatchOrders): void {
  const sign: Liveness = { ...orders, pid: Deno.pid, host: Deno.hostname() };
  const line = new TextEncoder().encode(`${MARK}${JSON.stringify(sign)}\n`);
  // On a failure the launcher has ended, or is about to.
  resultOr(() => Deno.stderr.writeSync(line), 0);
}

/** Returns the report in a line, if the line is one. */
export function decodeLiveness(line: string): Liveness | undefined {
  if (!line.startsWith(MARK)) return undefined;
  return resultOr(() => JSON.parse(line.slice(MARK.length)), undefined); // it may be incomplete
}

/** Environment variable with the name of the launch of a rank. */
export const LAUNCH_VARIABLE = "TROUPE_LAUNCH";

/** Returns the name of the launch of this process, if any. */
export const launchName = (): string | undefined => Deno.env.get(LAUNCH_VARIABLE);

/** The launch watch of a rank. */
export type LaunchWatch = NonNullable<ReturnType<typeof watchLaunch>>;

/**
 * Starts the launch watch of a rank, if it has a launch, in a thread that other threads cannot
 * block.
 */
export function watchLaunch(rank: number) {
  if (launchName() === undefined) return undefined;
  const worker = new Worker(new URL("./watch_entry.ts", import.meta.url), { type: "module" });
  const tell = (orders: WatchOrders) => worker.postMessage(orders);
  tell({ rank, phase: "joining" });
  return {
    /** Sets the phase of the rank. */
    tell: (phase: Phase) => tell({ rank, phase }),
    /** Ends the watch: MPI is finalized, and the launcher no longer supervises the rank. */
    close() {
      worker.terminate();
      writeLiveness({ rank, phase: "left" });
    },
  };
}
