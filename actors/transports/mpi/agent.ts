/**
 * The agent of a rank, and the connections between isolates of different ranks.
 *
 * [Note: ranks and isolates] Ranks exist from the start to the end of a job; isolates are started
 * and ended on them. So an isolate that does not stop can be ended without its rank.
 *
 * @module
 */

import type {
  Collectives,
  Invitation,
  PeerConnector,
  PeerReceiver,
  PeerSender,
} from "../../runtime/transport.ts";
import { Agent, type AgentOrder, type AgentReport } from "../agent.ts";
import { openWorkers } from "../worker.ts";
import { type Comm, type FrameChannel, openFrames } from "./comm.ts";

import type { GroupRanks } from "./transfers.ts";
import type { Address, InvitationAddress, PeerFrame } from "./wire.ts";

/** Connects an isolate to others of its job. */
export class MpiConnector implements PeerConnector {
  readonly #frames: FrameChannel;
  readonly #invited: ((sender: PeerSender) => void)[] = [];
  /** Receiving ends, by the isolate number of the sender. */
  readonly #receiving = new Map<
    number,
    (heard: Exclude<PeerFrame, { kind: "connected" }>) => void
  >();

  /**
   * @param own the address of this isolate.
   * @param port its port to the communication worker of its rank.
   */
  constructor(private readonly own: Address, port: MessagePort) {
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
    const address: InvitationAddress = { ...this.own, invitation };
    return { address, transfer: [] };
  }

  connect(_: number, address: unknown, receive: (frame: unknown) => void): PeerReceiver {
    const to = address as InvitationAddress, { isolate, invitation } = to;
    const ended = Promise.withResolvers<void>(), early: unknown[] = [];
    let isHeard: boolean | undefined;
    this.#receiving.set(isolate, (heard) => {
      if (heard.kind === "end") ended.resolve();
      else if (isHeard) receive(heard.frame);
      else if (isHeard === undefined) early.push(heard.frame);
    });
    this.#send(to, { kind: "connected", from: this.own, invitation });
    const hear = (isNow: boolean) => {
      isHeard ??= isNow;
      for (const frame of early.splice(0)) if (isHeard) receive(frame);
    };
    return {
      listen: () => hear(true),
      settle() {
        hear(false);
        return ended.promise;
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
    if (heard.kind !== "connected") this.#receiving.get(heard.from)?.(heard);
    else this.#invited[heard.invitation]?.(this.#senderTo(heard.from));
  }

  #senderTo(to: Address): PeerSender {
    const from = this.own.isolate;
    return {
      send: (frame, transfer) => this.#send(to, { kind: "frame", from, frame }, transfer),
      finish: () => Promise.resolve(),
      close: () => this.#send(to, { kind: "end", from }),
    };
  }
}

/** An order from the root to the agent of a rank. */
export type RankOrder =
  | AgentOrder
  /** Isolates on these ranks will add arrays. */
  | { readonly kind: "group"; readonly groups: readonly GroupRanks[] };

/** Manages the isolates of a rank. */
export class RankAgent extends Agent {
  /** @param tell sends a report to the root. */
  constructor(private readonly comm: Comm, tell: (report: AgentReport) => void) {
    const workers = openWorkers({
      module: new URL("./rank_entry.ts", import.meta.url),
      more: (isolate) => {
        const port = comm.join(isolate);
        const value: RankOrders = { own: { rank: comm.rank, isolate }, port };
        return { value, transfer: [port] };
      },
    });
    super(workers, { tell, leave: comm.leave, size: comm.size });
  }

  override receive(order: RankOrder, transfer: readonly Transferable[] = []): void {
    if (order.kind === "group") this.comm.group(order.groups);
    else super.receive(order, transfer);
  }
}

/** Data that the worker of an isolate needs. */
export interface RankOrders {
  /** The address of this isolate. */
  readonly own: Address;
  /** Its port to the communication worker. */
  readonly port: MessagePort;
}
