/**
 * Streams of frames over sockets: an outbox that never blocks, and a loop that receives frames.
 *
 * @module
 */

import { Queue } from "../runtime/mailbox.ts";
import { encodeFrame, readValue } from "./codec.ts";

/** Bytes of a number in the head of a frame. */
const NUMBER_BYTES = Float64Array.BYTES_PER_ELEMENT;

/** Bytes of the head before the buffer lengths: byte length of the body, and number of buffers. */
const HEAD_BYTES = 2 * NUMBER_BYTES;

/**
 * Encodes a frame as pieces that are written one after another.
 *
 * @throws {DOMException} `DataCloneError` when the frame cannot be cloned; no buffer has moved
 * then.
 */
export function framePieces(
  frame: unknown,
  transfer: readonly ArrayBuffer[],
): Uint8Array<ArrayBuffer>[] {
  const { body, buffers } = encodeFrame(frame, transfer);
  const numbers = [body.length, buffers.length, ...buffers.map(({ length }) => length)];
  const head = new Uint8Array(Float64Array.from(numbers).buffer);
  return [head, body, ...buffers.filter(({ length }) => length > 0)];
}

/** Bytes for which a buffer counts at least, because empty ones take memory, too. */
const BUFFER_BYTES = 4096;

/** Returns the numbers in a head or in part of a head. */
function readNumbers(bytes: Uint8Array<ArrayBuffer>): number[] {
  return [...new Float64Array(bytes.slice().buffer)];
}

/**
 * Checks the lengths in the head of a frame.
 *
 * @throws {RangeError} when a length is invalid, or their sum is larger than `maxBytes`.
 */
function checkFrameBytes(lengths: readonly number[], maxBytes: number): void {
  const isLength = (length: number) => Number.isSafeInteger(length) && length >= 0;
  const sum = lengths.reduce((sum, one) => sum + (isLength(one) ? one : NaN), 0);
  if (sum <= maxBytes) return;
  throw new RangeError(
    `Cannot receive a frame: its parts must be of at most ${maxBytes} bytes, received ${sum}`,
  );
}

/** Smallest buffer that is kept; smaller ones are cheap to allocate. */
const MIN_BYTES = 65_536;

/** Maximum number of bytes of all spare buffers. */
const MAX_BYTES = 2 ** 27;

/** Maximum number of sizes in `comingSizes`. */
const MAX_SIZES = 64;

/** Spare buffers, oldest first. */
const spares: ArrayBuffer[] = [];
let spareBytes = 0;

/** Sizes of received buffers, newest last. */
const comingSizes: number[] = [];

/** Keeps an unused buffer for reuse if buffers of its size have been received before. */
export function keepSpare(buffer: ArrayBuffer): void {
  const { byteLength, resizable } = buffer;
  if (!comingSizes.includes(byteLength) || byteLength > MAX_BYTES || resizable) return;
  spares.push(buffer);
  spareBytes += byteLength;
  while (spareBytes > MAX_BYTES) spareBytes -= spares.shift()!.byteLength;
}

/** Returns a buffer of `byteLength` bytes with arbitrary contents. */
export function takeSpare(byteLength: number): ArrayBuffer {
  if (byteLength < MIN_BYTES) return new ArrayBuffer(byteLength);
  if (!comingSizes.includes(byteLength)) comingSizes.push(byteLength);
  if (comingSizes.length > MAX_SIZES) comingSizes.shift();
  const index = spares.findLastIndex((spare) => spare.byteLength === byteLength);
  if (index < 0) return new ArrayBuffer(byteLength);
  spareBytes -= byteLength;
  return spares.splice(index, 1)[0]!;
}

/** Smaller pieces are joined before they are written: a write costs as much as copying them. */
const JOIN_BYTES = 65_536;

/** The write side of a socket or a pipe. */
export type FrameSink = Pick<Deno.Conn, "write" | "close"> & Partial<Pick<Deno.Conn, "closeWrite">>;

/** The read side of a socket or a pipe. */
export type FrameSource = Pick<Deno.Conn, "read">;

