/**
 * What binds a rank to `troupe launch`, which started it: it tells that it is alive, hears when it is
 * to end, and ends when its launcher is gone.
 *
 * @module
 */

/** What the launch writes to rank 0 when the job is to end in good order. */
export const END_REQUEST = "end\n";

/** Where a rank stands: MPI is being opened, is open, is being closed, is closed. */
type Phase = "joining" | "joined" | "leaving" | "left";

/** What a rank tells. */
export interface Liveness {
  readonly rank: number;
  readonly pid: number;
  readonly host: string;
  readonly phase: Phase;
}

/** Marks such lines: a control character, which no text of Troupe contains. */
const MARK = "\x16";

/** A sign as a line, so short that no other gets into it. */
const encodeLiveness = (sign: Liveness): string => `${MARK}${JSON.stringify(sign)}\n`;

/** Tells where this process stands. */
export function writeLiveness(sign: Pick<Liveness, "rank" | "phase">): void {
  const text = encodeLiveness({ ...sign, pid: Deno.pid, host: Deno.hostname() });
  try {
    Deno.stderr.writeSync(new TextEncoder().encode(text));
  } catch {
    // Nobody listens any more: the launcher is gone, or will be.
  }
}

/** The sign that a line is, if it is one. */
export function decodeLiveness(line: string): Liveness | undefined {
  if (!line.startsWith(MARK)) return undefined;
  try {
    return JSON.parse(line.slice(MARK.length));
  } catch {
    return undefined; // torn in two
  }
}

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
      writeLiveness({ rank, phase: "left" });
    },
  };
}

/** What the worker must know. */
export interface WatchOrders {
  readonly rank: number;
  readonly phase: Phase;
}
