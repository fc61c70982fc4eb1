/**
 * Buffers whose contents have left over a socket, kept for what comes next.
 *
 * A new buffer costs as much as receiving into it, as the system has to find and clear its pages.
 * What goes to and fro between two actors is of one size, so each finds the buffer that it sent.
 *
 * @module
 */

/** Smaller buffers are cheap to make. */
const MIN_BYTES = 65_536;

/** Most bytes that are kept. */
const MAX_BYTES = 2 ** 27;

/** The oldest first. */
const spares: ArrayBuffer[] = [];
let spareBytes = 0;

/** Keeps a buffer that nobody else has. */
export function keepSpare(buffer: ArrayBuffer): void {
  if (buffer.byteLength < MIN_BYTES || buffer.byteLength > MAX_BYTES || buffer.resizable) return;
  spares.push(buffer);
  spareBytes += buffer.byteLength;
  while (spareBytes > MAX_BYTES) spareBytes -= spares.shift()!.byteLength;
}

/** A buffer of `byteLength`, with anything in it. */
export function takeSpare(byteLength: number): ArrayBuffer {
  const index = byteLength < MIN_BYTES
    ? -1
    : spares.findLastIndex((spare) => spare.byteLength === byteLength);
  if (index < 0) return new ArrayBuffer(byteLength);
  spareBytes -= byteLength;
  return spares.splice(index, 1)[0]!;
}
