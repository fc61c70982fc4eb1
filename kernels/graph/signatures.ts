/**
 * The arguments of the methods of a graph, each checked before its method runs.
 *
 * @module
 */

import type { NodeGraph, Value } from "./value.ts";

/**
 * Methods, each by its arguments: those with a question mark may be left out, and what follows a
 * colon is the kind of one that {@linkcode KINDS} does not know by its name.
 */
export const SIGNATURES: Readonly<Record<string, string>> = signaturesOf(`
  add|sub|mul|div|pow|mod|minimum|maximum(a: operand, b: operand)
  equal|greater|greaterOrEqual|less|lessOrEqual(a: operand, b: operand)
  where(condition, a: operand, b: operand)  prelu(a: real, slope: operand)
  and|or|xor(p, q)  not(p)  neg|abs|sign|relu|stopGradient(a)  cast(a, dtype)
  reciprocal|floor|ceil|round|exp|log|sqrt|sin|cos|tanh|erf|sigmoid|isNaN(a: real)
  softplus|softsign|silu|hardSwish|mish(a: real)  leakyRelu|elu(a: real, alpha?)
  hardSigmoid(a: real, alpha?, beta?)  selu(a: real, alpha?, gamma?)
  gelu(a: real, approximate?)  clip(a: real, low?, high?)
  reshape(a, shape: list)  expand(a, shape)  flatten(a, axis?)  transpose(a, permutation)
  split(a, axis: place, parts)  concat(values, axis)  cut(a, starts, ends, axes?, steps?)
  tile(a, repeats)  triangle(a, which, diagonal?)  depthToSpace(a, block, mode?: layout)
  gather(table, indices, axis?: place)  gatherElements(a, indices, axis: place)
  gatherND(a, indices)  scatterElements(base, indices, updates, axis: place, reduction?)
  scatterND(base, indices, updates, reduction?)  scatterAdd(base, indices, updates)
  scatterAddColumns(base, columns, updates)  oneHot(indices, size, options?)
  matmul(a, b, options?)  gemm(a, b, c?, options?)  einsum(equation, operands)
  sum|mean|sumOfSquares|max|min|sumOfAbsolutes|norm|logSumExp|product(a, axes?, keep?)
  argMax(a, axis: place, keep?)  cumulativeSum(a, axis: place, options?)
  softmax|logSoftmax(a: real, axis?: place)  crossEntropy(logits, targets)
  conv|convTranspose(x, weight, bias?, options?)  maxPool|averagePool(x, kernel, options?)
  globalAveragePool|globalMaxPool(x)  upsample(x: value, factors)  resize(x, sizes, options?)
  pad(x: value, pads: list, value?: filling)  rmsNorm(x, weight, epsilon?)
  layerNorm|instanceNorm(x, weight, bias, epsilon?)  groupNorm(x, groups, weight, bias, epsilon?)
  batchNorm(x, weight, bias, statistics?, epsilon?)
  input(name, shape, dtype?)  constant(data, shape, dtype?)  scalar(value: number, dtype?)
  int64(values: list)  node(op, inputs)
`);

/** The arguments of each method of a text. */
export function signaturesOf(text: string): Record<string, string> {
  const all = [...text.matchAll(/([\w|]+)\((.*?)\)/g)];
  return Object.fromEntries(
    all.flatMap(([, names, given]) => names!.split("|").map((name) => [name, given!])),
  );
}

// deno-lint-ignore no-explicit-any -- a test is of whatever a method is given
type Test = (given: any, g: NodeGraph, shape: readonly number[]) => boolean;

/** What an argument must be, where # stands for the shape of the first one, and the test of it. */
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

/** The kinds of arguments, and of fields of options, by name. */
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
    "options statistics": ["a record", isRecord],
  }).flatMap(([names, kind]) => names.split(" ").map((name) => [name, kind])),
);

/**
 * Makes methods of a class of graphs check what they are called with.
 *
 * @throws {TypeError} {@linkcode RangeError} from these methods, naming the method and the argument.
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

/** Checks an argument, and the fields of a record: one that no method reads must be left out. */
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

/** How layers have values of each other. */
export const GIVE_AND_TAKE =
  "; a layer gives a value with g.give(name, value), and later ones have it of g.take(name)";

/** What was given, as messages show it. */
function shown(given: unknown, g: NodeGraph): string {
  if (Array.isArray(given)) return `[${given.slice(0, 20).map((one) => shown(one, g))}]`;
  if (typeof given === "string") return JSON.stringify(given.slice(0, 100));
  if (typeof given !== "object" || given === null) return String(given).slice(0, 100);
  const { name, dtype, shape } = given as Partial<Value>;
  if (g.owns(given as Value)) return `${dtype} [${shape}]`;
  if (dtype === undefined) return given.constructor?.name ?? "a record";
  return `${JSON.stringify(name)} of another${GIVE_AND_TAKE}`;
}
