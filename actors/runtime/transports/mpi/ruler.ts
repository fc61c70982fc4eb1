/**
 * The ruler of a rank: it starts isolates as the root asks, each in a thread of this process, passes
 * on what root and isolate say, and tells the root how each has ended.
 *
 * [Note: ranks and isolates] Ranks are there from the beginning and to the end; isolates come and go
 * on them. So an isolate that does not stop can be ended without its rank.
 *
 * @module
 */

import type { OpenTransport, RemoteIsolate } from "../transport.ts";
import { openWorkers } from "../worker/worker.ts";
import type { GroupRanks } from "./collectives/column_rounds.ts";
import type { Comm } from "./comm.ts";
import type { RankOrders } from "./entry.ts";

/** What the root asks of the ruler of a rank. */
export type RulerOrder =
  | { readonly kind: "start"; readonly isolate: number; readonly boot: unknown }
  | { readonly kind: "frame"; readonly isolate: number; readonly frame: unknown }
  | { readonly kind: "close" | "kill" | "abandon"; readonly isolate: number }
  /** Isolates on these ranks are about to add arrays. */
  | { readonly kind: "group"; readonly groups: readonly GroupRanks[] };

/** What it tells the root. */
export type RulerReport =
  | { readonly kind: "frame"; readonly isolate: number; readonly frame: unknown }
  | { readonly kind: "gone"; readonly isolate: number; readonly cause: string }
  | { readonly kind: "ended"; readonly isolate: number }
  /** It has been at work. */
  | { readonly kind: "stirred"; readonly isolate: number };

/** How often it looks who is at work, in milliseconds, unless ranks are so many that rank 0 would
 * hear of it more than a thousand times a second. */
const LOOK_MS = 250;

/** Rules the isolates of a rank. */
export class Ruler {
  readonly #comm: Comm;
  readonly #tell: (report: RulerReport) => void;
  readonly #workers: OpenTransport;
  readonly #isolates = new Map<number, RemoteIsolate>();
  #timer: ReturnType<typeof setInterval> | undefined;

  /** @param tell sends a report to the root. */
  constructor(comm: Comm, tell: (report: RulerReport) => void) {
    this.#comm = comm;
    this.#tell = tell;
    this.#workers = openWorkers({
      module: new URL("./entry.ts", import.meta.url),
      more: (isolate) => {
        const port = comm.join(isolate);
        const value: RankOrders = { own: { rank: comm.rank, isolate }, port };
        return { value, transfer: [port] };
      },
    });
  }

  /**
   * Does what the root asks.
   *
   * @param transfer buffers that move, where the root is in this process.
   */
  receive(order: RulerOrder, transfer: readonly Transferable[] = []): void {
    if (order.kind === "group") return this.#comm.group(order.groups);
    if (order.kind === "start") return this.#start(order.isolate, order.boot, transfer);
    const isolate = this.#isolates.get(order.isolate);
    if (order.kind === "frame") isolate?.send(order.frame, transfer);
    else isolate?.[order.kind]?.();
  }

  /** Receives what its isolates have sent by now. */
  drain(): void {
    this.#workers.drain?.();
  }

  #start(number: number, boot: unknown, transfer: readonly Transferable[]): void {
    const isolate = this.#workers.start({
      isolate: number,
      memoryLimitMb: undefined,
      boot,
      transfer: transfer as readonly ArrayBuffer[],
      receive: (frame) => this.#tell({ kind: "frame", isolate: number, frame }),
    });
    this.#isolates.set(number, isolate);
    this.#timer ??= setInterval(() => this.#look(), Math.max(LOOK_MS, this.#comm.size));
    this.#await(number, isolate);
  }

  async #await(number: number, { gone, ended }: RemoteIsolate): Promise<void> {
    const cause = await gone;
    // What it had sent to others is on its way before anybody hears that it is gone.
    await this.#comm.leave(number);
    this.#tell({ kind: "gone", isolate: number, cause });
    await ended;
    this.#isolates.delete(number);
    if (this.#isolates.size === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
    this.#tell({ kind: "ended", isolate: number });
  }

  #look(): void {
    for (const [isolate, one] of this.#isolates) {
      if (one.stirs?.()) this.#tell({ kind: "stirred", isolate });
    }
  }
}
