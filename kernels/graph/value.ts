/**
 * What graphs are made of: values, and the nodes that compute them.
 *
 * @module
 */

import type { DType, HostArray } from "../devices/device.ts";

/** A tensor in a graph: an input, a constant, or the output of a node. */
export interface Value {
  /** Unique in its graph. */
  readonly name: string;
  /** The type of its elements. */
  readonly dtype: DType;
  /** Its sizes; empty for a scalar. */
  readonly shape: readonly number[];
  /** The node that computes it; absent for inputs and constants. */
  readonly node?: Node;
  /** The data of a constant. */
  readonly data?: HostArray;
}

/** What a method takes beside another value: a number is a constant of the type of that one. */
export type Operand = Value | number;

/** A method that adds an operation on a value. */
export type Unary = (a: Value) => Value;

/** A method that adds an operation on two values, or on a value and a number. */
export type Binary = (a: Operand, b: Operand) => Value;

/** An attribute of an ONNX node. Numbers are integers unless wrapped in `{ float }`. */
export type Attribute = number | string | readonly number[] | { readonly float: number };

/** One ONNX operation. */
export interface Node {
  /** Its place in {@linkcode Graph.nodes}. */
  readonly id: number;
  /** ONNX's name of the operation. */
  readonly op: string;
  /** Empty for ONNX's own operations, else {@linkcode MICROSOFT} or {@linkcode TROUPE}. */
  readonly domain: string;
  /** What it reads. */
  readonly inputs: readonly Value[];
  /** What it computes. */
  readonly outputs: readonly Value[];
  /** Its settings. */
  readonly attributes: Readonly<Record<string, Attribute>>;
}

/** A number among the attributes of a node. */
export function numberOf({ attributes }: Node, name: string, otherwise: number): number {
  const found = attributes[name];
  return typeof found === "object" && "float" in found ? found.float : found as number ?? otherwise;
}

/** ONNX Runtime's own operator domain. */
export const MICROSOFT = "com.microsoft";

/** Our own operator domain: each device says its operations in its own way, see `fused_ops.ts`. */
export const TROUPE = "troupe";

/**
 * The operations of {@linkcode TROUPE}:
 *
 * | op | inputs | outputs |
 * |---|---|---|
 * | `FastGeluGrad` | dy, x | dx |
 * | `SoftmaxGrad`, over the last axis | dy, y | dx |
 * | `LayerNormInputGrad`, over the last axis | dy, x, mean, 1/σ, weight | dx |
 * | `LayerNormWeightGrad` | dy, x, mean, 1/σ | d weight, d bias |
 * | `ConvWeightGrad`, with the attributes of Conv | of each window, all elements | d weight |
 * | `MaxPoolGrad`, with the attributes of MaxPool | dy, x | dx |
 * | `CrossEntropy` | logits [n, classes], targets [n], −1 where nothing is predicted | losses [n] |
 * | `AdamW`, with `beta1`, `rest1`, `beta2`, `rest2` | w, d, m, v, scale, decay, rate, epsilon | w, m, v |
 */
export type FusedOp =
  | "FastGeluGrad"
  | "SoftmaxGrad"
  | "LayerNormInputGrad"
  | "LayerNormWeightGrad"
  | "ConvWeightGrad"
  | "MaxPoolGrad"
  | "CrossEntropy"
  | "AdamW";

/** ONNX's numbers of the element types. */
export const ONNX_DTYPE: Readonly<Record<DType, number>> = {
  f32: 1,
  i32: 6,
  i64: 7,
  bool: 9,
  f16: 10,
};
