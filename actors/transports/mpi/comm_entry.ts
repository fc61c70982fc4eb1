/**
 * The communication worker of a rank, the only thread that calls MPI, so that transfers continue
 * while other threads compute.
 *
 * It carries packets between the isolates of its rank, which are connected to it by ports, and the
 * isolates of other ranks.
 *
 * @module
 */

import { decodeFrame, encodeFrame } from "../codec.ts";
import { PortChannel } from "../ports.ts";
import type { WorkerScope } from "../serve.ts";
import { JobRefusal, type Mpi, type MpiOptions, openMpi } from "./library.ts";
import { Outgoing, receivePackets } from "./link.ts";
import { exchangeNotifiers, ownNetworks } from "./networks.ts";
import { ColumnSums, type GroupRanks, type SumFrame, Transfers } from "./transfers.ts";
import {
  type Address,
  compareFacts,
  type JobFacts,
  movedOf,
  type Packet,
  type PeerFrame,
} from "./wire.ts";

/** Orders to the worker; `open` is the first one. */
export type CommOrder =
  | {
    readonly kind: "open";
    readonly mpi: MpiOptions;
    readonly on: string | undefined;
    readonly facts: JobFacts;
  }
  /** Connects an isolate of this rank by its port. */
  | { readonly kind: "join"; readonly isolate: number; readonly port: MessagePort }
  /** An isolate has ended: its waiting packets are sent, then its port is closed. */
  | { readonly kind: "leave"; readonly isolate: number }
  /** Isolates of these ranks will add arrays; every rank gets this order. */
  | { readonly kind: "group"; readonly groups: readonly GroupRanks[] }
  /** Finalizes MPI; every rank gets this order. */
  | { readonly kind: "close" };

/** Reports of the worker. */
export type CommReport =
  | { readonly kind: "opened" } & Pick<Mpi, "rank" | "size" | "version">
  | { readonly kind: "left"; readonly isolate: number }
  | { readonly kind: "failed"; readonly message: string }
  /** No rank can join the job; `closed` follows. */
  | { readonly kind: "refused"; readonly message: string }
  /** All packets are sent, and MPI is being finalized. */
  | { readonly kind: "closing" }
  | { readonly kind: "closed" };

const scope = globalThis as unknown as WorkerScope<CommOrder, CommReport>;
const tell = (report: CommReport) => scope.postMessage(report);
const failed = ({ message }: Error) => tell({ kind: "failed", message });

/** Opens the ports of this rank's isolates; `route` carries packets to other isolates. */
function openPorts(route: (packet: Packet) => void, sums: ColumnSums) {
  const ports = new Map<number, PortChannel>();
  /** Packets for isolates that have not joined yet. */
  const early = new Map<number, Packet[]>();
  /** Receivers of each isolate's packets; empty for an isolate that has left. */
  const peers = new Map<number, Map<string, Address>>();
  const sendEnd = (from: number, to: Address) => {
    const end: PeerFrame = { kind: "end", from };
    route({ to, ...encodeFrame(end, []) });
  };
  const deliver = (packet: Packet) => {
    const { isolate } = packet.to, port = ports.get(isolate);
    if (port) return port.send(packet, movedOf(packet));
    if (!peers.has(isolate)) {
      early.set(isolate, [...early.get(isolate) ?? [], packet]);
      return;
    }
    // The isolate has left: a receiver that has just connected waits for its end.
    const frame = decodeFrame(packet.body, packet.buffers.map(({ buffer }) => buffer)) as PeerFrame;
    if (frame.kind === "connected") sendEnd(isolate, frame.from);
  };
  return {
    deliver,
    join(isolate: number, port: MessagePort) {
      const sentTo = new Map<string, Address>();
      const channel = new PortChannel(port, (frame) => {
        if ("addend" in (frame as object)) {
          const { nth, addend } = frame as SumFrame;
          return sums.add(addend, (values) => {
            const summed: SumFrame = { nth, addend: { ...addend, values } };
            ports.get(isolate)?.send(summed, [values.buffer]);
          });
        }
        const packet = frame as Packet, { to } = packet;
        sentTo.set(`${to.rank} ${to.isolate}`, to);
        route(packet);
      });
      ports.set(isolate, channel);
      peers.set(isolate, sentTo);
      for (const packet of early.get(isolate) ?? []) deliver(packet);
      early.delete(isolate);
      channel.listen();
    },
    async leave(isolate: number) {
      const channel = ports.get(isolate);
      await channel?.settle();
      channel?.close();
      ports.delete(isolate);
      for (const to of peers.get(isolate)?.values() ?? []) sendEnd(isolate, to);
      peers.set(isolate, new Map());
    },
    drain() {
      for (const channel of ports.values()) channel.drain();
    },
  };
}

function open({ mpi: options, on, facts }: Extract<CommOrder, { kind: "open" }>) {
  const mpi = openMpi(options), transfers = new Transfers(mpi, failed);
  const parts = opened = { mpi, transfers };
  const sums = new ColumnSums(mpi, transfers), links = new Map<number, Outgoing>();
  const linkTo = (rank: number) =>
    links.getOrInsertComputed(rank, () => new Outgoing(parts, rank, doors.connect(rank), failed));
  const route = (packet: Packet) => {
    if (packet.to.rank === mpi.rank) ports.deliver(packet);
    else linkTo(packet.to.rank).send(packet);
  };
  const ports = openPorts(route, sums);
  const ring = (conn: Deno.Conn, rank: number) =>
    void receivePackets(parts, mpi.rank, rank, conn, ports.deliver).catch(failed);
  compareFacts(mpi, { ...facts, "MPI's library": mpi.version });
  const doors = exchangeNotifiers(mpi, ownNetworks(on), ring);
  tell({ kind: "opened", rank: mpi.rank, size: mpi.size, version: mpi.version });
  return {
    join: ({ isolate, port }: Extract<CommOrder, { kind: "join" }>) => ports.join(isolate, port),
    async leave({ isolate }: Extract<CommOrder, { kind: "leave" }>) {
      await ports.leave(isolate);
      tell({ kind: "left", isolate });
    },
    group: ({ groups }: Extract<CommOrder, { kind: "group" }>) => sums.open(groups).catch(failed),
    async close() {
      ports.drain();
      await sums.close();
      for (const link of links.values()) await link.finish();
      await transfers.settled();
      // No rank may finalize MPI while another rank still sends to it.
      await transfers.end(mpi.barrier());
      doors.close();
      finalize();
    },
  };
}

let opened: { readonly mpi: Mpi; readonly transfers: Transfers } | undefined;
let comm: ReturnType<typeof open> | undefined;

/** Finalizes MPI, if it was initialized. */
function finalize(): void {
  if (opened) {
    opened.transfers.close();
    tell({ kind: "closing" });
    opened.mpi.finalize();
  }
  tell({ kind: "closed" });
}

scope.onmessage = ({ data }) => {
  try {
    if (data.kind === "open") comm = open(data);
    else void comm![data.kind](data as never);
  } catch (error) {
    if (!(error instanceof JobRefusal)) return failed(error as Error);
    // All ranks refuse together, so they can finalize MPI, as launchers require.
    tell({ kind: "refused", message: error.message });
    finalize();
  }
};
