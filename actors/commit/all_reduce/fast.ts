/**
 * Which of ring and Rabenseifner is faster, by the latency-bandwidth model of Chimera section 3.4:
 * a message of L bytes costs α + βL.
 *
 * With p ranks, c the largest power of two up to p, and a chunk of n bytes:
 *
 * - ring: 2(p−1)·α + 2(p−1)/p·nβ;
 * - Rabenseifner: 2·log₂c·α + 2(c−1)/c·nβ, and 2α + 2nβ more for the fold where p is not c.
 *
 * Where p is a power of two both move the same and Rabenseifner has fewer messages in a row: it is
 * never the slower one. Elsewhere its fold moves the chunk twice more, so the ring wins from a size
 * on. Chunks are what Chimera (section 3.2) launches as soon as they are final, so n is a chunk.
 *
 * @module
 */

import { coreSize } from "./rabenseifner.ts";

/**
 * α/β: how many bytes a link carries in the time that a message takes at least. Of the order of
 * 20 µs at 5 GB/s, a TCP connection of a fast network. The sums depend on this number where p is no
 * power of two, so it is a constant of the program and not measured at run time: all ranks and all
 * runs agree on it.
 */
export const LATENCY_BYTES = 100_000;

/** The algorithm that the model prefers for a chunk of so many bytes. */
export function chooseFast(size: number, bytes: number): "ring" | "rabenseifner" {
  const core = coreSize(size), folds = size === core ? 0 : 1;
  const ring = cost(2 * (size - 1), 2 * (size - 1) / size * bytes);
  const rabenseifner = cost(
    2 * (Math.log2(core) + folds),
    (2 * (core - 1) / core + 2 * folds) * bytes,
  );
  return ring < rabenseifner ? "ring" : "rabenseifner";
}

/** Time of messages in a row, in units of α. */
function cost(messages: number, bytes: number): number {
  return messages + bytes / LATENCY_BYTES;
}
