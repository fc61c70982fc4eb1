/**
 * Sums of gradients on the host, for stages whose memory is the host's: see {@linkcode GradientSums}.
 *
 * @module
 */

import type { GradientSums, Stage } from "../../kernels/mod.ts";

/** Gradients that are read, added and written. */
type Gradients = Pick<Stage, "buckets" | "rangeOf" | "readGradients" | "writeGradients">;

/** What adds the gradients of a stage: its device, or else the host. */
export function sumsOf(
  kernels: Gradients & Pick<Stage, "sums">,
): Pick<GradientSums, "add" | "collect" | "tie"> {
  return kernels.sums ?? openHostSums(kernels);
}

function openHostSums(kernels: Gradients): Pick<GradientSums, "add" | "collect" | "tie"> {
  const all = kernels.buckets.reduce((sum, { length }) => sum + length, 0);
  let collected: Float32Array;
  return {
    async add(offset, terms) {
      const { length } = terms.find((term) => term)!;
      const own = await kernels.readGradients(offset, length);
      addLeftToRight(own, terms.map((term) => term ?? own));
      kernels.writeGradients(offset, own);
    },
    async collect(rank, count) {
      const own = await kernels.readGradients(0, all);
      if (rank === 0) collected = new Float32Array(own);
      else addInto(collected, own);
      if (rank < count - 1) return;
      own.set(collected);
      kernels.writeGradients(0, own);
    },
    async tie(names) {
      const ranges = names.map((name) => kernels.rangeOf(name));
      const all = await Promise.all(
        ranges.map(({ offset, length }) => kernels.readGradients(offset, length)),
      );
      const [sum] = all;
      addLeftToRight(sum!, all);
      for (const { offset } of ranges) kernels.writeGradients(offset, sum!);
    },
  };
}

/** Values that may lie in shared memory. */
export type Values = Float32Array | Float16Array;

function addInto(sums: Float32Array, values: Values): void {
  for (let i = 0; i < sums.length; i++) sums[i]! += values[i]!;
}

/** Adds arrays of one length left to right in f32; `into`, which may be one of them, rounds once. */
export function addLeftToRight(into: Values, [first, ...rest]: readonly Values[]): void {
  const sums = new Float32Array(first!);
  for (const values of rest) addInto(sums, values);
  into.set(sums);
}
