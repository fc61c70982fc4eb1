/**
 * Isolates of another process: its agent starts them in threads for the root, forwards frames
 * between root and isolates, and reports when an isolate ends.
 *
 * @module
 */

import { deadline } from "@std/async/deadline";
import { isCloneError } from "../runtime/observer.ts";
import type { OpenTransport, RemoteIsolate, StartRequest } from "../runtime/transport.ts";

/** An order from the root to an agent. */
export type AgentOrder =
  | { readonly kind: "start"; readonly isolate: number; readonly boot: unknown }
  | { readonly kind: "frame"; readonly isolate: number; readonly frame: unknown }
  | { readonly kind: "close" | "kill" | "abandon"; readonly isolate: number };

/** A report from an agent to the root. */
export type AgentReport =
  | { readonly kind: "frame"; readonly isolate: number; readonly frame: unknown }
  | { readonly kind: "gone"; readonly isolate: number; readonly cause: string }
  | { readonly kind: "ended"; readonly isolate: number }
  /** The isolate has been active. */
  | { readonly kind: "alive"; readonly isolate: number };

/** Minimum milliseconds between two activity checks. */
const LOOK_MS = 250;

/** Milliseconds that the end of an agent waits for a thread in an endless loop. */
const CLOSE_MS = 1000;

/** Options of an {@linkcode Agent}. */
interface AgentOptions {
  /** Sends a report to the root. */
  readonly tell: (report: AgentReport) => void;
  /** Resolves when all frames of a gone isolate are on their way. */
  readonly leave?: (isolate: number) => Promise<void>;
  /** Processes that report to the same root. */
  readonly size?: number;
}

/** Manages the isolates of a process. */
export class Agent {
  readonly #isolates = new Map<number, RemoteIsolate>();
  #timer: ReturnType<typeof setInterval> | undefined;

  /** @param workers starts the threads. */
  constructor(private readonly workers: OpenTransport, private readonly options: AgentOptions) {}

  /**
   * Executes an order from the root.
   *
   * @param transfer buffers that move, if the root is in this process.
   */
  receive(order: AgentOrder, transfer: readonly Transferable[] = []): void {
    if (order.kind === "start") return this.#start(order.isolate, order.boot, transfer);
    const isolate = this.#isolates.get(order.isolate);
    if (order.kind === "frame") isolate?.send(order.frame, transfer);
    else isolate?.[order.kind]?.();
  }

  /** Receives all pending frames of its isolates. */
  drain(): void {
    this.workers.drain?.();
  }

  /** Kills all isolates; waits until they have ended, or a second if they do not. */
  async close(): Promise<void> {
    const isolates = [...this.#isolates.values()];
    for (const isolate of isolates) isolate.kill();
    const ended = Promise.all(isolates.map(({ ended }) => ended));
    await deadline(ended, CLOSE_MS).catch(() => {});
  }

  #start(number: number, boot: unknown, transfer: readonly Transferable[]): void {
    const refused = Promise.withResolvers<string>();
    const isolate = this.workers.start({
      isolate: number,
      memoryLimitMb: undefined,
      boot,
      transfer: transfer as readonly ArrayBuffer[],
      receive: (frame) => {
        try {
          this.options.tell({ kind: "frame", isolate: number, frame });
        } catch (error) {
          // Not every value that leaves a thread can leave its process.
          if (!isCloneError(error)) throw error;
          refused.resolve(`it has sent a message that cannot leave its process: ${error.message}`);
          isolate.kill();
        }
      },
    });
    this.#isolates.set(number, isolate);
    // With many processes the root gets at most about a thousand reports per second.
    const lookMs = Math.max(LOOK_MS, this.options.size ?? 1);
    this.#timer ??= setInterval(() => this.#look(), lookMs);
    this.#await(number, isolate, refused.promise);
  }

  async #await(
    number: number,
    { gone, ended }: RemoteIsolate,
    refused: Promise<string>,
  ): Promise<void> {
    const cause = await Promise.race([refused, gone]);
    // Frames to other isolates are on their way before any isolate learns that this one is gone.
    await this.options.leave?.(number);
    this.options.tell({ kind: "gone", isolate: number, cause });
    await ended;
    this.#isolates.delete(number);
    if (this.#isolates.size === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
    this.options.tell({ kind: "ended", isolate: number });
  }

  #look(): void {
    for (const [isolate, one] of this.#isolates) {
      if (one.isAlive?.()) this.options.tell({ kind: "alive", isolate });
    }
  }
}

/** The isolates that a root has started by agents. */
export class Enlisted {
  readonly #handlers = new Map<number, (report: AgentReport) => void>();
  #count = 0;

  /** Starts an isolate by an agent, to which `order` sends an order. */
  start(
    order: (order: AgentOrder, transfer?: readonly Transferable[]) => void,
    { boot, transfer, receive }: Pick<StartRequest, "boot" | "transfer" | "receive">,
  ): RemoteIsolate & { readonly number: number } {
    const gone = Promise.withResolvers<string>(), ended = Promise.withResolvers<void>();
    const isolate = ++this.#count;
    let sawActivity = true;
    this.#handlers.set(isolate, (report) => {
      if (report.kind === "frame") receive(report.frame);
      else if (report.kind === "gone") gone.resolve(report.cause);
      else if (report.kind === "ended") ended.resolve();
      else sawActivity = true;
    });
    order({ kind: "start", isolate, boot }, transfer);
    return {
      number: isolate,
      send: (frame, transfer) => order({ kind: "frame", isolate, frame }, transfer),
      close: () => order({ kind: "close", isolate }),
      kill: () => order({ kind: "kill", isolate }),
      abandon: () => order({ kind: "abandon", isolate }),
      gone: gone.promise,
      ended: ended.promise,
      isAlive() {
        const did = sawActivity;
        sawActivity = false;
        return did;
      },
    };
  }

  /** Passes a report to the handler of its isolate. */
  report(one: AgentReport): void {
    this.#handlers.get(one.isolate)?.(one);
    if (one.kind === "ended") this.#handlers.delete(one.isolate);
  }
}
