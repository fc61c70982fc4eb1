/** The skip edges between the stages of a cut, by those between the layers of the model. */

import { checkEdges, type SkipEdge } from "../edges/skip_edge.ts";

/** A value that layers use beyond what the layer before hands them. */
export interface LayerSkip {
  /** The layer that makes it. */
  readonly from: number;
  /** The layers that use it, ascending, all of them later ones. */
  readonly to: readonly number[];
  /** A message of it to another worker, or of its gradient; 0 unless given. */
  readonly send?: number | undefined;
  /** Whether a gradient comes back; it does unless this is false. */
  readonly hasGradient?: boolean | undefined;
}

/** A skip edge of a cut, and what a message over it takes. */
export interface CutEdge extends SkipEdge {
  readonly send: number;
}

/** @throws {RangeError} if the model has no such layers, a value goes to an earlier one, or a time is none. */
export function checkSkips(skips: readonly LayerSkip[], layers: number): void {
  checkEdges(skips, layers);
  for (const { send = 0 } of skips) {
    if (send >= 0 && send < Infinity) continue;
    throw new RangeError(
      `Cannot cut the model: the time of a skip edge must be a finite number from 0, received ${send}`,
    );
  }
}

/**
 * The values that go from stage to stage. Within a stage nothing travels, and to a stage a value goes
 * once, however many of its layers use it.
 *
 * @param starts for each stage the index of its first layer.
 */
export function edgesOfCut(skips: readonly LayerSkip[], starts: readonly number[]): CutEdge[] {
  const stageOf = (layer: number) => starts.findLastIndex((start) => start <= layer);
  return skips.flatMap(({ send = 0, hasGradient = true, ...skip }) => {
    const from = stageOf(skip.from), to = [...new Set(skip.to.map(stageOf))];
    const others = to.filter((stage) => stage !== from);
    return others.length > 0 ? [{ from, to: others, send, hasGradient }] : [];
  });
}
