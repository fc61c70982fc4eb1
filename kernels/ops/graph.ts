/**
 * Graphs of ONNX operations with static shapes. Every method checks its arguments, adds nodes and
 * returns a value.
 *
 * @module
 */

import type { Ints } from "../graph/shapes.ts";
import type { NodeGraph, Value } from "../graph/value.ts";
import { Builder, METHOD_SIGNATURES } from "./builder.ts";
import { METHODS } from "./table.ts";

/** Parses signatures: returns the arguments of each method. */
export function signaturesOf(text: string): Record<string, string> {
  const all = [...text.matchAll(/([\w|]+)\((.*?)\)/g)];
  return Object.fromEntries(
    all.flatMap(([, names, given]) => names!.split("|").map((name) => [name, given!])),
  );
}

// deno-lint-ignore no-explicit-any -- arguments may have any type
type Test = (given: any, g: NodeGraph, shape: Ints) => boolean;

/** A requirement of an argument and its test; # is the shape of the first argument. */
type Kind = readonly [must: string, is: Test];

const isValue: Test = (given, g) => g.owns(given);
const isNumber: Test = (given) => typeof given === "number" && !Number.isNaN(given);
const isWhole = (given: unknown, least = -Infinity) =>
  Number.isInteger(given) && Number(given) >= least;
const isAxis: Test = (given, _, { length }) => isWhole(given, -length) && given < length;
const each = (is: Test): Test => (given, ...rest) =>
  Array.isArray(given) && given.every((one) => is(one, ...rest));
const isRecord: Test = (given) =>
  typeof given === "object" && given !== null && !("dtype" in given);

const valueOf = (...dtypes: readonly string[]): Kind => [
  `a value of this graph of ${dtypes.join(" or ")}`,
  (given, g) => g.owns(given) && dtypes.includes(given.dtype),
];
const word = (
  ...words: readonly unknown[]
): Kind => [words.join(" or "), (one) => words.includes(one)];
const either = (...kinds: readonly Kind[]): Kind => [
  kinds.map(([must]) => must).join(" or "),
  (...given) => kinds.some(([, is]) => is(...given)),
];
const VALUE: Kind = ["a value of this graph", isValue], NUMBER: Kind = ["a number", isNumber];
const WHOLE: Kind = ["a whole number", (given) => isWhole(given)];
const LIST: Kind = ["a list of whole numbers", each((one) => isWhole(one))];

/** Numbers of the initial values of a parameter, by kind. */
const INITIAL: Readonly<Record<string, readonly string[]>> = {
  normal: ["deviation"],
  uniform: ["low", "high"],
  constant: ["value"],
};

