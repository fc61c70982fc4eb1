/**
 * What binds a rank to `troupe launch`, which started it: it tells that it is alive, hears when it is
 * to end, and ends when its launcher is gone.
 *
 * @module
 */

import { type Phase, writeSign } from "./sign_of_life.ts";
import type { WatchOrders } from "./watch_entry.ts";

/** Names the launch that a rank belongs to, in its environment. */
export const LAUNCH_VARIABLE = "TROUPE_LAUNCH";

/** The launch that this process belongs to, if any. */
export const launchName = (): string | undefined => Deno.env.get(LAUNCH_VARIABLE);

/** The bond of a rank. */
export type LaunchWatch = NonNullable<ReturnType<typeof watchLaunch>>;

/** Binds a rank to its launch, if it belongs to one; in a thread that no other can hold up. */
export function watchLaunch(rank: number) {
  if (launchName() === undefined) return undefined;
  const worker = new Worker(new URL("./watch_entry.ts", import.meta.url), { type: "module" });
  const tell = (orders: WatchOrders) => worker.postMessage(orders);
  tell({ rank, phase: "joining" });
  return {
    /** Where the rank stands from now on. */
    tell: (phase: Phase) => tell({ rank, phase }),
    /** MPI is closed: what the rank does from now on, and for how long, is its own. */
    close() {
      worker.terminate();
      writeSign({ rank, phase: "left" });
    },
  };
}
