/** One model for each operation that Troupe uses, of any size, to compare devices with. */

import assert from "node:assert/strict";
import type { DType } from "../../../kernels/devices/device.ts";
import { Graph } from "../../../kernels/ops/graph.ts";
import { elementCount } from "../../../kernels/graph/shapes.ts";
import { type Attribute, MICROSOFT } from "../../../kernels/graph/value.ts";
import { hostArray, modelOf, pseudoRandom } from "./models.ts";
import table from "./operator_cases.json" with { type: "json" };

/** An operand: random numbers in a range, or given numbers as a constant of the model. */
export interface Operand {
  readonly shape: readonly number[];
  readonly dtype: DType;
  /** Random numbers are in low .. high; whole ones for integer dtypes. */
  readonly range: readonly [low: number, high: number];
  readonly constant?: readonly number[];
}

/** One operation on operands of some shapes. */
export interface OperatorCase {
  readonly op: string;
  readonly domain: string;
  readonly inputs: readonly Operand[];
  readonly outputs: readonly Operand[];
  readonly attributes: Readonly<Record<string, Attribute>>;
}

/** Random sizes of the axes of a case. */
export type Sizes = Readonly<Record<"b" | "n" | "m" | "k", number>>;

const RANGES: Readonly<Record<DType, readonly [number, number]>> = {
  ...{ f32: [-2, 2], f16: [-2, 2], i32: [-5, 5], i64: [-1000, 1000], bool: [0, 1] },
};

/** A number, or a sum of products of sizes: `2n`, `m-1`, `mk`; `h` is half of n and one more. */
function valueOf(text: string, sizes: Sizes): number {
  if (text === "NaN" || !Number.isNaN(Number(text))) return Number(text);
  const all: Record<string, number> = { ...sizes, h: Math.floor(sizes.n / 2) + 1 };
  const values = text.split(/(?=[+-])/).map((term) => {
    const [, sign, count, names] = /^([+-]?)(\d*)(\w*)$/.exec(term)!;
    return [...names!].reduce((a, name) => a * all[name]!, Number(`${sign}${count || 1}`));
  });
  return values.reduce((a, b) => a + b);
}

/** `dtype[shape]`, of the dtype's range, of another one, `:low..high`, or constant, `=1,2`. */
function operandOf(text: string, sizes: Sizes): Operand {
  const [, dtype, shape, range, constant] = /^(\w+)\[(.*?)\](?::(.*))?(?:=(.*))?$/.exec(text)!;
  const list = (text: string, separator: string) =>
    text === "" ? [] : text.split(separator).map((one) => valueOf(one, sizes));
  const [low, high] = range ? list(range, "..") : RANGES[dtype as DType];
  return {
    ...{ dtype: dtype as DType, shape: list(shape!, ","), range: [low!, high!] },
    ...constant !== undefined && { constant: list(constant, ",") },
  };
}

/** A case of these sizes; its name begins with its operation. */
export function parseCase(
  name: string,
  io: string,
  sizes: Sizes,
  attributes: OperatorCase["attributes"] = {},
): OperatorCase {
  const op = /^\w+/.exec(name)![0];
  const domain = /^(FusedMatMul|FastGelu|QuickGelu)$/.test(op) ? MICROSOFT : "";
  const [inputs, outputs] = io.split(" -> ").map((side) =>
    side.split(" ").map((one) => operandOf(one, sizes))
  );
  return { op, domain, inputs: inputs!, outputs: outputs!, attributes };
}

type Row = string | readonly [io: string, attributes: OperatorCase["attributes"]];

/** The cases by name. */
export const OPERATOR_CASES: Record<string, (sizes: Sizes) => OperatorCase> = Object.fromEntries(
  Object.entries(table as unknown as Record<string, Row>).map(([name, row]) => {
    const [io, attributes] = typeof row === "string" ? [row] : row;
    return [name, (sizes) => parseCase(name, io, sizes, attributes)];
  }),
);

/** Numbers for an operand. */
export function numbersFor({ shape, dtype, range: [low, high] }: Operand, seed: number): number[] {
  const isWhole = dtype !== "f32" && dtype !== "f16";
  return pseudoRandom(seed, elementCount(shape)).map((random) => {
    const unit = (random + 1) / 2;
    return isWhole ? low + Math.floor(unit * (high - low + 1)) : low + unit * (high - low);
  });
}

/** The model of a case, with inputs x0, x1, … and outputs y0, y1, … */
export function modelFor({ op, domain, inputs, outputs, attributes }: OperatorCase): Uint8Array {
  const g = new Graph();
  const operands = inputs.map(({ shape, dtype, constant }, i) =>
    constant ? g.constant(hostArray(dtype, constant), shape, dtype) : g.input(`x${i}`, shape, dtype)
  );
  const results = g.node(op, operands, outputs, attributes, domain);
  return modelOf(g, Object.fromEntries(results.map((value, i) => [`y${i}`, value])));
}

/** Holds numbers to what must be, relative to the larger of 1 and that. */
export function assertNear(
  got: ArrayLike<number>,
  wanted: ArrayLike<number>,
  tolerance: number,
  what: string,
): void {
  for (let i = 0; i < wanted.length; i++) {
    const want = wanted[i]!, distance = Math.abs(got[i]! - want) / Math.max(1, Math.abs(want));
    assert.ok(distance <= tolerance, `${what}[${i}] is ${got[i]} and must be ${want}`);
  }
}
