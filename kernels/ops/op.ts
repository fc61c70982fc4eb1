/**
 * The record of an operation, and functions to write such records.
 *
 * @module
 */

import { type Ints, positiveAxis } from "../graph/shapes.ts";
import {
  type Attribute,
  type Node,
  type NodeGraph,
  numberOf,
  type Operand,
  operandsOf,
  type Settings,
  type Value,
  type ValueType,
} from "../graph/value.ts";
import type { OnnxNode } from "../onnx/read_file.ts";
import type { Rewrite } from "../onnx/rewrite.ts";
import type { Reference } from "./array.ts";
import type { Builder } from "./builder.ts";

/** The methods of {@linkcode Builder} that add operations. */
type Operations = Omit<Builder, keyof NodeGraph>;

/** An operation: its shape, gradient, reference implementation and form in ONNX files. */
export interface Op {
  /** Returns the types of its outputs; undefined if they depend on numbers of a run. */
  readonly shape?: Shape;
  /** Number of its operands, if it has a method with exactly these arguments. */
  readonly operands?: 1 | 2;
  /** Name of this method. Default: that of the operation. */
  readonly method?: "minimum" | "maximum" | "prelu";
  /** Its gradient; {@linkcode flat} if nothing is trained through it. */
  readonly gradient?: GradientRule;
  /** Computes it on the reference device. */
  readonly reference?: Reference;
  /** Adds it for a node of an ONNX file; absent if files cannot contain it. */
  readonly read?: Read;
  /** Indices of inputs that are settings, never weights of a file. */
  readonly settings?: Ints;
  /** Rewrites it as operations of ONNX, if it is not one. */
  readonly lower?: Rewrite;
}

/** Operations by name; names in other domains than ONNX's own start with the domain. */
export type Ops = Readonly<Record<string, Op>>;

/** Functions that add operations, by the names of their methods. */
export type Methods = {
  readonly [Name in keyof Operations]?: (
    g: Builder,
    ...given: Parameters<Operations[Name]>
  ) => ReturnType<Operations[Name]>;
};

/** A node with the types of its inputs. */
export interface Known extends Settings {
  /** The types of its inputs; undefined for optional ones that are left out. */
  readonly inputs: readonly [ValueType, ...ValueType[]];
  /** Returns the numbers of a constant input, such as axes. */
  readonly numbers: (input: number) => Ints | undefined;
  /** The number of its outputs. */
  readonly outputs: number;
}

/** Returns the types of the outputs of a node. */
export type Shape = (known: Known) => readonly ValueType[] | undefined;

/** Returns the type of one output. Default: the dtype of the first input. */
export const shaped = (
  { inputs }: Known,
  shape: Ints,
  dtype = inputs[0]!.dtype,
): readonly ValueType[] => [{ dtype, shape }];

/** Returns outputs with the types of some inputs. */
export const like = (...places: Ints): Shape => ({ inputs }) =>
  places.map((place) => inputs[place]!);

/** Adds a node of an operation whose record has a shape. */
export function nodes(
  g: NodeGraph,
  ops: Ops,
  name: string,
  inputs: readonly Value[],
  attributes: Record<string, Attribute> = {},
  outputs = 1,
): Value[] {
  const numbers = (input: number) => {
    const { data } = inputs[input] ?? {};
    return data && Array.from(data, Number);
  };
  const known = { inputs: [...inputs] as [Value, ...Value[]], attributes, numbers, outputs };
  const types = ops[name]!.shape!(known)!;
  const dot = name.lastIndexOf("."), domain = name.slice(0, Math.max(dot, 0));
  return g.node(name.slice(dot + 1), inputs, types.slice(0, outputs), attributes, domain);
}

/** Adds a node and returns its first output; see {@linkcode nodes}. */
export const one = (
  g: NodeGraph,
  ops: Ops,
  name: string,
  inputs: readonly Value[],
  attributes?: Record<string, Attribute>,
): Value => nodes(g, ops, name, inputs, attributes)[0]!;

const methodOf = (name: string, { method }: Op) =>
  (method ?? name[0]!.toLowerCase() + name.slice(1)) as "add";

/** Adds `read` to operations with operands: it calls their methods. */
export const withMethods = (ops: Ops): Ops =>
  Object.fromEntries(
    Object.entries(ops).map(([name, op]) => {
      const read: Read = (call) => call.g[methodOf(name, op)](...operands(call, op.operands as 2));
      return [name, op.operands ? { read, ...op } : op];
    }),
  );

/** Returns the methods of operations with operands. */
export const methodsOf = (ops: Ops): Methods =>
  Object.fromEntries(
    Object.entries(ops).filter(([, op]) => op.operands).map(([name, op]) => [
      methodOf(name, op),
      (g: Builder, ...given: Operand[]) => one(g, ops, name, operandsOf(g, name, ...given)),
    ]),
  );

