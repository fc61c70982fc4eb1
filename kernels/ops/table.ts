/**
 * Table of all operations.
 *
 * @module
 */

import { ONNX_DOMAIN } from "../onnx/read_file.ts";
import { ELEMENTWISE, ELEMENTWISE_METHODS } from "./elementwise.ts";
import { GATHER_METHODS, GATHERS } from "./gathers.ts";
import { IMAGE_METHODS, IMAGES } from "./images.ts";
import { MOVE_METHODS, MOVES } from "./moves.ts";
import { NORMALIZATION, NORMALIZATION_METHODS } from "./normalization.ts";
import { flat, type GradientRule, type Methods, type Op, type Ops } from "./op.ts";
import { PRODUCT_METHODS, PRODUCTS } from "./products.ts";
import { REDUCTION_METHODS, REDUCTIONS } from "./reductions.ts";
import { WINDOW_METHODS, WINDOWS } from "./windows.ts";

/** The families of operations. */
export const FAMILIES: Readonly<Record<string, Ops>> = {
  "Elements": ELEMENTWISE,
  "Products": PRODUCTS,
  "Reductions": REDUCTIONS,
  "Normalization": NORMALIZATION,
  "Moves": MOVES,
  "Gathers": GATHERS,
  "Windows": WINDOWS,
  "Images": IMAGES,
};

/** All operations by name; names in other domains than ONNX's own start with the domain. */
export const OPS: Ops = Object.assign({}, ...Object.values(FAMILIES));

/** Functions that add operations, by the names of the methods of a graph. */
export const METHODS: Methods = {
  ...ELEMENTWISE_METHODS,
  ...PRODUCT_METHODS,
  ...REDUCTION_METHODS,
  ...NORMALIZATION_METHODS,
  ...MOVE_METHODS,
  ...GATHER_METHODS,
  ...WINDOW_METHODS,
  ...IMAGE_METHODS,
};

/** Returns an operation by its name and domain; undefined if it is not known. */
export function opOf(name: string | undefined, domain = ""): Op | undefined {
  const full = domain === "" || domain === ONNX_DOMAIN ? name ?? "" : `${domain}.${name}`;
  return Object.hasOwn(OPS, full) ? OPS[full] : undefined;
}

/** Gradient rules by operation, without its domain. */
export const GRADIENTS: Readonly<Record<string, GradientRule>> = Object.fromEntries(
  Object.entries(OPS).flatMap(([name, { gradient }]) =>
    gradient ? [[name.slice(name.lastIndexOf(".") + 1), gradient]] : []
  ),
);

/** Returns whether nothing is trained through an operation: its slope is 0 or undefined. */
export const isFlat = (op: string): boolean => GRADIENTS[op] === flat;
