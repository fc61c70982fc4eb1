/**
 * What each rank says, known to all.
 *
 * @module
 */

import type { Mpi } from "../mpi.ts";

/** The values of all ranks, in order; each is what JSON can say. Every rank calls it. */
export function gatherValues<T>(mpi: Pick<Mpi, "gather">, own: T): readonly T[] {
  const bytes = new TextEncoder().encode(JSON.stringify(own));
  const lengths = new Float64Array(
    mpi.gather(new Uint8Array(Float64Array.of(bytes.length).buffer)).buffer,
  );
  const width = Math.max(...lengths), padded = new Uint8Array(width);
  padded.set(bytes);
  const all = mpi.gather(padded);
  return Array.from(lengths, (length, rank) => {
    const at = rank * width;
    return JSON.parse(new TextDecoder().decode(all.subarray(at, at + length)));
  });
}
