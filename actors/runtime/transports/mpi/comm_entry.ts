/**
 * The communication worker of a rank: the thread that alone calls MPI, so that transfers go on
 * whatever the other threads compute.
 *
 * It carries parcels between the isolates of its rank, each of which has a port to it, and those of
 * other ranks.
 *
 * @module
 */

import { PortChannel } from "../worker/port_channel.ts";
import { decodeFrame, encodeFrame } from "../codec/codec.ts";
import { type Address, movedOf, type Parcel } from "./addresses.ts";
import { exchangeDoors } from "./doorbell/exchange_doors.ts";
import { ownNetworks } from "./doorbell/own_networks.ts";
import { JobRefusal } from "./job_refusal.ts";
import { openOutgoing, type Outgoing, receiveParcels } from "./link.ts";
import { type Mpi, type MpiOptions, openMpi } from "./mpi.ts";
import type { PeerFrame } from "./peer_frames.ts";
import { openProgress } from "./progress.ts";

/** What the worker is told, in this order: one `open`, then the others. */
export type CommOrder =
  | { readonly kind: "open"; readonly mpi: MpiOptions; readonly on: string | undefined }
  /** An isolate of this rank, and its port. */
  | { readonly kind: "join"; readonly isolate: number; readonly port: MessagePort }
  /** It has ended: what it had sent is sent, and then nothing more comes from its port. */
  | { readonly kind: "leave"; readonly isolate: number }
  /** Every rank is to close. */
  | { readonly kind: "close" };

/** What the worker tells. */
export type CommReport =
  | {
    readonly kind: "opened";
    readonly rank: number;
    readonly size: number;
    readonly version: string;
  }
  | { readonly kind: "left"; readonly isolate: number }
  | { readonly kind: "failed"; readonly message: string; readonly isRefusal: boolean }
  | { readonly kind: "closed" };

interface CommScope {
  onmessage: (event: MessageEvent<CommOrder>) => void;
  postMessage(report: CommReport): void;
}

const scope = globalThis as unknown as CommScope;
const tell = (report: CommReport) => scope.postMessage(report);
const failed = (error: Error) =>
  tell({ kind: "failed", message: error.message, isRefusal: error instanceof JobRefusal });

function open({ mpi: options, on }: Extract<CommOrder, { kind: "open" }>) {
  const mpi = openMpi(options), progress = openProgress(mpi, failed), parts = { mpi, progress };
  const ports = new Map<number, PortChannel>(), links = new Map<number, Outgoing>();
  /** What has come for isolates that have no port yet. */
  const early = new Map<number, Parcel[]>();
  /** To whom each isolate has sent; of one that has left, nobody. */
  const peers = new Map<number, Map<string, Address>>();
  const deliver = (parcel: Parcel) => {
    const { isolate } = parcel.to, port = ports.get(isolate);
    if (port) return port.send(parcel, movedOf(parcel));
    if (!peers.has(isolate)) {
      early.set(isolate, [...early.get(isolate) ?? [], parcel]);
      return;
    }
    // It has left: who has just connected to it waits for its end.
    const frame = decodeFrame(parcel.body, parcel.buffers.map(({ buffer }) => buffer)) as PeerFrame;
    if (frame.kind === "connected") sendEnd(isolate, frame.from);
  };
  const sendEnd = (from: number, to: Address) => {
    const end: PeerFrame = { kind: "end", from };
    route({ to, ...encodeFrame(end, []) });
  };
  const ring = (conn: Deno.Conn, rank: number) =>
    void receiveParcels(parts, mpi.rank, rank, conn, deliver).catch(failed);
  const doors = orderly(mpi, () => exchangeDoors(mpi, ownNetworks(on), ring));
  const linkTo = (rank: number) => {
    const link = links.get(rank) ?? openOutgoing(parts, rank, doors.connect(rank), failed);
    links.set(rank, link);
    return link;
  };
  const route = (parcel: Parcel) => {
    if (parcel.to.rank === mpi.rank) deliver(parcel);
    else linkTo(parcel.to.rank).send(parcel);
  };
  tell({ kind: "opened", rank: mpi.rank, size: mpi.size, version: mpi.version });
  return {
    join({ isolate, port }: Extract<CommOrder, { kind: "join" }>) {
      const sentTo = new Map<string, Address>();
      const channel = new PortChannel(port, (parcel) => {
        const { to } = parcel as Parcel;
        sentTo.set(`${to.rank} ${to.isolate}`, to);
        route(parcel as Parcel);
      });
      ports.set(isolate, channel);
      peers.set(isolate, sentTo);
      for (const parcel of early.get(isolate) ?? []) deliver(parcel);
      early.delete(isolate);
      channel.listen();
    },
    async leave({ isolate }: Extract<CommOrder, { kind: "leave" }>) {
      const channel = ports.get(isolate);
      await channel?.settle();
      channel?.close();
      ports.delete(isolate);
      for (const to of peers.get(isolate)?.values() ?? []) sendEnd(isolate, to);
      peers.set(isolate, new Map());
      tell({ kind: "left", isolate });
    },
    async close() {
      for (const channel of ports.values()) channel.drain();
      for (const link of links.values()) await link.finish();
      await progress.settled();
      doors.close();
      mpi.finalize();
      tell({ kind: "closed" });
    },
  };
}

/** What refuses all ranks lets all of them close MPI, as launchers want it. */
function orderly<T>(mpi: Mpi, join: () => T): T {
  try {
    return join();
  } catch (error) {
    if (error instanceof JobRefusal) mpi.finalize();
    throw error;
  }
}

let comm: ReturnType<typeof open> | undefined;

scope.onmessage = ({ data }) => {
  try {
    if (data.kind === "open") comm = open(data);
    else void comm![data.kind](data as never);
  } catch (error) {
    failed(error as Error);
  }
};