/**
 * Computes the cotangents of a node's inputs from those of its outputs. A cotangent may be a
 * function, which is called only if it is needed, and may have a shape to which the input was
 * broadcast.
 *
 * @param needed true for each input that needs a gradient.
 */
export type GradientRule = (
  g: Builder,
  node: Node,
  cotangents: readonly (Value | undefined)[],
  needed: readonly boolean[],
) => readonly (Value | (() => Value) | undefined)[];

/** The rule of step functions, whose slope is 0 or undefined: nothing is trained through them. */
export const flat: GradientRule = () => [];

/** Returns the rule of an operation with one output, whose first input only has a gradient. */
export const slope =
  (rule: (g: Builder, dy: Value, x: Value, y: Value, node: Node) => Value): GradientRule =>
  (g, node, [dy]) => [rule(g, dy!, node.inputs[0]!, node.outputs[0]!, node)];

/** Pads an axis of `part` with zeros to `size`, with `part` at `start`. */
export function padded(g: Builder, part: Value, axis: number, start: number, size: number): Value {
  const blank = (width: number) => width > 0 ? [zeros(g, part.shape.with(axis, width))] : [];
  const parts = [...blank(start), part, ...blank(size - start - part.shape[axis]!)];
  return parts.length === 1 ? part : g.concat(parts, axis);
}

/** Returns a tensor of zeros, which {@linkcode isZeros} recognizes, so that sums can omit it. */
export function zeros(g: Builder, shape: Ints): Value {
  return g.expand(g.scalar(0), shape);
}

/** Returns whether a value was made by {@linkcode zeros}. */
export function isZeros(value: Value): boolean {
  const [source] = value.node?.op === "Expand" ? value.node.inputs : [];
  return source?.data?.length === 1 && source.data[0] === 0;
}

/** A node of a file whose inputs are values of a graph. */
export interface Call extends Settings {
  readonly g: Builder & {
    /** Adds dropout; in graphs of layers only. */
    dropout(x: Value, probability: number): Value;
  };
  /** Its inputs; undefined for those left out. */
  readonly inputs: readonly (Value | undefined)[];
  /** Names of its outputs; empty for unused ones. */
  readonly outputs: OnnxNode["outputs"];
}

/** Adds the operations of a node of a file to the graph. */
export type Read = (call: Call) => Value | readonly Value[];

/** Returns a required input. */
export function operand({ inputs }: Call, place: number): Value {
  const value = inputs[place];
  if (value) return value;
  throw new TypeError(`input ${place} must be given, received none`);
}

/** Returns the first inputs, all of them required. */
export const operands = <Count extends keyof Tuples>(call: Call, count: Count): Tuples[Count] =>
  Array.from({ length: count }, (_, place) => operand(call, place)) as Tuples[Count];

type Tuples = { 1: [Value]; 2: [Value, Value]; 3: [Value, Value, Value] };

/** Returns the numbers of an input that must be constant; undefined if it is left out. */
export function constantNumbers({ inputs }: Call, place: number): Ints | undefined {
  const value = inputs[place];
  if (!value) return undefined;
  if (value.data) return Array.from(value.data, Number);
  const type = `${value.dtype} [${value.shape}]`;
  throw new TypeError(`input ${place} must be constant, received ${type} computed by each run`);
}

/** Returns the numbers of a required constant input. */
export function neededNumbers(call: Call, place: number): Ints {
  operand(call, place);
  return constantNumbers(call, place)!;
}

/** Returns the axis of a node, counted from the front of a shape. */
export const axisOf = (node: Settings, { length }: Ints, otherwise = 0): number =>
  positiveAxis(numberOf(node, "axis", otherwise), length);

/** Returns the whole numbers of an attribute. */
export function intsOf({ attributes }: Settings, name: string): Ints | undefined {
  const value = attributes[name];
  if (!Array.isArray(value)) return undefined;
  if (value.every(Number.isSafeInteger)) return value;
  throw new RangeError(`${name} must be whole numbers below 2^53, received [${value}]`);
}

/** Returns whether an attribute is another number than 0, its default. */
export const isSet = (node: Settings, name: string): boolean => numberOf(node, name, 0) !== 0;

/** Largest number of elements of a tensor that is created while a file is read. */
const MADE_MAX = 2 ** 26;

/** Refuses settings that would create a larger tensor. */
export function checkMade(what: string, elements: number): void {
  if (elements <= MADE_MAX) return;
  throw new RangeError(`${what} must be at most ${MADE_MAX}, received ${elements}`);
}

/** Returns the value of an attribute, which must be among the supported ones. */
export function mustBe<Known extends string | number>(
  { attributes }: Settings,
  name: string,
  otherwise: Known,
  known: readonly Known[],
): Known {
  const { [name]: value = otherwise } = attributes;
  const found = known.find((one) => one === value);
  if (found !== undefined) return found;
  throw new TypeError(`${name} must be ${known.join(" or ")}, received ${value}`);
}
