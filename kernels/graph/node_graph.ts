/**
 * What a graph is before any operation has a name: its inputs, its constants and a list of nodes.
 *
 * @module
 */

import type { DType, HostArray } from "../devices/device.ts";
import { checkElements, elementCount } from "./shapes.ts";
import type { Attribute, Node, Value } from "./value.ts";

/** A graph to which nodes are added; {@linkcode Graph} knows the operations. */
export class NodeGraph {
  /** The nodes in the order in which they were added, which is a topological order. */
  readonly nodes: Node[] = [];
  /** The inputs in the order in which they were added. */
  readonly inputs: Value[] = [];
  readonly #own = new WeakSet<Value>();
  #names = 0;
  #scalars = new Map<string, Value>();

  /** A named input. Names must be unique in the graph. */
  input(name: string, shape: readonly number[], dtype: DType = "f32"): Value {
    if (this.inputs.some((input) => input.name === name)) {
      throw new TypeError(`Cannot add input: its name must be unique, received "${name}" twice`);
    }
    checkElements(shape);
    const value: Value = { name, shape, dtype };
    this.inputs.push(value);
    this.#own.add(value);
    return value;
  }

  /** A constant that becomes part of the model. */
  constant(data: HostArray, shape: readonly number[], dtype: DType = "f32"): Value {
    if (data.length !== elementCount(shape)) {
      throw new RangeError(
        `Cannot add constant: shape [${shape}] needs ${
          elementCount(shape)
        } elements, received ${data.length}`,
      );
    }
    const value: Value = { name: `c${this.#names++}`, shape, dtype, data };
    this.#own.add(value);
    return value;
  }

  /** Whether a value is of this graph. */
  owns(value: Value): boolean {
    return this.#own.has(value);
  }

  /** A constant f32 scalar; equal scalars share one constant. */
  scalar(value: number): Value {
    return this.#shared(`f32 ${value}`, () => this.constant(Float32Array.of(value), []));
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
   * Only ops in `gradient_rules.ts` can be trained through; the others may be used where no gradient
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

/** Adds a node with one output, of the dtype of the first input. */
export function one(
  g: NodeGraph,
  op: string,
  inputs: readonly Value[],
  shape: readonly number[],
  attributes: Record<string, Attribute> = {},
  domain = "",
): Value {
  return g.node(op, inputs, [shape], attributes, domain)[0]!;
}
