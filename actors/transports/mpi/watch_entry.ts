/**
 * The worker that binds a rank to its launch.
 *
 * [Note: no orphans] Launchers of MPI end all ranks when one dies, but what starts them on a host may
 * be killed itself: ranks of a proxy of MPICH's hydra then go on as orphans, as do those of any that
 * have not opened MPI yet. So each rank looks who its parent is, and ends when it has got another one.
 * The launch itself holds the standard input of rank 0, which comes to its end with it however it
 * ends; rank 0 ends then, and MPI ends the others.
 *
 * @module
 */

import { END_REQUEST, type WatchOrders, writeLiveness } from "./launch_watch.ts";

interface WatchScope {
  onmessage: (event: MessageEvent<WatchOrders>) => void;
}

/** Milliseconds from one sign of life to the next, and from one look at the parent. */
const BEAT_MS = 500;

const end = () => Deno.kill(Deno.pid, "SIGKILL");
const parent = Deno.ppid;
let now: WatchOrders | undefined;

/** Waits for the word of the launcher; its end is that of the input. */
async function obey(): Promise<void> {
  const bytes = new Uint8Array(END_REQUEST.length);
  for (;;) {
    const count = await Deno.stdin.read(bytes).catch(() => null);
    if (count === null) return end();
    // As if Ctrl-C had been pressed here, so that scripts of one's own need nothing new.
    Deno.kill(Deno.pid, "SIGINT");
  }
}

(globalThis as unknown as WatchScope).onmessage = ({ data }) => {
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
