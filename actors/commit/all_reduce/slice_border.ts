/**
 * Where a chunk is cut into slices.
 *
 * @module
 */

/**
 * Where slice `slice` of `slices` begins in a chunk, counted from where the chunk begins; all ranks
 * agree on it.
 *
 * Where a device adds, slices are cut at the borders of parameters only. A nominal border within a
 * parameter moves to one end of it, chunk by chunk to another one: so the ranks take turns in adding
 * chunks of one parameter.
 *
 * @param index of the chunk.
 * @param borders in elements of the flat gradients; anywhere unless given.
 */
export function sliceBorder(
  slice: number,
  slices: number,
  chunk: { readonly offset: number; readonly length: number },
  index: number,
  borders?: readonly number[],
): number {
  const nominal = slice * chunk.length / slices;
  if (!borders) return Math.floor(nominal);
  const at = chunk.offset + nominal, before = borders.findLast((border) => border <= at)!;
  if (at === before) return nominal;
  const after = borders.find((border) => border > at)!;
  const turn = (index % slices + 0.5) / slices;
  return (at - before < (1 - turn) * (after - before) ? before : after) - chunk.offset;
}
