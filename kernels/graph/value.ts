/**
 * What graphs are made of: values, and the nodes that compute them.
 *
 * @module
 */

import { assertInput, refusal } from "../errors.ts";
import { type DType, HOST_ARRAYS, type HostArray } from "../devices/device.ts";
import { checkElements, elementCount } from "./shapes.ts";

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

/** The type and sizes of a tensor. */
export type ValueType = Pick<Value, "dtype" | "shape">;

/** The attributes of a node. */
export type Settings = Pick<Node, "attributes">;

/** A number among the attributes of a node. */
export function numberOf(
  { attributes }: Pick<Node, "attributes">,
  name: string,
  otherwise: number,
): number {
  const found = attributes[name];
  if (typeof found === "object" && "float" in found) return found.float;
  return typeof found === "number" ? found : otherwise;
}

/** A list of numbers among the attributes of a node. */
export function numbersOf({ attributes }: Settings, name: string): readonly number[] | undefined {
  const found = attributes[name];
  return Array.isArray(found) ? found : undefined;
}

/** A text among the attributes of a node. */
export function textOf({ attributes }: Settings, name: string, otherwise: string): string {
  const found = attributes[name];
  return typeof found === "string" ? found : otherwise;
}

/** ONNX Runtime's own operator domain. */
export const MICROSOFT = "com.microsoft";

/** Our own operator domain: each device computes its operations in its own way, see `lower.ts`. */
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

/** The element type of one of ONNX's numbers; undefined where devices hold none. */
export const dtypeNumbered = (number: number | undefined): DType | undefined =>
  (Object.keys(ONNX_DTYPE) as DType[]).find((dtype) => ONNX_DTYPE[dtype] === number);

/** A graph to which nodes are added; {@linkcode Graph} knows the operations. */
export class NodeGraph {
  /** The nodes in the order in which they were added, which is a topological order. */
  readonly nodes: Node[] = [];
  /** The inputs in the order in which they were added. */
  readonly inputs: Value[] = [];
  /** The nodes at which gradients stop because the model says so. */
  readonly stops: Set<Node> = new Set();
  readonly #own = new WeakSet<Value>();
  readonly #inputNames = new Set<string>();
  #names = 0;
  #scalars = new Map<string, Value>();

  /** A named input. Names must be unique in the graph. */
  input(name: string, shape: readonly number[], dtype: DType = "f32"): Value {
    const isNew = !this.#inputNames.has(name);
    assertInput(isNew, "add input", "its name must be unique", `"${name}" twice`, TypeError);
    checkElements(shape);
    const value: Value = { name, shape, dtype };
    this.#inputNames.add(name);
    this.inputs.push(value);
    this.#own.add(value);
    return value;
  }

  /** A constant that becomes part of the model. */
  constant(data: HostArray, shape: readonly number[], dtype: DType = "f32"): Value {
    checkElements(shape);
    const elements = elementCount(shape),
      must = `shape [${shape}] must have ${elements} elements`;
    assertInput(data.length === elements, "add constant", must, data.length);
    const value: Value = { name: `c${this.#names++}`, shape, dtype, data };
    this.#own.add(value);
    return value;
  }

  /** Whether a value is of this graph. */
  owns(value: Value): boolean {
    return this.#own.has(value);
  }

  /**
   * A constant scalar, f32 by default; equal scalars share one constant.
   *
   * @throws {RangeError} when no scalar of the type is that number, as a fraction is none of i32.
   */
  scalar(value: number, dtype: DType = "f32"): Value {
    return this.#shared(`${dtype} ${value}`, () => {
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

  /** A constant int64 list, as ops take shapes and axes; equal lists share one constant. */
  int64(values: readonly number[]): Value {
    return this.#shared(
      `i64 ${values}`,
      () => this.constant(BigInt64Array.from(values, BigInt), [values.length], "i64"),
    );
  }

  #shared(key: string, make: () => Value): Value {
    let value = this.#scalars.get(key);
    if (!value) this.#scalars.set(key, value = make());
    return value;
  }

  /**
   * Adds any ONNX node. `outputs` are the shapes (and dtypes where not that of the first input).
   *
   * Only operations with a gradient can be trained through; the others may be used where no gradient
   * flows.
   */
  node(
    op: string,
    inputs: readonly Value[],
    outputs: readonly (readonly number[] | { shape: readonly number[]; dtype: DType })[],
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
 * Operands of one dtype: each number becomes a constant of that of the values, or of f32 without any.
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
 * The nodes of `graph` that `outputs` need when `inputs` are given, in topological order.
 *
 * @throws {TypeError} when an output needs a graph input that `inputs` does not hold.
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
