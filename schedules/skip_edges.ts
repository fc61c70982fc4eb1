/** Skip edges: values that go beyond the next stage, and the routes that they and their gradients take. */

import type { ActionKind } from "./action.ts";
import { assertInput } from "./errors.ts";

/** A value that a stage uses in addition to the output of the stage before. */
export interface SkipEdge {
  /** The stage that makes it. */
  readonly from: number;
  /** The stages that use it, ascending, all of them later ones. */
  readonly to: readonly number[];
  /** Bytes of the value for one micro-batch, and of its gradient. Default 0. */
  readonly bytes?: number | undefined;
  /** False if no gradient comes back, as for masks and ids. Default true. */
  readonly hasGradient?: boolean | undefined;
}

/** Waits of a circle that are listed in full. */
const CIRCLE_SHOWN = 8;

/**
 * Formats a skip edge for commands and error messages.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 *
 * strictEqual(formatEdge({ from: 0, to: [2, 3] }), "0>2+3");
 * ```
 */
export function formatEdge({ from, to }: SkipEdge): string {
  return `${from}>${to.join("+")}`;
}

/**
 * Checks the skip edges of a model with the given number of stages.
 *
 * @throws {RangeError} if a stage does not exist, a size is not usable, or a value goes to an earlier
 * stage, whose forward would wait for itself; the text names the circle action by action.
 */
export function checkEdges(edges: readonly SkipEdge[], stages: number): void {
  for (const edge of edges) {
    const { from, to, bytes = 0 } = edge;
    const check = (holds: boolean, must: string, received: string | number) =>
      assertInput(holds, `use the skip edge ${formatEdge(edge)}`, must, received);
    for (const stage of [from, ...to]) {
      const isStage = Number.isInteger(stage) && stage >= 0 && stage < stages;
      check(isStage, `its stages must be whole numbers from 0 to ${stages - 1}`, stage);
    }
    check(to.length > 0, "a stage must use its value", "none");
    const early = to.find((stage) => stage <= from) ?? Infinity;
    check(early !== from, "its value must go to another stage", early);
    check(early > from, "its value must go to a later stage", circle(from, early));
    const isAscending = to.every((stage, i) => i === 0 || stage > to[i - 1]!);
    check(isAscending, "the stages that use its value must ascend", to.join("+"));
    check(bytes >= 0 && bytes < Infinity, "its bytes must be a finite number from 0", bytes);
  }
}

/** The forwards that would wait for each other, as text. */
function circle(from: number, to: number): string {
  const waits = [`${to}F0 waits for ${from}F0`];
  for (let stage = from; stage > to; stage--) {
    if (waits.length < CIRCLE_SHOWN) waits.push(`${stage}F0 waits for ${stage - 1}F0`);
    else if (stage === to + 1) waits.push("…", `${stage}F0 waits for ${to}F0`);
  }
  return `a circle: ${waits.join(", ")}`;
}

/**
 * A route from a stage that sends values or gradients to a stage that waits for them.
 *
 * [Note: the route of a gradient] A value's gradient is the sum over all stages that use the value. It
 * goes from the last of them to the one before and on to the maker, and each adds its own part: one
 * order of the sum on any number of workers, and a stage waits only for the next stage that uses the
 * value.
 */
export interface SkipRoute {
  /** Its number, after those of the edges between neighbouring stages: from `stages` on. */
  readonly number: number;
  /** The stage that sends. */
  readonly from: number;
  /** The stage that waits. */
  readonly to: number;
  /** True for outputs of forwards, false for gradients. */
  readonly isForward: boolean;
  /** Indices of the edges whose values take it. */
  readonly edges: readonly number[];
}

/** The routes between stages, each once, even if several values take it. */
export function skipRoutes(stages: number, edges: readonly SkipEdge[] = []): SkipRoute[] {
  const routes = new Map<string, SkipRoute & { readonly edges: number[] }>();
  const add = (from: number, to: number, isForward: boolean, edge: number) => {
    const key = `${from} ${to} ${isForward}`, known = routes.get(key);
    if (known !== undefined) known.edges.push(edge);
    else routes.set(key, { number: stages + routes.size, from, to, isForward, edges: [edge] });
  };
  edges.forEach(({ from, to, hasGradient = true }, edge) => {
    to.forEach((stage, i) => {
      add(from, stage, true, edge);
      if (hasGradient) add(stage, to[i - 1] ?? from, false, edge);
    });
  });
  return [...routes.values()];
}

/**
 * For each stage the routes that begin or end there; undefined for a chain.
 *
 * @param joinsNeighbours True to omit routes between neighbouring stages, whose values travel in the
 * messages of the chain.
 */
export function stageRoutes(
  stages: number,
  edges?: readonly SkipEdge[],
  joinsNeighbours = false,
) {
  if (edges === undefined || edges.length === 0) return undefined;
  const routes = skipRoutes(stages, edges)
    .filter(({ from, to }) => !joinsNeighbours || Math.abs(from - to) > 1);
  const by = (isForward: boolean, end: "from" | "to") =>
    Map.groupBy(routes.filter((one) => one.isForward === isForward), (route) => route[end]);
  const [toForward, fromForward] = [by(true, "to"), by(true, "from")];
  const [toBackward, fromBackward] = [by(false, "to"), by(false, "from")];
  return Array.from({ length: stages }, (_, stage) => ({
    /** Routes that its forward waits for. */
    toForward: toForward.get(stage) ?? [],
    /** Routes that its backward waits for. */
    toBackward: toBackward.get(stage) ?? [],
    /** Routes over which its values leave. */
    fromForward: fromForward.get(stage) ?? [],
    /** Routes over which gradients leave. */
    fromBackward: fromBackward.get(stage) ?? [],
  }));
}

/** The routes that begin or end at a stage. */
export type StageRoutes = NonNullable<ReturnType<typeof stageRoutes>>[number];

/** The routes over which the output of an action of a stage leaves. */
export function leaving(
  routes: readonly StageRoutes[],
  kind: ActionKind,
  stage: number,
): readonly SkipRoute[] {
  if (kind === "W" || kind === "R") return [];
  const { fromForward, fromBackward } = routes[stage]!;
  return kind === "F" ? fromForward : fromBackward;
}
