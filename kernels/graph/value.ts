/**
 * Values of graphs, and the nodes that compute them.
 *
 * @module
 */

import { assertInput, refusal } from "../errors.ts";
import { type DType, HOST_ARRAYS, type HostArray } from "../devices/device.ts";
import { checkElements, elementCount, type Ints } from "./shapes.ts";

/** The name, dtype and shape of a tensor. */
export interface TensorSpec {
  /** Its name. */
  readonly name: string;
  /** The type of its elements. */
  readonly dtype: DType;
  /** Its sizes; empty for a scalar. */
  readonly shape: Ints;
}

/** A tensor in a graph: an input, a constant, or the output of a node. */
export interface Value extends TensorSpec {
  /** The node that computes it; absent for inputs and constants. */
  readonly node?: Node;
  /** The data of a constant. */
  readonly data?: HostArray;
}

/** An operand of an operation; a number is a constant with the type of the other operand. */
export type Operand = Value | number;

/** A method that adds an operation on a value. */
export type Unary = (a: Value) => Value;

/** A method that adds an operation on two values, or on a value and a number. */
export type Binary = (a: Operand, b: Operand) => Value;

/** An attribute of an ONNX node. Numbers are integers unless wrapped in `{ float }`. */
export type Attribute = number | string | Ints | { readonly float: number };

/** One ONNX operation. */
export interface Node {
  /** Its index in {@linkcode Graph.nodes}. */
  readonly id: number;
  /** Name of the operation in ONNX. */
  readonly op: string;
  /** Its domain: empty for ONNX's own operations, `com.microsoft` or `troupe`. */
  readonly domain: string;
  /** Its inputs. */
  readonly inputs: readonly Value[];
  /** Its outputs. */
  readonly outputs: readonly Value[];
  /** Its attributes. */
  readonly attributes: Readonly<Record<string, Attribute>>;
}

/** The type and sizes of a tensor. */
export type ValueType = Pick<Value, "dtype" | "shape">;

/** The attributes of a node. */
export type Settings = Pick<Node, "attributes">;

/** Returns a number among the attributes of a node. */
export function numberOf({ attributes }: Settings, name: string, otherwise: number): number {
  const found = attributes[name];
  if (typeof found === "object" && "float" in found) return found.float;
  return typeof found === "number" ? found : otherwise;
}

/** Returns a list of numbers among the attributes of a node. */
export function numbersOf({ attributes }: Settings, name: string): Ints | undefined {
  const found = attributes[name];
  return Array.isArray(found) ? found : undefined;
}

/** Returns a text among the attributes of a node. */
export function textOf({ attributes }: Settings, name: string, otherwise: string): string {
  const found = attributes[name];
  return typeof found === "string" ? found : otherwise;
}

/** Operator domain of ONNX Runtime. */
export const MICROSOFT = "com.microsoft";

/** Operator domain of Troupe. Devices compute its operations in different ways; see `lower.ts`. */
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
 * | `ConvWeightGrad`, with the attributes of Conv | narrow image, wide image | d weight |
 * | `MaxPoolGrad`, with the attributes of MaxPool | dy, x | dx |
 * | `CrossEntropy` | logits [n, classes], targets [n], −1 if nothing is predicted | losses [n] |
 * | `RoundBf16`, to the nearest BF16 number, in f32 | x | x |
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
  | "RoundBf16"
  | "AdamW";

/** Numbers of the element types in ONNX. */
export const ONNX_DTYPE = { f32: 1, i32: 6, i64: 7, bool: 9, f16: 10 } as const;

/** Returns the element type with a number in ONNX; undefined if devices do not support it. */
export const dtypeNumbered = (number: number | undefined): DType | undefined =>
  (Object.keys(ONNX_DTYPE) as DType[]).find((dtype) => ONNX_DTYPE[dtype] === number);

/** A graph of nodes; {@linkcode Graph} adds a method for each operation. */
export class NodeGraph {
  /** The nodes in the order of their addition, which is topological. */
  readonly nodes: Node[] = [];
  /** The inputs in the order of their addition. */
  readonly inputs: Value[] = [];
  /** The nodes of {@linkcode Graph.stopGradient}. */
  readonly stops: Set<Node> = new Set();
  readonly #own = new WeakSet<Value>();
  readonly #inputNames = new Set<string>();
  #names = 0;
  #scalars = new Map<string, Value>();

  /** Adds a named input. Names must be unique in the graph. */
  input(name: string, shape: Ints, dtype: DType = "f32"): Value {
    const isNew = !this.#inputNames.has(name);
    assertInput(isNew, "add input", "its name must be unique", `"${name}" twice`, TypeError);
    checkElements(shape);
    const value: Value = { name, shape, dtype };
    this.#inputNames.add(name);
    this.inputs.push(value);
    this.#own.add(value);
    return value;
  }

