/**
 * A node of a file as what is to be added to a graph.
 *
 * @module
 */

import type { Attribute, Value } from "../../graph/value.ts";
import type { LayerGraph } from "../../layers/layer.ts";
import type { OnnxNode } from "../../onnx/read_file.ts";

/** A node whose inputs are values of a graph. */
export interface Call {
  readonly g: LayerGraph;
  readonly node: OnnxNode;
  /** What it reads; undefined where it is left out. */
  readonly inputs: readonly (Value | undefined)[];
}

/** Adds what a node computes to the graph. */
export type ImportOp = (call: Call) => Value | readonly Value[];

/** An input that the operation needs. */
export function operand({ inputs }: Call, place: number): Value {
  const value = inputs[place];
  if (value) return value;
  throw new TypeError(`input ${place} must be given, received none`);
}

/** The numbers of an input that must be constant; undefined where it is left out. */
export function constantNumbers({ inputs }: Call, place: number): readonly number[] | undefined {
  const value = inputs[place];
  if (!value) return undefined;
  if (value.data) return Array.from(value.data, Number);
  throw new TypeError(
    `input ${place} must be known before a run, received ${value.dtype} [${value.shape}] that each computes`,
  );
}

/** Whole numbers of an attribute. */
export function intsOf({ node }: Call, name: string): readonly number[] | undefined {
  const value = node.attributes[name];
  if (!Array.isArray(value)) return undefined;
  if (value.every(Number.isSafeInteger)) return value;
  throw new RangeError(`${name} must be whole numbers below 2^53, received [${value}]`);
}

/** A whole number of an attribute. */
export function intOf({ node }: Call, name: string, otherwise: number): number {
  const value = node.attributes[name];
  return typeof value === "number" ? value : otherwise;
}

/** A number of an attribute. */
export function floatOf({ node }: Call, name: string, otherwise: number): number {
  const value: Attribute | undefined = node.attributes[name];
  if (typeof value === "number") return value;
  return typeof value === "object" && "float" in value ? value.float : otherwise;
}

/** A text of an attribute. */
export function textOf({ node }: Call, name: string, otherwise: string): string {
  const value = node.attributes[name];
  return typeof value === "string" ? value : otherwise;
}

/** The most elements of what is made to add an operation, before anybody can say how large it is. */
const MADE_MAX = 2 ** 26;

/** Refuses a setting by which too much would be made at once. */
export function checkMade(what: string, elements: number): void {
  if (elements <= MADE_MAX) return;
  throw new RangeError(`${what} must be at most ${MADE_MAX}, received ${elements}`);
}

/** Refuses an attribute whose value is not understood. */
export function mustBe(
  call: Call,
  name: string,
  otherwise: string | number,
  known: readonly (string | number)[],
): void {
  const { [name]: value = otherwise } = call.node.attributes;
  if (known.some((one) => one === value)) return;
  throw new TypeError(`${name} must be ${known.join(" or ")}, received ${value}`);
}
