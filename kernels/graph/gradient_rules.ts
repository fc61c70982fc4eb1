/**
 * The gradient of every op that can be trained through, as ONNX nodes in the same graph.
 *
 * A rule gets the node and the cotangents of its outputs (absent where nothing depends on that
 * output) and returns those of its inputs. Inputs that need no gradient are not computed.
 *
 * @module
 */

import { ELEMENTWISE } from "./gradients/elementwise.ts";
import { GATHERS } from "./gradients/gathers.ts";
import { LOSSES } from "./gradients/losses.ts";
import { MOVES } from "./gradients/moves.ts";
import { NORMALIZATION } from "./gradients/normalization.ts";
import { PRODUCTS } from "./gradients/products.ts";
import { REDUCTIONS } from "./gradients/reductions.ts";
import { flat, type GradientRule } from "./gradients/rule.ts";
import { WINDOWS } from "./gradients/windows.ts";

export { type GradientRule, isZeros, zeros } from "./gradients/rule.ts";

/** Gradient rules by ONNX op. */
export const GRADIENTS: Readonly<Record<string, GradientRule>> = {
  ...ELEMENTWISE,
  ...MOVES,
  ...GATHERS,
  ...PRODUCTS,
  ...REDUCTIONS,
  ...NORMALIZATION,
  ...WINDOWS,
  ...LOSSES,
};

/** ONNX's operations whose results are whole numbers or truths, or that read no others. */
const WHOLE: ReadonlySet<string> = new Set([
  ...["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "IsNaN"],
  ...["And", "Or", "Xor", "Not", "ArgMax", "ArgMin", "OneHot"],
]);

/** Whether nothing is trained through an operation of ONNX, as its slope is 0 or it has none. */
export const isFlat = (op: string): boolean => WHOLE.has(op) || GRADIENTS[op] === flat;
