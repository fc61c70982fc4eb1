/**
 * Gradients of losses.
 *
 * @module
 */

import type { Value } from "../value.ts";
import type { GradientRule } from "./rule.ts";

/**
 * d logits = (softmax − onehot(target))·dy, row by row; nothing for rows whose target is −1. What is
 * in brackets may be computed over the logits: see [Note: activations that are overwritten].
 */
const crossEntropy: GradientRule = (g, node, [dy]) => {
  const [logits, targets] = node.inputs as [Value, Value], column = [targets.shape[0]!, 1];
  const int = (value: number) => g.constant(Int32Array.of(value), [], "i32");
  const isPredicted = g.greater(targets, int(-1)), classes = g.where(isPredicted, targets, int(0));
  const difference = g.scatterAddColumns(
    g.softmax(logits),
    classes,
    g.expand(g.scalar(-1), column),
  );
  return [g.mul(difference, g.reshape(g.where(isPredicted, dy!, g.scalar(0)), column))];
};

/** Rules of losses. */
export const LOSSES: Readonly<Record<string, GradientRule>> = { CrossEntropy: crossEntropy };
