/**
 * The operations of ONNX files that become operations of a graph.
 *
 * @module
 */

import type { ImportOp } from "./call.ts";
import { ELEMENTWISE_OPS } from "./elementwise.ts";
import { IMAGE_OPS } from "./images.ts";
import { MOVE_OPS } from "./moves.ts";
import { PRODUCT_OPS } from "./products.ts";
import { REDUCTION_OPS } from "./reductions.ts";

/** By ONNX's names; those of another domain than ONNX's own begin with it. */
export const IMPORT_OPS: Readonly<Record<string, ImportOp>> = {
  ...ELEMENTWISE_OPS,
  ...MOVE_OPS,
  ...PRODUCT_OPS,
  ...REDUCTION_OPS,
  ...IMAGE_OPS,
};

/** Inputs that are settings and never weights, by their places. */
export const SETTING_PLACES: Readonly<Record<string, readonly number[]>> = {
  Clip: [1, 2],
  Dropout: [1, 2],
  OneHot: [1, 2],
  Pad: [1, 2],
  Resize: [1, 2, 3],
};
