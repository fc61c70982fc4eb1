/**
 * Values as bytes, for sockets: what structured clone takes, in one run of bytes, and beside it the
 * buffers that move, each as it is.
 *
 * A frame is a head of 64-bit floats (the byte length of the body, how many buffers, the byte
 * length of each), the body, and the buffers. Both ends run on one machine, so its numbers are in its
 * byte order.
 *
 * @module
 */

import { readValue } from "./value_reader.ts";
import { writeValue } from "./value_writer.ts";

/** Bytes of a number in the head of a frame. */
const NUMBER_BYTES = Float64Array.BYTES_PER_ELEMENT;

/** Byte length of the body and number of buffers. */
const FIXED_NUMBERS = 2;

/** Bytes of the head without the lengths of the buffers. */
export const HEAD_BYTES = FIXED_NUMBERS * NUMBER_BYTES;

/**
 * A frame, in pieces to be written one after the other. The buffers in `transfer` become the
 * sender's no longer: they are moved into the pieces, not copied.
 *
 * @throws {DOMException} `DataCloneError` when the value cannot be cloned; then nothing has moved.
 */
export function encode(
  value: unknown,
  transfer: readonly ArrayBuffer[],
): Uint8Array<ArrayBuffer>[] {
  try {
    checkTransfer(transfer);
    const { bytes, copies } = writeValue(value, transfer);
    const moved = transfer.map((buffer) => buffer.transfer());
    const buffers = [...moved, ...copies].map((buffer) => new Uint8Array(buffer));
    return [headOf(bytes, buffers), bytes, ...buffers.filter(({ length }) => length > 0)];
  } catch (error) {
    throw new DOMException((error as Error).message, "DataCloneError");
  }
}

function checkTransfer(transfer: readonly ArrayBuffer[]): void {
  if (new Set(transfer).size < transfer.length) {
    throw new TypeError("An ArrayBuffer that is transferred twice could not be cloned.");
  }
  if (transfer.some(({ detached }) => detached)) {
    throw new TypeError("An ArrayBuffer is detached and could not be cloned.");
  }
}

function headOf(body: Uint8Array, buffers: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const numbers = [body.length, buffers.length, ...buffers.map(({ length }) => length)];
  return new Uint8Array(Float64Array.from(numbers).buffer);
}

/** The numbers of a head, or of a part of it. */
export function readNumbers(bytes: Uint8Array<ArrayBuffer>): number[] {
  return [...new Float64Array(bytes.slice().buffer)];
}

/** How many bytes the lengths of the buffers take. */
export function lengthsBytes(buffers: number): number {
  return buffers * NUMBER_BYTES;
}

/** The value of a body and its buffers, which become parts of it. */
export function decode(body: Uint8Array, buffers: readonly ArrayBuffer[]): unknown {
  return readValue(body, buffers);
}
