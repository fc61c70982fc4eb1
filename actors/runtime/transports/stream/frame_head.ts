/**
 * Where one frame ends on a stream of bytes: a head of 64-bit floats (the byte length of the body,
 * how many buffers, the byte length of each) goes before the body and the buffers.
 *
 * @module
 */

import { encodeFrame } from "../codec/codec.ts";

/** Bytes of a number in the head of a frame. */
const NUMBER_BYTES = Float64Array.BYTES_PER_ELEMENT;

/** Byte length of the body and number of buffers. */
const FIXED_NUMBERS = 2;

/** Bytes of the head without the lengths of the buffers. */
export const HEAD_BYTES = FIXED_NUMBERS * NUMBER_BYTES;

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
export function readNumbers(bytes: Uint8Array<ArrayBuffer>): number[] {
  return [...new Float64Array(bytes.slice().buffer)];
}

/** How many bytes the lengths of the buffers take. */
export function lengthsBytes(buffers: number): number {
  return buffers * NUMBER_BYTES;
}

/**
 * Checks the lengths that a head claims.
 *
 * @throws {RangeError} when one is no length, or all are more than a frame may have.
 */
export function checkFrameBytes(lengths: readonly number[], maxBytes: number): void {
  let sum = 0;
  for (const length of lengths) {
    sum += Number.isSafeInteger(length) && length >= 0 ? length : NaN;
  }
  if (sum <= maxBytes) return;
  throw new RangeError(
    `Cannot receive a frame: its parts must be of at most ${maxBytes} bytes, received ${sum}`,
  );
}