/**
 * Queue of frames to send over a socket, which may be attached later. The far end reads them with
 * {@linkcode receiveFrames}.
 */
export class Outbox {
  readonly #pieces = new Queue<Uint8Array<ArrayBuffer>>();
  readonly #empty = Promise.withResolvers<void>();
  #conn: FrameSink | undefined;
  #waitingBytes = 0;
  /** Settles when all frames are sent or dropped. */
  #idle = Promise.withResolvers<void>();
  #isWriting = false;
  #isFinishing = false;

  /** Bytes that the system has not accepted yet. */
  get waitingBytes(): number {
    return this.#waitingBytes;
  }

  /** Settles when the system has accepted all bytes, or the connection has failed. */
  get idle(): Promise<void> {
    return this.#idle.promise;
  }

  /** Queues a frame. @throws {DOMException} when the frame cannot be cloned. */
  post(value: unknown, transfer: readonly ArrayBuffer[] = []): void {
    for (const piece of framePieces(value, transfer)) {
      this.#pieces.push(piece);
      this.#waitingBytes += piece.length;
    }
    this.#write();
  }

  /** Sends the queue and all later frames over `conn`. */
  attach(conn: FrameSink): void {
    this.#conn = conn;
    this.#write();
  }

  /** Sends the remaining frames, then the end of the stream; resolves when both are sent. */
  finish(): Promise<void> {
    this.#isFinishing = true;
    this.#write();
    return this.#empty.promise;
  }

  /** Closes the connection immediately; unsent frames are lost. */
  close(): void {
    this.#conn?.close();
    this.#drop();
  }

  #drop(): void {
    while (this.#pieces.shift());
    this.#waitingBytes = 0;
  }

