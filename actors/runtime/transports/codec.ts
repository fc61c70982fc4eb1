/**
 * Values as bytes, for sockets: what structured clone takes, in one run of bytes, and beside it the
 * buffers that move, each as it is.
 *
 * A frame is a head of 64-bit floats (the byte length of the body, how many buffers, the byte
 * length of each), the body, and the buffers. Both ends run on one machine, so its byte order is
 * that of the machine, and the body is in the format of its V8.
 *
 * @module
 */

import { Deserializer, Serializer } from "node:v8";

/** Bytes of a number in the head of a frame. */
const NUMBER_BYTES = Float64Array.BYTES_PER_ELEMENT;

/** Byte length of the body and number of buffers. */
const FIXED_NUMBERS = 2;

/** Bytes of the head without the lengths of the buffers. */
export const HEAD_BYTES = FIXED_NUMBERS * NUMBER_BYTES;

/** The types that come with Deno lack the buffers. */
interface WithBuffers {
  transferArrayBuffer(id: number, buffer: ArrayBuffer): void;
}

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
    const serializer = new Serializer() as Serializer & WithBuffers;
    // The place of the head, so that it need not be put before the body afterwards.
    serializer.writeRawBytes(new Uint8Array(headBytes(transfer.length)));
    serializer.writeHeader();
    transfer.forEach((buffer, id) => serializer.transferArrayBuffer(id, buffer));
    serializer.writeValue(value);
    const frame = serializer.releaseBuffer() as Uint8Array<ArrayBuffer>;
    const moved = transfer.map((buffer) => new Uint8Array(buffer.transfer()));
    writeHead(frame, moved);
    return [frame, ...moved.filter(({ length }) => length > 0)];
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

function headBytes(buffers: number): number {
  return (FIXED_NUMBERS + buffers) * NUMBER_BYTES;
}

function writeHead(frame: Uint8Array, moved: readonly Uint8Array[]): void {
  const head = new DataView(frame.buffer, frame.byteOffset, headBytes(moved.length));
  const numbers = [frame.length - head.byteLength, moved.length, ...moved.map((m) => m.length)];
  numbers.forEach((number, n) => head.setFloat64(n * NUMBER_BYTES, number));
}

/** The numbers of a head, or of a part of it. */
export function readNumbers(bytes: Uint8Array): number[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from(
    { length: bytes.length / NUMBER_BYTES },
    (_, n) => view.getFloat64(n * NUMBER_BYTES),
  );
}

/** How many bytes the lengths of the buffers take. */
export function lengthsBytes(buffers: number): number {
  return buffers * NUMBER_BYTES;
}

/** The value of a body and its buffers, which become parts of it. */
export function decode(body: Uint8Array, buffers: readonly ArrayBuffer[]): unknown {
  const deserializer = new Deserializer(body as never) as Deserializer & WithBuffers;
  deserializer.readHeader();
  buffers.forEach((buffer, id) => deserializer.transferArrayBuffer(id, buffer));
  return deserializer.readValue();
}
