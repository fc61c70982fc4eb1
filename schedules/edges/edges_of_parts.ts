/** Skip edges of a model that is not cut yet: between equal parts of it. */

import { checkEdges, type SkipEdge } from "./skip_edge.ts";

/**
 * Skip edges between equal parts of a model as those between the stages of a cut of it: a value is
 * made in the last stage of its part, and used in the first stages of theirs.
 *
 * @param stages of the cut, a multiple of the parts.
 * @throws {RangeError} if they are not, or an edge is not usable.
 *
 * @example Two stages for each part
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { edgesOfParts } from "@troupe/troupe/schedules";
 *
 * const edges = edgesOfParts([{ from: 0, to: [2, 3] }], { parts: 4, stages: 8 });
 * deepStrictEqual(edges, [{ from: 1, to: [4, 6] }]);
 * ```
 */
export function edgesOfParts(
  edges: readonly SkipEdge[],
  { parts, stages }: { readonly parts: number; readonly stages: number },
): SkipEdge[] {
  checkEdges(edges, parts);
  const each = stages / parts;
  if (!Number.isInteger(each)) {
    throw new RangeError(
      `Cannot use skip edges between ${parts} parts of the model: the stages must be a multiple of ` +
        `them, received ${stages}`,
    );
  }
  return edges.map((edge) => ({
    ...edge,
    from: (edge.from + 1) * each - 1,
    to: edge.to.map((part) => part * each),
  }));
}