  async #write(): Promise<void> {
    const conn = this.#conn;
    if (!conn || this.#isWriting) return;
    this.#isWriting = true;
    this.#idle = Promise.withResolvers();
    try {
      for (let bytes = this.#take(); bytes; bytes = this.#take()) {
        for (let sent = 0; sent < bytes.length;) {
          const count = await conn.write(bytes.subarray(sent));
          sent += count;
          this.#waitingBytes -= count;
        }
        keepSpare(bytes.buffer);
      }
      if (this.#isFinishing) await conn.closeWrite?.();
    } catch {
      // The far end has died, which the caller learns elsewhere; its frames are dropped.
      this.#drop();
    }
    this.#isWriting = false;
    this.#idle.resolve();
    if (this.#isFinishing) this.#empty.resolve();
  }

  /** Returns the next bytes to write: one large piece, or several small ones joined. */
  #take(): Uint8Array<ArrayBuffer> | undefined {
    const first = this.#pieces.shift();
    if (!first || first.length >= JOIN_BYTES || this.#pieces.length === 0) return first;
    const small = [first];
    let bytes = first.length;
    for (let next = this.#pieces.at(0); next; next = this.#pieces.at(0)) {
      if (bytes + next.length > JOIN_BYTES) break;
      bytes += next.length;
      small.push(this.#pieces.shift()!);
    }
    return joined(small);
  }
}

/** Joins pieces into one array: one write costs as much as copying small pieces. */
export function joined(pieces: readonly Uint8Array<ArrayBuffer>[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(pieces.reduce((sum, { byteLength }) => sum + byteLength, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.byteLength;
  }
  return all;
}

/** Reads `byteLength` bytes. @throws {Error} when the connection ends before. */
export async function readAll(
  conn: FrameSource,
  byteLength: number,
): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(byteLength);
  for (let at = 0; at < byteLength;) {
    const count = await conn.read(bytes.subarray(at));
    if (count === null) throw new Error("the connection was closed");
    at += count;
  }
  return bytes;
}

/** Writes all bytes. */
export async function writeAll(conn: Pick<FrameSink, "write">, bytes: Uint8Array): Promise<void> {
  for (let at = 0; at < bytes.length;) at += await conn.write(bytes.subarray(at));
}

/**
 * Receives frames until the far end closes or dies, which settles the promise. An incomplete last
 * frame is dropped. All frames that arrive together are handled in one turn, so a control message
 * among them is not delayed.
 *
 * @param maxBytes maximum size of a frame, for an untrusted far end. Default: unlimited.
 * @throws {RangeError} (as a rejection) when a frame is larger, before memory is allocated for it, or
 * has too many objects.
 * @throws {SyntaxError} (as a rejection) when the bytes are not a frame.
 */
export const receiveFrames = (
  conn: FrameSource,
  handle: (value: unknown) => void,
  maxBytes = Infinity,
): Promise<void> => readParts(conn, frameParts(handle, maxBytes));

/** Yields the number of bytes that it needs next, and receives them. */
export type Parts = Generator<number, never, Uint8Array<ArrayBuffer>>;

/**
 * Reads parts until the far end closes or dies. All parts that arrive together are passed on in one
 * turn.
 */
export async function readParts(conn: FrameSource, parts: Parts): Promise<void> {
  const chunk = new Uint8Array(JOIN_BYTES);
  let wanted = new Uint8Array(parts.next().value), filled = 0;
  /** Passes on each part that is complete. */
  const passWhole = () => {
    while (filled === wanted.length) {
      wanted = new Uint8Array(takeSpare(parts.next(wanted).value));
      filled = 0;
    }
  };
  for (;;) {
    // Large parts are read directly into their buffer.
    const isLarge = wanted.length - filled >= JOIN_BYTES;
    const into = isLarge ? wanted.subarray(filled) : chunk;
    const count = await conn.read(into).catch(() => null);
    if (count === null) return;
    if (isLarge) {
      filled += count;
      passWhole();
      continue;
    }
    for (let rest = chunk.subarray(0, count); rest.length > 0;) {
      const part = rest.subarray(0, wanted.length - filled);
      wanted.set(part, filled);
      filled += part.length;
      rest = rest.subarray(part.length);
      passWhole();
    }
  }
}

/** Maximum objects in a frame of an untrusted far end: they take hundreds of megabytes. */
const MAX_OBJECTS = 2_000_000;

function* frameParts(handle: (value: unknown) => void, maxBytes: number): Parts {
  for (;;) {
    const [bodyBytes, count] = readNumbers(yield HEAD_BYTES) as [number, number];
    checkFrameBytes([bodyBytes, count * BUFFER_BYTES], maxBytes);
    const lengths = readNumbers(yield count * NUMBER_BYTES);
    checkFrameBytes([bodyBytes, ...lengths], maxBytes);
    const body = yield bodyBytes, buffers: ArrayBuffer[] = [];
    for (const length of lengths) buffers.push((yield length).buffer);
    handle(readValue(body, buffers, maxBytes === Infinity ? Infinity : MAX_OBJECTS));
  }
}

/** Outboxes with at least this many waiting bytes are flushed; fewer fit into a socket's buffer. */
const LARGE_BYTES = 65_536;

/** Milliseconds to wait for a receiver that reads nothing: it may be computing. */
const PATIENCE_MS = 2;

/**
 * Waits until large outboxes are empty or their receivers stop reading; undefined when there are
 * none.
 */
export function flush(outboxes: readonly Outbox[]): Promise<void> | undefined {
  const large = outboxes.filter(({ waitingBytes }) => waitingBytes >= LARGE_BYTES);
  return large.length > 0 ? flushLarge(large) : undefined;
}

async function flushLarge(outboxes: readonly Outbox[]): Promise<void> {
  const waiting = () => outboxes.reduce((sum, { waitingBytes }) => sum + waitingBytes, 0);
  const all = Promise.all(outboxes.map(({ idle }) => idle));
  for (let before = Infinity; waiting() > 0 && waiting() < before;) {
    before = waiting();
    let timer;
    const patience = new Promise((resolve) => timer = setTimeout(resolve, PATIENCE_MS));
    await Promise.race([all, patience]);
    clearTimeout(timer);
  }
}
