/** The ways over skip edges: who waits for a value or its gradient, from whom. */

import type { ActionKind } from "../actions/action.ts";
import type { SkipEdge } from "./skip_edge.ts";

/**
 * A way from the stage that gives values, or their gradients, to one that waits for them.
 *
 * [Note: the way of a gradient] A value's gradient is the sum over all that use it. It goes from the
 * last of them to the one before and on to the maker, each of which adds its own: one order of the
 * sum on any number of workers, and no stage waits for more than the next one that uses the value.
 */
export interface Way {
  /** Its number, behind those of the edges between a stage and the next: from `stages` on. */
  readonly number: number;
  /** The stage that gives. */
  readonly from: number;
  /** The stage that waits. */
  readonly to: number;
  /** Whether forwards take it, or backwards. */
  readonly isForward: boolean;
  /** The edges of the values that take it, by index. */
  readonly edges: readonly number[];
}

/** Every way of the edges between stages, once, however many values take it. */
export function waysOf(stages: number, edges: readonly SkipEdge[] = []): Way[] {
  const ways = new Map<string, Way & { readonly edges: number[] }>();
  const add = (from: number, to: number, isForward: boolean, edge: number) => {
    const key = `${from} ${to} ${isForward}`, known = ways.get(key);
    if (known !== undefined) known.edges.push(edge);
    else ways.set(key, { number: stages + ways.size, from, to, isForward, edges: [edge] });
  };
  edges.forEach(({ from, to, hasGradient = true }, edge) => {
    to.forEach((stage, i) => {
      add(from, stage, true, edge);
      if (hasGradient) add(stage, to[i - 1] ?? from, false, edge);
    });
  });
  return [...ways.values()];
}

/** The ways that begin or end at a stage. */
export interface StageWays {
  /** Those that its forward waits for. */
  readonly toForward: readonly Way[];
  /** Those that its backward waits for. */
  readonly toBackward: readonly Way[];
  /** Those over which its values leave. */
  readonly fromForward: readonly Way[];
  /** Those over which gradients leave. */
  readonly fromBackward: readonly Way[];
}

/** For each stage the ways that begin or end there; undefined for a chain. */
export function stageWays(stages: number, edges?: readonly SkipEdge[]): StageWays[] | undefined {
  if (edges === undefined || edges.length === 0) return undefined;
  const ways = waysOf(stages, edges);
  const forward = ways.filter(({ isForward }) => isForward);
  const backward = ways.filter(({ isForward }) => !isForward);
  const [toForward, fromForward] = [byStage(forward, "to"), byStage(forward, "from")];
  const [toBackward, fromBackward] = [byStage(backward, "to"), byStage(backward, "from")];
  return Array.from({ length: stages }, (_, stage) => ({
    toForward: toForward.get(stage) ?? [],
    toBackward: toBackward.get(stage) ?? [],
    fromForward: fromForward.get(stage) ?? [],
    fromBackward: fromBackward.get(stage) ?? [],
  }));
}

/** The ways over which something leaves once an action of a stage has run. */
export function leaving(ways: readonly StageWays[], kind: ActionKind, stage: number) {
  if (kind === "W" || kind === "R") return NONE;
  const { fromForward, fromBackward } = ways[stage]!;
  return kind === "F" ? fromForward : fromBackward;
}

const NONE: readonly Way[] = [];

const byStage = (ways: readonly Way[], end: "from" | "to") => Map.groupBy(ways, (way) => way[end]);
