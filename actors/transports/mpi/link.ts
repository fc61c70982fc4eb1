/**
 * The link from one rank to another: packets in order.
 *
 * [Note: doorbells] MPI tells nobody that a message has come: who waits for one must ask again and
 * again, which takes a core. So a packet is announced over a TCP connection, the doorbell, together
 * with all of it that is small; what is large goes by MPI, and the receiver, who has just been told
 * its size, posts a receive that fits exactly. Both are in order, so one tag is enough.
 *
 * @module
 */

import { Ring } from "../../runtime/mailbox.ts";
import { joined, keepSpare, takeSpare, writeAll } from "../stream.ts";
import type { Mpi } from "./library.ts";
import type { Transfers } from "./transfers.ts";
import type { Packet } from "./wire.ts";

/** Buffers from this many bytes on go by MPI. */
const LARGE_BYTES = 16_384;

/** A transfer of MPI counts its bytes in 31 bits; larger buffers go in parts. */
const PART_BYTES = 2 ** 30;

/** Numbers at the beginning of an announcement: isolate, bytes of the body, count of buffers. */
const FIXED_NUMBERS = 3;
const NUMBER_BYTES = 8;

/** More than this a packet cannot have: an announcement that says so is none. */
const MAX_BODY_BYTES = 2 ** 31;
const MAX_BUFFERS = 2 ** 20;
const MAX_BUFFER_BYTES = 2 ** 36;

/** What links are made with. */
export interface LinkParts {
  readonly mpi: Pick<Mpi, "send" | "receive">;
  readonly transfers: Transfers;
}

const isLarge = ({ byteLength }: Uint8Array) => byteLength >= LARGE_BYTES;

function* partsOf(bytes: Uint8Array<ArrayBuffer>) {
  for (let at = 0; at < bytes.byteLength; at += PART_BYTES) {
    yield bytes.subarray(at, Math.min(at + PART_BYTES, bytes.byteLength));
  }
}

/** The sending end. */
export class Outgoing {
  readonly #parts: LinkParts;
  readonly #rank: number;
  readonly #connection: Promise<Deno.Conn>;
  readonly #failed: (error: Error) => void;
  readonly #pieces = new Ring<Uint8Array<ArrayBuffer>>();
  #isWriting = false;
  #written = Promise.resolve();

  /** Sends to `rank` over a connection that is on its way. */
  constructor(
    parts: LinkParts,
    rank: number,
    connection: Promise<Deno.Conn>,
    failed: (error: Error) => void,
  ) {
    this.#parts = parts;
    this.#rank = rank;
    this.#connection = connection;
    this.#failed = failed;
  }

  /** Sends a packet. */
  send({ to, body, buffers }: Packet): void {
    const lengths = buffers.map(({ byteLength }) => byteLength);
    const head = Float64Array.of(to.isolate, body.byteLength, buffers.length, ...lengths);
    const small = buffers.filter((buffer) => !isLarge(buffer));
    this.#pieces.push(joined([new Uint8Array(head.buffer), body, ...small]));
    for (const buffer of buffers) if (isLarge(buffer)) this.#sendLarge(buffer);
    if (this.#isWriting) return;
    this.#isWriting = true;
    this.#written = this.#write();
  }

  /** Resolves when all is sent. */
  async finish(): Promise<void> {
    await this.#written;
    await this.#parts.transfers.settled();
  }

  async #write(): Promise<void> {
    try {
      const conn = await this.#connection;
      for (let piece = this.#pieces.shift(); piece; piece = this.#pieces.shift()) {
        await writeAll(conn, piece);
      }
    } catch (error) {
      this.#failed(error as Error);
    }
    this.#isWriting = false;
  }

  async #sendLarge(buffer: Uint8Array<ArrayBuffer>): Promise<void> {
    const { mpi, transfers } = this.#parts;
    await Promise.all(
      Array.from(partsOf(buffer), (part) => transfers.end(mpi.send(part, this.#rank))),
    );
    keepSpare(buffer.buffer);
  }
}

/**
 * Receives from `rank` over a connection, until that ends; `deliver` gets the packets in order.
 *
 * @throws {RangeError} when it announces what is no packet, before anything is allocated for it.
 */
export async function receivePackets(
  { mpi, transfers }: LinkParts,
  own: number,
  rank: number,
  conn: Deno.Conn,
  deliver: (packet: Packet) => void,
): Promise<void> {
  const read = readerOf(conn);
  let delivered = Promise.resolve();
  for (;;) {
    const head = await read(FIXED_NUMBERS * NUMBER_BYTES);
    if (!head) return delivered;
    const [isolate, bodyBytes, count] = new Float64Array(head.buffer) as unknown as number[];
    checkCount(rank, "isolate", isolate!, Number.MAX_SAFE_INTEGER);
    checkCount(rank, "body", bodyBytes!, MAX_BODY_BYTES);
    checkCount(rank, "count of buffers", count!, MAX_BUFFERS);
    const lengths = await read(count! * NUMBER_BYTES), body = await read(bodyBytes!);
    if (!lengths || !body) return delivered;
    const buffers: Uint8Array<ArrayBuffer>[] = [], arriving = [delivered];
    for (const length of new Float64Array(lengths.buffer)) {
      checkCount(rank, "buffer", length, MAX_BUFFER_BYTES);
      const buffer = new Uint8Array(takeSpare(length));
      buffers.push(buffer);
      if (isLarge(buffer)) {
        for (const part of partsOf(buffer)) arriving.push(transfers.end(mpi.receive(part, rank)));
      } else if (!await read(length, buffer)) return delivered;
    }
    const packet: Packet = { to: { rank: own, isolate: isolate! }, body, buffers };
    delivered = Promise.all(arriving).then(() => deliver(packet));
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
