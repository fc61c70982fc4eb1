/**
 * The agent of a rank: starts isolates for the root, each in a thread of this process, forwards
 * frames between root and isolates, and reports when an isolate ends.
 *
 * [Note: ranks and isolates] Ranks exist from the start to the end of a job; isolates are started
 * and ended on them. So an isolate that does not stop can be ended without its rank.
 *
 * @module
 */

import type {
  Collectives,
  Invitation,
  OpenTransport,
  PeerConnector,
  PeerReceiver,
  PeerSender,
  RemoteIsolate,
} from "../../runtime/transport.ts";
import { openWorkers } from "../worker.ts";
import { type Comm, type FrameChannel, openFrames } from "./comm.ts";

import type { GroupRanks } from "./transfers.ts";
import type { Address, InvitationAddress, PeerFrame } from "./wire.ts";

/** The receiving end of a connection. */
interface Receiving {
  readonly receive: (frame: unknown) => void;
  readonly early: unknown[];
  isHeard: boolean | undefined;
  readonly ended: PromiseWithResolvers<void>;
}

/** Connects an isolate to others of its job. */
export class MpiConnector implements PeerConnector {
  readonly #own: Address;
  readonly #frames: FrameChannel;
  readonly #invited: ((sender: PeerSender) => void)[] = [];
  /** Receiving ends, by the isolate number of the sender. */
  readonly #receiving = new Map<number, Receiving>();

  /**
   * @param own the address of this isolate.
   * @param port its port to the communication worker of its rank.
   */
  constructor(own: Address, port: MessagePort) {
    this.#own = own;
    this.#frames = openFrames(port, (frame) => this.#hear(frame as PeerFrame));
  }

  /** Sums over the ranks of a column. */
  get collectives(): Collectives {
    return this.#frames;
  }

  /** Receives all pending frames. */
  drain(): void {
    this.#frames.drain();
  }

  invite(_: number, connected: (sender: PeerSender) => void): Invitation {
    const invitation = this.#invited.push(connected) - 1;
    const address: InvitationAddress = { ...this.#own, invitation };
    return { address, transfer: [] };
  }

  connect(_: number, address: unknown, receive: (frame: unknown) => void): PeerReceiver {
    const to = address as InvitationAddress, { isolate, invitation } = to;
    const one: Receiving = {
      receive,
      early: [],
      isHeard: undefined,
      ended: Promise.withResolvers(),
    };
    this.#receiving.set(isolate, one);
    this.#send(to, { kind: "connected", from: this.#own, invitation });
    const hear = (isHeard: boolean) => {
      one.isHeard ??= isHeard;
      for (const frame of one.early.splice(0)) if (one.isHeard) receive(frame);
    };
    return {
      listen: () => hear(true),
      settle() {
        hear(false);
        return one.ended.promise;
      },
      close: () => {
        hear(false);
        this.#receiving.delete(isolate);
      },
    };
  }

  #send(to: Address, frame: PeerFrame, transfer: readonly Transferable[] = []): void {
    this.#frames.send(to, frame, transfer);
  }

  #hear(heard: PeerFrame): void {
    if (heard.kind === "connected") {
      return this.#invited[heard.invitation]?.(this.#senderTo(heard.from));
    }
    const one = this.#receiving.get(heard.from);
    if (heard.kind === "end") one?.ended.resolve();
    else if (one?.isHeard) one.receive(heard.frame);
    else if (one?.isHeard === undefined) one?.early.push(heard.frame);
  }

  #senderTo(to: Address): PeerSender {
    const from = this.#own.isolate;
    return {
      send: (frame, transfer) => this.#send(to, { kind: "frame", from, frame }, transfer),
      finish: () => Promise.resolve(),
      close: () => this.#send(to, { kind: "end", from }),
    };
  }
}

/** An order from the root to the agent of a rank. */
export type AgentOrder =
  | { readonly kind: "start"; readonly isolate: number; readonly boot: unknown }
  | { readonly kind: "frame"; readonly isolate: number; readonly frame: unknown }
  | { readonly kind: "close" | "kill" | "abandon"; readonly isolate: number }
  /** Isolates on these ranks will add arrays. */
  | { readonly kind: "group"; readonly groups: readonly GroupRanks[] };

/** A report from an agent to the root. */
export type AgentReport =
  | { readonly kind: "frame"; readonly isolate: number; readonly frame: unknown }
  | { readonly kind: "gone"; readonly isolate: number; readonly cause: string }
  | { readonly kind: "ended"; readonly isolate: number }
  /** The isolate has been active. */
  | { readonly kind: "alive"; readonly isolate: number };

/**
 * Minimum milliseconds between two activity checks. With many ranks the interval is longer, so that
 * rank 0 gets at most about a thousand reports per second.
 */
const LOOK_MS = 250;

/** Manages the isolates of a rank. */
export class RankAgent {
  readonly #comm: Comm;
  readonly #tell: (report: AgentReport) => void;
  readonly #workers: OpenTransport;
  readonly #isolates = new Map<number, RemoteIsolate>();
  #timer: ReturnType<typeof setInterval> | undefined;

  /** @param tell sends a report to the root. */
  constructor(comm: Comm, tell: (report: AgentReport) => void) {
    this.#comm = comm;
    this.#tell = tell;
    this.#workers = openWorkers({
      module: new URL("./rank_entry.ts", import.meta.url),
      more: (isolate) => {
        const port = comm.join(isolate);
        const value: RankOrders = { own: { rank: comm.rank, isolate }, port };
        return { value, transfer: [port] };
      },
    });
  }

  /**
   * Executes an order from the root.
   *
   * @param transfer buffers that move, if the root is in this process.
   */
  receive(order: AgentOrder, transfer: readonly Transferable[] = []): void {
    if (order.kind === "group") return this.#comm.group(order.groups);
    if (order.kind === "start") return this.#start(order.isolate, order.boot, transfer);
    const isolate = this.#isolates.get(order.isolate);
    if (order.kind === "frame") isolate?.send(order.frame, transfer);
    else isolate?.[order.kind]?.();
  }

  /** Receives all pending frames of its isolates. */
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
    // Frames to other isolates are on their way before any isolate learns that this one is gone.
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
      if (one.isAlive?.()) this.#tell({ kind: "alive", isolate });
    }
  }
}

/** Data that the worker of an isolate needs. */
export interface RankOrders {
  /** The address of this isolate. */
  readonly own: Address;
  /** Its port to the communication worker. */
  readonly port: MessagePort;
}
