/**
 * A stream of frames over a socket: an outbox that never blocks and a loop that receives.
 *
 * @module
 */

import { Ring } from "../runtime/mailbox.ts";
import { decodeFrame, encodeFrame } from "./codec.ts";

/** Bytes of a number in the head of a frame. */
const NUMBER_BYTES = Float64Array.BYTES_PER_ELEMENT;

/** Byte length of the body and number of buffers. */
const FIXED_NUMBERS = 2;

/** Bytes of the head without the lengths of the buffers. */
const HEAD_BYTES = FIXED_NUMBERS * NUMBER_BYTES;

/**
 * A frame, in pieces to be written one after the other.
 *
 * @throws {DOMException} `DataCloneError` when the frame cannot be cloned; then nothing has moved.
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

/** The numbers of a head, or of a part of it. */
function readNumbers(bytes: Uint8Array<ArrayBuffer>): number[] {
  return [...new Float64Array(bytes.slice().buffer)];
}

/** How many bytes the lengths of the buffers take. */
function lengthsBytes(buffers: number): number {
  return buffers * NUMBER_BYTES;
}

/**
 * Checks the lengths that a head claims.
 *
 * @throws {RangeError} when one is no length, or all are more than a frame may have.
 */
function checkFrameBytes(lengths: readonly number[], maxBytes: number): void {
  let sum = 0;
  for (const length of lengths) {
    sum += Number.isSafeInteger(length) && length >= 0 ? length : NaN;
  }
  if (sum <= maxBytes) return;
  throw new RangeError(
    `Cannot receive a frame: its parts must be of at most ${maxBytes} bytes, received ${sum}`,
  );
}

/** Smaller buffers are cheap to make. */
const MIN_BYTES = 65_536;

/** Most bytes that are kept. */
const MAX_BYTES = 2 ** 27;

/** Most sizes that are known to come. */
const MAX_SIZES = 64;

/** The oldest first. */
const spares: ArrayBuffer[] = [];
let spareBytes = 0;

/** Sizes of what has come, the newest last. */
const comingSizes: number[] = [];

/** Keeps a buffer that nobody else has, if others of its size come. */
export function keepSpare(buffer: ArrayBuffer): void {
  const { byteLength, resizable } = buffer;
  if (!comingSizes.includes(byteLength) || byteLength > MAX_BYTES || resizable) return;
  spares.push(buffer);
  spareBytes += byteLength;
  while (spareBytes > MAX_BYTES) spareBytes -= spares.shift()!.byteLength;
}

/** A buffer of `byteLength`, with anything in it. */
export function takeSpare(byteLength: number): ArrayBuffer {
  if (byteLength < MIN_BYTES) return new ArrayBuffer(byteLength);
  if (!comingSizes.includes(byteLength)) comingSizes.push(byteLength);
  if (comingSizes.length > MAX_SIZES) comingSizes.shift();
  const index = spares.findLastIndex((spare) => spare.byteLength === byteLength);
  if (index < 0) return new ArrayBuffer(byteLength);
  spareBytes -= byteLength;
  return spares.splice(index, 1)[0]!;
}

/** Pieces below this many bytes are written together: a write costs as much as copying them. */
const JOIN_BYTES = 65_536;

/** What frames are written to: a socket, or as much of a pipe. */
export type FrameSink = Pick<Deno.Conn, "write" | "closeWrite" | "close">;

/** What frames are read from. */
export type FrameSource = Pick<Deno.Conn, "read">;

/** What is to be sent over a socket, also before there is one. What {@linkcode receiveFrames} hears. */
export class Outbox {
  readonly #pieces = new Ring<Uint8Array<ArrayBuffer>>();
  readonly #empty = Promise.withResolvers<void>();
  #conn: FrameSink | undefined;
  #waitingBytes = 0;
  /** Settles when all there was has been sent, or never will be. */
  #idle = Promise.withResolvers<void>();
  #isWriting = false;
  #isFinishing = false;

  /** Bytes that the system has not taken yet. */
  get waitingBytes(): number {
    return this.#waitingBytes;
  }

  /** Settles when the system has taken all, or never will. */
  get idle(): Promise<void> {
    return this.#idle.promise;
  }

  /** Sends as soon as it can. @throws {DOMException} when the frame cannot be cloned. */
  post(value: unknown, transfer: readonly ArrayBuffer[] = []): void {
    for (const piece of framePieces(value, transfer)) {
      this.#pieces.push(piece);
      this.#waitingBytes += piece.length;
    }
    this.#write();
  }

  /** Sends over `conn` from now on. */
  attach(conn: FrameSink): void {
    this.#conn = conn;
    this.#write();
  }

  /** Sends the rest, then the end of the stream; the promise settles when that is done. */
  finish(): Promise<void> {
    this.#isFinishing = true;
    this.#write();
    return this.#empty.promise;
  }

  /** Ends at once; what is not sent is lost. */
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
      if (this.#isFinishing) await conn.closeWrite();
    } catch {
      // The far end is gone, which is noticed elsewhere: what was for it is lost with it.
      this.#drop();
    }
    this.#isWriting = false;
    this.#idle.resolve();
    if (this.#isFinishing) this.#empty.resolve();
  }

  /** The next bytes to write: a large piece as it is, or several small ones together. */
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

/** Bytes one after the other: a write costs as much as copying some. */
export function joined(pieces: readonly Uint8Array<ArrayBuffer>[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(pieces.reduce((sum, { byteLength }) => sum + byteLength, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.byteLength;
  }
  return all;
}

/** Reads as many bytes. @throws {Error} when the connection ends before. */
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
 * Receives until the far end ends or dies, which settles the promise. A frame that did not come
 * whole is dropped. All frames that came together are handled in one turn, so that a control
 * message among them is not left behind.
 *
 * @param maxBytes most that a frame may have, for a far end that is not trusted. Default: any.
 * @throws {RangeError} (as a rejection) when a frame is larger, before anything is allocated for it.
 * @throws {SyntaxError} (as a rejection) when what comes is no frame.
 */
export async function receiveFrames(
  conn: FrameSource,
  handle: (value: unknown) => void,
  maxBytes = Infinity,
): Promise<void> {
  const frames = readFrames(handle, maxBytes), chunk = new Uint8Array(JOIN_BYTES);
  let wanted = new Uint8Array(frames.next().value), filled = 0;
  /** Hands on what has come whole. */
  const passWhole = () => {
    while (filled === wanted.length) {
      wanted = new Uint8Array(takeSpare(frames.next(wanted).value));
      filled = 0;
    }
  };
  for (;;) {
    // What is large goes straight to its place.
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

/** Yields how many bytes it wants next, and gets them. */
function* readFrames(
  handle: (value: unknown) => void,
  maxBytes: number,
): Generator<number, never, Uint8Array<ArrayBuffer>> {
  for (;;) {
    const [bodyBytes, count] = readNumbers(yield HEAD_BYTES) as [number, number];
    checkFrameBytes([bodyBytes, lengthsBytes(count)], maxBytes);
    const lengths = readNumbers(yield lengthsBytes(count));
    checkFrameBytes([bodyBytes, ...lengths], maxBytes);
    const body = yield bodyBytes, buffers: ArrayBuffer[] = [];
    for (const length of lengths) buffers.push((yield length).buffer);
    handle(decodeFrame(body, buffers));
  }
}

/** What waits is large from here on; less fits into a socket. */
const LARGE_BYTES = 65_536;

/** Milliseconds that are waited for receivers who take nothing: they may compute themselves. */
const PATIENCE_MS = 2;

/** A promise that what is large has left, as far as it is taken; undefined when nothing is. */
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