  /** Adds a constant, which becomes part of the model. */
  constant(data: HostArray, shape: Ints, dtype: DType = "f32"): Value {
    checkElements(shape);
    const elements = elementCount(shape),
      must = `shape [${shape}] must have ${elements} elements`;
    assertInput(data.length === elements, "add constant", must, data.length);
    const Kind = HOST_ARRAYS[dtype], type = `the data of ${dtype} must be ${Kind.name}`;
    assertInput(data instanceof Kind, "add constant", type, data.constructor.name, TypeError);
    const value: Value = { name: `c${this.#names++}`, shape, dtype, data };
    this.#own.add(value);
    return value;
  }

  /** Returns whether a value belongs to this graph. */
  owns(value: Value): boolean {
    return this.#own.has(value);
  }

  /**
   * Adds a constant scalar, f32 by default; equal scalars share one constant.
   *
   * @throws {RangeError} when the type has no such number, such as a fraction in i32.
   */
  scalar(value: number, dtype: DType = "f32"): Value {
    return this.#scalars.getOrInsertComputed(`${dtype} ${value}`, () => {
      const data = dtype === "i64"
        ? BigInt64Array.of(BigInt(Number.isInteger(value) ? value : 0))
        : HOST_ARRAYS[dtype].of(dtype === "bool" ? Number(value !== 0) : value);
      const nearest = Number(data[0]);
      if (nearest === value || dtype.startsWith("f") && Number.isFinite(nearest)) {
        return this.constant(data, [], dtype);
      }
      throw refusal("add a constant", `its value must be a number that ${dtype} holds`, value);
    });
  }

  /** Adds a constant int64 list, such as a shape or axes; equal lists share one constant. */
  int64(values: Ints): Value {
    return this.#scalars.getOrInsertComputed(
      `i64 ${values}`,
      () => this.constant(BigInt64Array.from(values, BigInt), [values.length], "i64"),
    );
  }

  /**
   * Adds an ONNX node. `outputs` are its shapes, with dtypes if they differ from the first input.
   *
   * Gradients flow only through operations with a gradient; other operations may be used elsewhere.
   */
  node(
    op: string,
    inputs: readonly Value[],
    outputs: readonly (Ints | { shape: Ints; dtype: DType })[],
    attributes: Record<string, Attribute> = {},
    domain = "",
  ): Value[] {
    const values: Value[] = [];
    const node: Node = { id: this.nodes.length, op, domain, inputs, outputs: values, attributes };
    for (const output of outputs) {
      const { shape, dtype } = "shape" in output
        ? output
        : { shape: output, dtype: inputs[0]?.dtype ?? "f32" as const };
      checkElements(shape);
      values.push({ name: `${op}_${this.#names++}`, shape, dtype, node });
    }
    this.nodes.push(node);
    for (const value of values) this.#own.add(value);
    return values;
  }
}

/**
 * Returns operands as values: numbers become constants with the dtype of the values, by default f32.
 *
 * @throws {TypeError} when values differ in dtype.
 */
export function operandsOf<All extends readonly Operand[]>(
  g: NodeGraph,
  op: string,
  ...all: All
): { [Place in keyof All]: Value } {
  const [first, ...rest] = all.filter((one) => typeof one !== "number");
  const other = rest.find(({ dtype }) => dtype !== first!.dtype);
  if (other) {
    const must = "its operands must have one type (convert with g.cast(x, dtype))";
    throw refusal(`compute ${op}`, must, `${first!.dtype} and ${other.dtype}`, TypeError);
  }
  const values = all.map((one) => typeof one === "number" ? g.scalar(one, first?.dtype) : one);
  return values as { [Place in keyof All]: Value };
}

/**
 * Returns the nodes of `graph` that `outputs` need if `inputs` are given, in topological order.
 *
 * @throws {TypeError} when an output needs an input of the graph that is not in `inputs`.
 */
export function sliceNodes(
  graph: NodeGraph,
  inputs: readonly Value[],
  outputs: readonly Value[],
): Node[] {
  const given = new Set(inputs);
  const needed = new Set<Node>();
  const pending = [...outputs];
  while (pending.length > 0) {
    const value = pending.pop()!;
    if (given.has(value) || value.data || (value.node && needed.has(value.node))) continue;
    if (!value.node) {
      throw new TypeError(`Cannot cut a model: the input "${value.name}" must be among its inputs`);
    }
    needed.add(value.node);
    pending.push(...value.node.inputs);
  }
  return graph.nodes.filter((node) => needed.has(node));
}
