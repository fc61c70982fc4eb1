/**
 * A link between the leader of a run and one of its hosts: a stream of bytes over messages of NATS,
 * each of which may be lost.
 *
 * [Note: lost messages] NATS delivers a message at most once: messages are lost while the far end or
 * the server is away, and if a consumer is slow. So the pieces of a link are numbered, and kept until
 * the far end has them. The far end asks for the first missing piece, and all pieces from there on are
 * sent again. A piece is never skipped.
 *
 * [Note: credit] At most {@linkcode WINDOW_BYTES} are in transit: a server disconnects a client with too
 * many pending bytes.
 *
 * @module
 */

import { Queue } from "../../runtime/mailbox.ts";
import type { FrameSink, FrameSource } from "../stream.ts";

/** The kinds of messages, as their first byte. */
export const PIECE = 0, BEAT = 1, CONTROL = 2;

/** Bytes before the contents of a piece: kind, link, number of the piece, pieces received. */
const HEAD_BYTES = 13;

/** Bytes of a beat: kind, link, pieces sent, pieces received, and whether one is missing. */
const BEAT_BYTES = 14;

/** Maximum number of bytes that the far end has not confirmed. */
const WINDOW_BYTES = 2 ** 22;

/** Bytes whose arrival is confirmed immediately. */
const CONFIRM_BYTES = WINDOW_BYTES / 4;

/**
 * Returns the number of the link that a piece or beat belongs to.
 *
 * @throws {RangeError} when the message is too short.
 */
export function linkOf(message: Uint8Array): number {
  if (message.length < HEAD_BYTES) throw wrongLength(message);
  return numbers(message).getUint32(1);
}

const wrongLength = ({ length }: Uint8Array) => new RangeError(`a message has ${length} bytes`);

const numbers = ({ buffer, byteOffset, byteLength }: Uint8Array) =>
  new DataView(buffer, byteOffset, byteLength);

/** One end of a link; both ends have the same number. */
export class Link implements FrameSink, FrameSource {
  readonly #pieceBytes: number;
  /** Pieces that the far end has not confirmed, from number `#confirmed` on. */
  readonly #kept = new Queue<Uint8Array<ArrayBuffer>>();
  #confirmed = 0;
  #keptBytes = 0;
  /** Contents that have arrived and were not read. */
  readonly #arrived = new Queue<Uint8Array>();
  #rest: Uint8Array | undefined;
  #received = 0;
  /** Bytes that have arrived since the last confirmation. */
  #unconfirmed = 0;
  #isMissing = false;
  #isClosed = false;
  #change = Promise.withResolvers<void>();

  /**
   * @param number the number of the link.
   * @param publish sends a message to the far end; it may be lost.
   * @param maxBytes maximum size of a message.
   */
  constructor(
    readonly number: number,
    private readonly publish: (message: Uint8Array<ArrayBuffer>) => void,
    maxBytes: number,
  ) {
    this.#pieceBytes = Math.min(maxBytes, CONFIRM_BYTES) - HEAD_BYTES;
  }

  /** Sends some of the bytes, when the far end has taken earlier ones; returns how many. */
  async write(bytes: Uint8Array): Promise<number> {
    while (this.#keptBytes >= WINDOW_BYTES && !this.#isClosed) await this.#change.promise;
    if (this.#isClosed) throw new Deno.errors.BrokenPipe("the link was closed");
    const contents = bytes.subarray(0, this.#pieceBytes);
    const piece = this.#message(PIECE, HEAD_BYTES + contents.length);
    piece.set(contents, HEAD_BYTES);
    this.#kept.push(piece);
    this.#keptBytes += piece.length;
    this.#send(piece);
    return contents.length;
  }

  /** Reads bytes that have arrived; null when the link is closed. */
  async read(into: Uint8Array): Promise<number | null> {
    while (!this.#isClosed) {
      const first = this.#rest ?? this.#arrived.shift();
      if (first) {
        const count = Math.min(first.length, into.length);
        into.set(first.subarray(0, count));
        this.#rest = count < first.length ? first.subarray(count) : undefined;
        return count;
      }
      await this.#change.promise;
    }
    return null;
  }

  /**
   * Handles a piece or a beat of the far end.
   *
   * @throws {RangeError} when the message is invalid.
   */
  hear(message: Uint8Array): void {
    const view = numbers(message), isPiece = view.getUint8(0) === PIECE;
    const isWhole = isPiece ? message.length > HEAD_BYTES : message.length === BEAT_BYTES;
    if (!isWhole) throw wrongLength(message);
    const [number, confirmed] = [view.getUint32(5), view.getUint32(9)];
    this.#confirm(confirmed);
    if (isPiece && number === this.#received) return this.#take(message.slice(HEAD_BYTES));
    if (number > this.#received) this.#askAgain();
    // A link keeps its order, so the pieces arrive before the far end asks again.
    if (!isPiece && view.getUint8(13) === 1) this.resend();
  }

  /** Sends the numbers of sent and received pieces; called regularly. */
  beat(): void {
    const beat = this.#message(BEAT, BEAT_BYTES);
    beat[13] = Number(this.#isMissing);
    this.#unconfirmed = 0;
    this.#send(beat);
  }

  /** Sends all pieces again that the far end has not confirmed. */
  resend(): void {
    for (let i = 0; i < this.#kept.length; i++) this.#send(this.#kept.at(i)!);
  }

  /** Closes the link; unread bytes are lost. */
  close(): void {
    this.#isClosed = true;
    this.#changed();
  }

  #message(kind: number, byteLength: number): Uint8Array<ArrayBuffer> {
    const message = new Uint8Array(byteLength), view = numbers(message);
    view.setUint8(0, kind);
    view.setUint32(1, this.number);
    view.setUint32(5, this.#confirmed + this.#kept.length);
    return message;
  }

  #send(message: Uint8Array<ArrayBuffer>): void {
    numbers(message).setUint32(9, this.#received);
    this.publish(message);
  }

  #take(contents: Uint8Array): void {
    this.#received++;
    this.#isMissing = false;
    this.#unconfirmed += contents.length;
    this.#arrived.push(contents);
    this.#changed();
    if (this.#unconfirmed >= CONFIRM_BYTES) this.beat();
  }

  /** Asks once for the missing piece; beats repeat the question until it arrives. */
  #askAgain(): void {
    if (this.#isMissing) return;
    this.#isMissing = true;
    this.beat();
  }

  #confirm(received: number): void {
    if (received > this.#confirmed + this.#kept.length) {
      throw new RangeError(`it has received ${received} pieces, of ${this.#kept.length} more`);
    }
    for (; this.#confirmed < received; this.#confirmed++) {
      this.#keptBytes -= this.#kept.shift()!.length;
    }
    this.#changed();
  }

  #changed(): void {
    this.#change.resolve();
    this.#change = Promise.withResolvers();
  }
}
