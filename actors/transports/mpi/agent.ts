/**
 * The agent of a rank, and the connections between isolates of different ranks.
 *
 * [Note: ranks and isolates] Ranks exist from the start to the end of a job; isolates are started
 * and ended on them. So an isolate that does not stop can be ended without its rank.
 *
 * @module
 */

import type { PeerSender } from "../../runtime/transport.ts";
import { Agent, type AgentOrder, type AgentReport } from "../agent.ts";
import type { WorkerConnector } from "../ports.ts";
import { openWorkers } from "../worker.ts";
import { type Comm, openFrames } from "./comm.ts";

import type { GroupRanks } from "./transfers.ts";
import type { Address, InvitationAddress, PeerFrame } from "./wire.ts";

/** Connects an isolate to others of its job. */
export function openMpiConnector({ own, port }: RankOrders): WorkerConnector {
  const invited: ((sender: PeerSender) => void)[] = [];
  /** Receiving ends, by the isolate number of the sender. */
  const receiving = new Map<number, (heard: Exclude<PeerFrame, { kind: "connected" }>) => void>();
  const frames = openFrames(port, (frame) => {
    const heard = frame as PeerFrame;
    if (heard.kind === "connected") invited[heard.invitation]?.(senderTo(heard.from));
    else receiving.get(heard.from)?.(heard);
  });
  const send = (to: Address, frame: PeerFrame, transfer: readonly Transferable[] = []) =>
    frames.send(to, frame, transfer);
  const senderTo = (to: Address): PeerSender => ({
    send: (frame, transfer) => send(to, { kind: "frame", from: own.isolate, frame }, transfer),
    finish: () => Promise.resolve(),
    close: () => send(to, { kind: "end", from: own.isolate }),
  });
  return {
    collectives: frames,
    drain: () => frames.drain(),
    invite(_, connected) {
      const invitation = invited.push(connected) - 1;
      const address: InvitationAddress = { ...own, invitation };
      return { address, transfer: [] };
    },
    connect(_, address, receive) {
      const to = address as InvitationAddress, { isolate, invitation } = to;
      const ended = Promise.withResolvers<void>(), early: unknown[] = [];
      let isHeard: boolean | undefined;
      receiving.set(isolate, (heard) => {
        if (heard.kind === "end") ended.resolve();
        else if (isHeard) receive(heard.frame);
        else if (isHeard === undefined) early.push(heard.frame);
      });
      send(to, { kind: "connected", from: own, invitation });
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
        close() {
          hear(false);
          receiving.delete(isolate);
        },
      };
    },
  };
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
