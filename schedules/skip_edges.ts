/** The ways over skip edges: who waits for a value or its gradient, from whom. */

import type { ActionKind } from "./action.ts";

/** A value that stages use beyond what the stage before hands them. */
export interface SkipEdge {
  /** The stage that makes it. */
  readonly from: number;
  /** The stages that use it, ascending, all of them later ones. */
  readonly to: readonly number[];
  /** Bytes of the value for one micro-batch, and of its gradient; 0 unless given. */
  readonly bytes?: number | undefined;
  /** Whether a gradient comes back, as it does unless this is false: for masks and ids none does. */
  readonly hasGradient?: boolean | undefined;
}

/** The stages that a circle is told of in full. */
const CIRCLE_SHOWN = 8;

/**
 * A skip edge as commands and error messages write it.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { formatEdge } from "@troupe/troupe/schedules";
 *
 * strictEqual(formatEdge({ from: 0, to: [2, 3] }), "0>2+3");
 * ```
 */
export function formatEdge({ from, to }: SkipEdge): string {
  return `${from}>${to.join("+")}`;
}

/**
 * Refuses skip edges that no model cut into so many stages can have.
 *
 * @throws {RangeError} if a stage is not there, a size is not usable, or a value goes to an earlier
 * stage, whose forward would wait for itself; the text names the circle action by action.
 */
export function checkEdges(edges: readonly SkipEdge[], stages: number): void {
  for (const edge of edges) {
    const { from, to, bytes = 0 } = edge;
    const refuse = (must: string, received: string | number): never => {
      throw new RangeError(
        `Cannot use the skip edge ${formatEdge(edge)}: ${must}, received ${received}`,
      );
    };
    for (const stage of [from, ...to]) {
      if (Number.isInteger(stage) && stage >= 0 && stage < stages) continue;
      refuse(`its stages must be whole numbers from 0 to ${stages - 1}`, stage);
    }
    if (to.length === 0) refuse("a stage must use its value", "none");
    const early = to.find((stage) => stage <= from);
    if (early === from) refuse("its value must go to another stage", early);
    if (early !== undefined) refuse("its value must go to a later stage", circle(from, early));
    if (to.some((stage, i) => i > 0 && stage <= to[i - 1]!)) {
      refuse("the stages that use its value must ascend", to.join("+"));
    }
    if (!(bytes >= 0 && bytes < Infinity)) {
      refuse("its bytes must be a finite number from 0", bytes);
    }
  }
}

/** The forwards that would wait for each other. */
function circle(from: number, to: number): string {
  const waits = [`${to}F0 waits for ${from}F0`];
  for (let stage = from; stage > to; stage--) {
    if (waits.length < CIRCLE_SHOWN) waits.push(`${stage}F0 waits for ${stage - 1}F0`);
    else if (stage === to + 1) waits.push("…", `${stage}F0 waits for ${to}F0`);
  }
  return `a circle: ${waits.join(", ")}`;
}

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
