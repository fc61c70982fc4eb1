/**
 * Buffers whose contents have left over a socket, kept for what comes next.
 *
 * A new buffer costs as much as receiving into it, as the system has to find and clear its pages.
 * What goes to and fro between two actors is of one size, so each finds the buffer that it sent.
 * What only ever leaves, such as the weights for a checkpoint, is not kept: nobody would take it.
 *
 * @module
 */

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