/** Kinds of arguments and of fields of options, by name. */
const KINDS: Readonly<Record<string, Kind>> = Object.fromEntries(
  Object.entries<Kind>({
    "a b c table base updates value": VALUE,
    "real x weight bias mean variance logits": valueOf("f32", "f16"),
    "condition p q": valueOf("bool"),
    "indices columns targets": valueOf("i32", "i64"),
    "inputs": ["a list of values of this graph", each(isValue)],
    "values operands": [
      "a list of values of this graph, not empty",
      (given, g, shape) => each(isValue)(given, g, shape) && given.length > 0,
    ],
    "operand": either(VALUE, NUMBER),
    "number alpha beta gamma epsilon low high on off probability": NUMBER,
    "size block groups": ["a whole number from 1", (given) => isWhole(given, 1)],
    "axis diagonal": WHOLE,
    "place": ["an axis of #", isAxis],
    "axes permutation": [
      "a list of axes of #, each once",
      (given, g, shape) =>
        each(isAxis)(given, g, shape) &&
        new Set(given.map((axis: number) => (axis + shape.length) % shape.length)).size ===
          given.length,
    ],
    "shape repeats": ["a list of whole numbers from 0", each((one) => isWhole(one, 0))],
    "list sizes starts steps": LIST,
    "ends": ["a list of numbers", each(isNumber)],
    "parts kernel factors strides dilations outputPadding": either(WHOLE, LIST),
    "pads": either(WHOLE, LIST, word("SAME_UPPER", "SAME_LOWER", "VALID")),
    "filling": either(NUMBER, word("edge", "reflect")),
    "keep transA transB ceilMode countIncludePad exclusive reverse": word(true, false),
    "dtype": word("f32", "f16", "i32", "i64", "bool"),
    "reduction": word("none", "add"),
    "approximate": word("tanh", "none"),
    "which": word("lower", "upper"),
    "layout": word("CRD", "DCR"),
    "mode": word("nearest", "linear"),
    "coordinates": word("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"),
    "nearest": word("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    "name equation op": ["text", (given) => typeof given === "string"],
    "data": ["a typed array", ArrayBuffer.isView],
    "initializer": [
      `a record with kind and numbers: ${
        Object.entries(INITIAL).map(([kind, names]) => `${kind} with ${names.join(" and ")}`)
          .join(", ")
      }`,
      (given, ...rest) =>
        INITIAL[given?.kind]?.every((name) => isNumber(given[name], ...rest)) ?? false,
    ],
    "options statistics": ["a record", isRecord],
  }).flatMap(([names, kind]) => names.split(" ").map((name) => [name, kind])),
);

/**
 * Adds checks of arguments to the methods of a class of graphs.
 *
 * @throws {TypeError} {@linkcode RangeError} (by these methods) with the method and the argument.
 */
export function checkCalls(
  prototype: NodeGraph,
  signatures: Readonly<Record<string, string>>,
): void {
  for (const [method, signature] of Object.entries(signatures)) {
    const call = Reflect.get(prototype, method) as (...given: unknown[]) => unknown;
    const parameters = signature.split(", ").map((one) => one.split(/(?=\?)|: /));
    const value = function (this: NodeGraph, ...given: unknown[]) {
      for (const [i, [name, ...more]] of parameters.entries()) {
        if (more[0] === "?" && given[i] === undefined) continue;
        const kind = KINDS[more.findLast((one) => one !== "?") ?? name!];
        check(`g.${method}: ${name}`, kind, given[i], this, given[0]);
      }
      return call.apply(this, given);
    };
    Object.defineProperty(prototype, method, { value, writable: true, configurable: true });
  }
}

/** Checks an argument, and the fields of a record. */
function check(
  name: string,
  [must, is]: Kind = ["left out", () => false],
  given: unknown,
  g: NodeGraph,
  first: unknown,
): void {
  const { shape = [] } = Object(first) as Partial<Value>;
  if (!is(given, g, shape)) {
    const isNumbers = [given].flat().every((one) => typeof one === "number");
    const Kind = isNumbers && /number|axis|axes/.test(must) ? RangeError : TypeError;
    throw new Kind(
      `Cannot call ${name} must be ${must.replace("#", `[${shape}]`)}, received ${shown(given, g)}`,
    );
  }
  for (const [field, one] of is === isRecord ? Object.entries(given as object) : []) {
    if (one !== undefined) check(`${name}.${field}`, KINDS[field], one, g, first);
  }
}

/** Advice in messages about values of other layers. */
export const GIVE_AND_TAKE =
  "; a layer gives a value with g.give(name, value), and later layers read it with g.take(name)";

/** Formats an argument for messages. */
function shown(given: unknown, g: NodeGraph): string {
  if (Array.isArray(given)) return `[${given.slice(0, 20).map((one) => shown(one, g))}]`;
  if (typeof given === "string") return JSON.stringify(given.slice(0, 100));
  if (typeof given !== "object" || given === null) return String(given).slice(0, 100);
  const { name, dtype, shape } = given as Partial<Value>;
  if (g.owns(given as Value)) return `${dtype} [${shape}]`;
  if (dtype === undefined) return given.constructor?.name ?? "a record";
  return `${JSON.stringify(name)} of another${GIVE_AND_TAKE}`;
}

/**
 * A static-shape ONNX graph under construction.
 *
 * @example Build y = gelu(x·w + b)
 * ```ts
 * import assert from "node:assert/strict";
 * import { Graph } from "@troupe/troupe/kernels";
 *
 * const g = new Graph();
 * const x = g.input("x", [8, 4]);
 * const y = g.gelu(g.gemm(x, g.input("w", [4, 16]), g.input("b", [16])));
 * assert.deepEqual(y.shape, [8, 16]);
 * assert.throws(() => g.matmul(x, x), RangeError);
 * ```
 */
export class Graph extends Builder {}

for (const [name, add] of Object.entries(METHODS)) {
  const value = function (this: Graph, ...given: unknown[]) {
    return Reflect.apply(add, undefined, [this, ...given]);
  };
  Object.defineProperty(Graph.prototype, name, { value, configurable: true });
}

/** The methods of {@linkcode Graph} and their arguments; see {@linkcode checkCalls}. */
export const SIGNATURES: Readonly<Record<string, string>> = signaturesOf(METHOD_SIGNATURES);

checkCalls(Graph.prototype, SIGNATURES);
