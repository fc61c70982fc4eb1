/**
 * The link from one rank to another: parcels in order.
 *
 * [Note: doorbells] MPI tells nobody that a message has come: who waits for one must ask again and
 * again, which takes a core. So a parcel is announced over a TCP connection, the doorbell, together
 * with all of it that is small; what is large goes by MPI, and the receiver, who has just been told
 * its size, posts a receive that fits exactly. Both are in order, so one tag is enough.
 *
 * @module
 */

import { Ring } from "../../mailbox/ring.ts";
import { keepSpare, takeSpare } from "../stream/spares.ts";
import type { Parcel } from "./addresses.ts";
import type { Mpi } from "./mpi.ts";
import type { Progress } from "./progress.ts";

/** Buffers from this many bytes on go by MPI. */
const LARGE_BYTES = 16_384;

/** A transfer of MPI counts its bytes in 31 bits; larger buffers go in parts. */
const PART_BYTES = 2 ** 30;

/** Numbers at the beginning of an announcement: isolate, bytes of the body, count of buffers. */
const FIXED_NUMBERS = 3;
const NUMBER_BYTES = 8;

/** More than this a parcel cannot have: an announcement that says so is none. */
const MAX_BODY_BYTES = 2 ** 31;
const MAX_BUFFERS = 2 ** 20;
const MAX_BUFFER_BYTES = 2 ** 36;

/** What links are made with. */
export interface LinkParts {
  readonly mpi: Pick<Mpi, "send" | "receive">;
  readonly progress: Progress;
}

/** The sending end. */
export interface Outgoing {
  send(parcel: Parcel): void;
  /** Resolves when all is sent. */
  finish(): Promise<void>;
}

const isLarge = ({ byteLength }: Uint8Array) => byteLength >= LARGE_BYTES;

function* partsOf(bytes: Uint8Array<ArrayBuffer>) {
  for (let at = 0; at < bytes.byteLength; at += PART_BYTES) {
    yield bytes.subarray(at, Math.min(at + PART_BYTES, bytes.byteLength));
  }
}

/** Bytes one after the other: each write of a connection takes longer than to copy them. */
function joined(pieces: readonly Uint8Array<ArrayBuffer>[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(pieces.reduce((sum, { byteLength }) => sum + byteLength, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.byteLength;
  }
  return all;
}

/** Sends to `rank` over a connection that is on its way. */
export function openOutgoing(
  { mpi, progress }: LinkParts,
  rank: number,
  connection: Promise<Deno.Conn>,
  failed: (error: Error) => void,
): Outgoing {
  const pieces = new Ring<Uint8Array<ArrayBuffer>>();
  let isWriting = false, written = Promise.resolve();
  const write = async () => {
    try {
      const conn = await connection;
      for (let piece = pieces.shift(); piece; piece = pieces.shift()) {
        for (let at = 0; at < piece.length;) at += await conn.write(piece.subarray(at));
      }
    } catch (error) {
      failed(error as Error);
    }
    isWriting = false;
  };
  const sendLarge = (buffer: Uint8Array<ArrayBuffer>) => {
    const parts = [...partsOf(buffer)];
    let missing = parts.length;
    const sent = () => {
      if (--missing === 0) keepSpare(buffer.buffer);
    };
    for (const part of parts) progress.await(mpi.send(part, rank), sent);
  };
  return {
    send({ to, body, buffers }) {
      const lengths = buffers.map(({ byteLength }) => byteLength);
      const head = Float64Array.of(to.isolate, body.byteLength, buffers.length, ...lengths);
      const small = [new Uint8Array(head.buffer), body];
      for (const buffer of buffers) if (!isLarge(buffer)) small.push(buffer);
      pieces.push(joined(small));
      for (const buffer of buffers) if (isLarge(buffer)) sendLarge(buffer);
      if (isWriting) return;
      isWriting = true;
      written = write();
    },
    async finish() {
      await written;
      await progress.settled();
    },
  };
}

/** A parcel whose large buffers are on their way. */
interface Arriving {
  readonly parcel: Parcel;
  missing: number;
}

/**
 * Receives from `rank` over a connection, until that ends; `deliver` gets the parcels in order.
 *
 * @throws {RangeError} when it announces what is no parcel, before anything is allocated for it.
 */
export async function receiveParcels(
  { mpi, progress }: LinkParts,
  own: number,
  rank: number,
  conn: Deno.Conn,
  deliver: (parcel: Parcel) => void,
): Promise<void> {
  const arriving = new Ring<Arriving>();
  const deliverWhole = () => {
    for (let first = arriving.at(0); first?.missing === 0; first = arriving.at(0)) {
      arriving.shift();
      deliver(first.parcel);
    }
  };
  const read = readerOf(conn);
  for (;;) {
    const head = await read(FIXED_NUMBERS * NUMBER_BYTES);
    if (!head) return;
    const [isolate, bodyBytes, count] = new Float64Array(head.buffer) as unknown as number[];
    checkCount(rank, "isolate", isolate!, Number.MAX_SAFE_INTEGER);
    checkCount(rank, "body", bodyBytes!, MAX_BODY_BYTES);
    checkCount(rank, "count of buffers", count!, MAX_BUFFERS);
    const lengths = await read(count! * NUMBER_BYTES), body = await read(bodyBytes!);
    if (!lengths || !body) return;
    const buffers: Uint8Array<ArrayBuffer>[] = [],
      one: Arriving = {
        parcel: { to: { rank: own, isolate: isolate! }, body, buffers },
        missing: 1,
      };
    for (const length of new Float64Array(lengths.buffer)) {
      checkCount(rank, "buffer", length, MAX_BUFFER_BYTES);
      const buffer = new Uint8Array(takeSpare(length));
      buffers.push(buffer);
      if (isLarge(buffer)) {
        for (const part of partsOf(buffer)) {
          one.missing++;
          progress.await(mpi.receive(part, rank), () => {
            one.missing--;
            deliverWhole();
          });
        }
      } else if (!await read(length, buffer)) return;
    }
    one.missing--;
    arriving.push(one);
    deliverWhole();
  }
}

function checkCount(rank: number, what: string, value: number, most: number): void {
  if (Number.isInteger(value) && value >= 0 && value <= most) return;
  throw new RangeError(
    `Cannot receive from rank ${rank}: the ${what} it announces must be an integer from 0 to ${most}, received ${value}`,
  );
}

/** Reads exactly as many bytes as are asked for; undefined when the connection ends before. */
function readerOf(conn: Deno.Conn) {
  const chunk = new Uint8Array(65_536);
  let rest = chunk.subarray(0, 0);
  return async (
    byteLength: number,
    into = new Uint8Array(byteLength),
  ): Promise<Uint8Array<ArrayBuffer> | undefined> => {
    for (let filled = 0; filled < byteLength;) {
      if (rest.length === 0) {
        const count = await conn.read(chunk).catch(() => null);
        if (count === null) return undefined;
        rest = chunk.subarray(0, count);
      }
      const part = rest.subarray(0, byteLength - filled);
      into.set(part, filled);
      filled += part.length;
      rest = rest.subarray(part.length);
    }
    return into;
  };
}
