/** What the cases of operations are made of. */

import type { DType } from "../../../kernels/devices/device.ts";
import type { Attribute } from "../../../kernels/graph/value.ts";

/** An operand: random numbers in a range, or given ones that become a constant of the model. */
export interface Operand {
  readonly shape: readonly number[];
  readonly dtype: DType;
  /** Random numbers lie in low .. high; whole ones for integer dtypes. */
  readonly range?: readonly [low: number, high: number];
  readonly constant?: readonly number[];
}

/** One operation on operands of some shapes. */
export interface OperatorCase {
  readonly op: string;
  readonly domain?: string;
  readonly inputs: readonly Operand[];
  readonly outputs: readonly { shape: readonly number[]; dtype: DType }[];
  readonly attributes?: Record<string, Attribute>;
}

/** Random sizes of the axes of a case. */
export interface Sizes {
  readonly b: number;
  readonly n: number;
  readonly m: number;
  readonly k: number;
}

export type Shape = readonly number[];

export const of = (shape: Shape, dtype: DType, low: number, high: number): Operand => ({
  shape,
  dtype,
  range: [low, high],
});
export const f32 = (...shape: Shape) => of(shape, "f32", -2, 2);
export const positive = (...shape: Shape) => of(shape, "f32", 0.5, 3);
export const f16 = (...shape: Shape) => of(shape, "f16", -2, 2);
export const i32 = (...shape: Shape) => of(shape, "i32", -5, 5);
export const bool = (...shape: Shape) => of(shape, "bool", 0, 1);
/** Indices of an axis of `size`. */
export const index = (size: number, dtype: "i32" | "i64", ...shape: Shape) =>
  of(shape, dtype, 0, size - 1);
/** Constant int64 numbers: shapes, axes. */
export const ints = (...constant: number[]): Operand => ({
  shape: [constant.length],
  dtype: "i64",
  constant,
});
export const out = (shape: Shape, dtype: DType = "f32") => ({ shape, dtype });

export type Cases = Record<string, (sizes: Sizes) => OperatorCase>;
