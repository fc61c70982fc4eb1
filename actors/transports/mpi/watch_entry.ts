/**
 * The worker of the launch watch of a rank.
 *
 * [Note: no orphans] MPI launchers end all ranks when one dies, but their helper process on a host
 * may itself be killed. Ranks of MPICH's hydra proxy then continue as orphans, as do ranks that
 * have not initialized MPI yet. So each rank checks its parent process, and ends when the parent
 * changes. The launch also holds the standard input of rank 0. When the launch ends, that input
 * ends, so rank 0 ends, and MPI ends the other ranks.
 *
 * @module
 */

import type { WorkerScope } from "../serve.ts";
import { END_REQUEST, type WatchOrders, writeLiveness } from "./launch_watch.ts";

/** Milliseconds between two liveness reports, and between two checks of the parent. */
const BEAT_MS = 500;

const end = () => Deno.kill(Deno.pid, "SIGKILL");
const parent = Deno.ppid;
let now: WatchOrders | undefined;

/** Waits for the launcher's request to end, or for the end of the input. */
async function obey(): Promise<void> {
  const bytes = new Uint8Array(END_REQUEST.length);
  for (;;) {
    const count = await Deno.stdin.read(bytes).catch(() => null);
    if (count === null) return end();
    // The same signal as Ctrl-C, so user scripts need no extra handler.
    Deno.kill(Deno.pid, "SIGINT");
  }
}

(globalThis as unknown as WorkerScope<WatchOrders, never>).onmessage = ({ data }) => {
  const isFirst = now === undefined;
  now = data;
  writeLiveness(data);
  if (!isFirst) return;
  if (data.rank === 0) obey();
  setInterval(() => {
    if (Deno.ppid !== parent) end();
    if (now!.rank === 0) writeLiveness(now!);
  }, BEAT_MS);
};
