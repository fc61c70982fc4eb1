/**
 * Which messages an action waits for, and to which stages its values go.
 *
 * Along the chain there is always one message, with the fields of the micro-batch on its way forward,
 * even where a layer hands nothing on. What is given by name goes straight to the stages that use it,
 * and its gradient from each of them to the one that used it before.
 *
 * @module
 */

import {
  isSkip,
  keyed,
  type Passed,
  passedOf,
  type StageSkip,
  type ValueArray,
} from "../../../kernels/mod.ts";

/** A stage in the chain, and what crosses its border by name. */
export interface RoutedStage {
  readonly stage: number;
  /** Whether it ends with the loss. */
  readonly isLast: boolean;
  readonly skips: readonly StageSkip[];
}

/** The way of the values: forward, or of the gradients back. */
export type Way = "F" | "B";

/** How many messages an F, or a B or I, waits for. On the last stage nobody brings a gradient. */
export function messagesOf({ stage, isLast, skips }: RoutedStage, way: Way): number {
  const sources = skips.map(({ from, gradientFrom }) => way === "F" ? from : gradientFrom);
  const chain = way === "F" ? stage - 1 : isLast ? undefined : stage + 1;
  return new Set([...sources, chain].filter((one) => one !== undefined && one >= 0)).size;
}

/** What goes to each stage, the next of the chain first. */
export function routesOf(
  { stage, skips }: RoutedStage,
  way: Way,
  passed: Passed,
): ReadonlyMap<number, Passed> {
  const next = way === "F" ? stage + 1 : stage - 1;
  if (skips.length === 0) return new Map([[next, passed]]);
  const values = keyed(passed), routes = new Map<number, Record<string, ValueArray>>();
  if (next >= 0) routes.set(next, {});
  for (const [key, array] of Object.entries(values)) {
    const skip = isSkip(key) ? skips.find((one) => one.key === key)! : undefined;
    const to = !skip ? [next] : way === "F" ? skip.to : [skip.gradientTo!];
    for (const [i, one] of to.entries()) {
      const record = routes.get(one) ?? {};
      // Each message takes its array along.
      record[key] = i < to.length - 1 ? array.slice() : array;
      routes.set(one, record);
    }
  }
  return new Map([...routes].map(([to, record]) => [to, passedOf(record)]));
}
