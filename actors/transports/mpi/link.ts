/**
 * Links from one rank to another, which keep the order of packets.
 *
 * [Note: announcements] MPI does not signal the arrival of a message: a receiver has to poll, which
 * uses a core. So a packet is announced over a TCP connection, together with all of its small
 * parts. Large buffers go over MPI: the receiver knows their sizes from the announcement and posts
 * receives that fit exactly. Both channels keep their order, so one tag is enough.
 *
 * @module
 */

import { Queue } from "../../runtime/mailbox.ts";
import { joined, keepSpare, type Parts, readParts, takeSpare, writeAll } from "../stream.ts";
import type { Mpi } from "./library.ts";
import type { Transfers } from "./transfers.ts";
import type { Packet } from "./wire.ts";

/** Buffers of at least this many bytes are sent over MPI. */
const LARGE_BYTES = 16_384;

/** Maximum bytes of an MPI transfer, whose count has 31 bits; larger buffers are sent in parts. */
const PART_BYTES = 2 ** 30;

/** Numbers at the start of an announcement: isolate, bytes of the body, number of buffers. */
const FIXED_NUMBERS = 3;
const NUMBER_BYTES = 8;

/** Limits of a packet; an announcement with larger values is invalid. */
const MAX_BODY_BYTES = 2 ** 31;
const MAX_BUFFERS = 2 ** 20;
const MAX_BUFFER_BYTES = 2 ** 36;

/** MPI and its pending transfers, which all links of a rank share. */
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

/** The sending end of a link. */
export class Outgoing {
  readonly #pieces = new Queue<Uint8Array<ArrayBuffer>>();
  #isWriting = false;
  #written = Promise.resolve();

  /** Sends to `rank` over a connection that may still be pending. */
  constructor(
    private readonly parts: LinkParts,
    private readonly rank: number,
    private readonly connection: Promise<Deno.Conn>,
    private readonly failed: (error: Error) => void,
  ) {}

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

  /** Resolves when all packets are sent. */
  async finish(): Promise<void> {
    await this.#written;
    await this.parts.transfers.settled();
  }

  async #write(): Promise<void> {
    try {
      const conn = await this.connection;
      for (let piece = this.#pieces.shift(); piece; piece = this.#pieces.shift()) {
        await writeAll(conn, piece).catch((cause) => {
          const must = `Cannot send to rank ${this.rank}: the connection to it must be open`;
          throw new Error(`${must}, received ${cause.message}`, { cause });
        });
      }
    } catch (error) {
      this.failed(error as Error);
    }
    this.#isWriting = false;
  }

  async #sendLarge(buffer: Uint8Array<ArrayBuffer>): Promise<void> {
    const { mpi, transfers } = this.parts;
    await Promise.all(
      Array.from(partsOf(buffer), (part) => transfers.end(mpi.send(part, this.rank))),
    );
    keepSpare(buffer.buffer);
  }
}

/**
 * Receives packets from `rank` until the connection ends; `deliver` gets them in order.
 *
 * @throws {RangeError} when an announcement is invalid, before memory is allocated for it.
 */
export async function receivePackets(
  { mpi, transfers }: LinkParts,
  own: number,
  rank: number,
  conn: Deno.Conn,
  deliver: (packet: Packet) => void,
): Promise<void> {
  let delivered = Promise.resolve();
  await readParts(conn, packetParts());
  return delivered;

  function* packetParts(): Parts {
    for (;;) {
      const head = new Float64Array((yield FIXED_NUMBERS * NUMBER_BYTES).buffer);
      const [isolate, bodyBytes, count] = head as unknown as [number, number, number];
      checkCount(rank, "isolate", isolate, Number.MAX_SAFE_INTEGER);
      checkCount(rank, "body", bodyBytes, MAX_BODY_BYTES);
      checkCount(rank, "count of buffers", count, MAX_BUFFERS);
      const lengths = new Float64Array((yield count * NUMBER_BYTES).buffer);
      const body = yield bodyBytes, buffers: Uint8Array<ArrayBuffer>[] = [];
      const arriving = [delivered];
      for (const length of lengths) {
        checkCount(rank, "buffer", length, MAX_BUFFER_BYTES);
        const isByMpi = length >= LARGE_BYTES;
        const buffer = isByMpi ? new Uint8Array(takeSpare(length)) : yield length;
        buffers.push(buffer);
        if (!isByMpi) continue;
        for (const part of partsOf(buffer)) arriving.push(transfers.end(mpi.receive(part, rank)));
      }
      const packet: Packet = { to: { rank: own, isolate }, body, buffers };
      delivered = Promise.all(arriving).then(() => deliver(packet));
    }
  }
}

function checkCount(rank: number, what: string, value: number, most: number): void {
  if (Number.isInteger(value) && value >= 0 && value <= most) return;
  throw new RangeError(
    `Cannot receive from rank ${rank}: the ${what} it announces must be an integer from 0 to ${most}, received ${value}`,
  );
}
