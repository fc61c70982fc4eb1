/** The skip edge: a value that goes from the stage that makes it straight to later ones. */

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
