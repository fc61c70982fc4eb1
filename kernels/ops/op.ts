/**
 * The record of an operation, and what families of them are made of.
 *
 * @module
 */

import { positiveAxis } from "../graph/shapes.ts";
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

/** All that is known of an operation. */
export interface Op {
  /** The types of its outputs; undefined where they depend on numbers that only a run knows. */
  readonly shape?: Shape;
  /** The number of its operands, where it has a method with just these arguments. */
  readonly operands?: 1 | 2;
  /** The name of that method; that of the operation by default. */
  readonly method?: "minimum" | "maximum" | "prelu";
  /** Its gradient; {@linkcode flat} where nothing is trained through it. */
  readonly gradient?: GradientRule;
  /** Computes it in plain TypeScript. */
  readonly reference?: Reference;
  /** Adds it as a node of an ONNX file says; absent where files cannot have it. */
  readonly read?: Read;
  /** The places of inputs that are settings and never weights of a file. */
  readonly settings?: readonly number[];
  /** Writes it in operations of ONNX, where it is none of them. */
  readonly lower?: Rewrite;
}

/** Operations by ONNX's names; those of another domain than ONNX's own begin with it. */
export type Ops = Readonly<Record<string, Op>>;

/** Functions that add operations, by the names of the methods that call them. */
export type Methods = {
  readonly [Name in keyof Operations]?: (
    g: Builder,
    ...given: Parameters<Operations[Name]>
  ) => ReturnType<Operations[Name]>;
};

/** A node with the types of its inputs. */
export interface Known extends Settings {
  /** The types of its inputs; undefined where an optional one is left out. */
  readonly inputs: readonly [ValueType, ...ValueType[]];
  /** The whole numbers of a constant input, such as axes. */
  readonly numbers: (input: number) => readonly number[] | undefined;
  /** The number of its outputs. */
  readonly outputs: number;
}

/** Returns the types of the outputs of a node. */
export type Shape = (known: Known) => readonly ValueType[] | undefined;

/** One output, with the dtype of the first input unless given. */
export const shaped = (
  { inputs }: Known,
  shape: readonly number[],
  dtype = inputs[0]!.dtype,
): readonly ValueType[] => [{ dtype, shape }];

/** Outputs like some of the inputs. */
export const like = (...places: readonly number[]): Shape => ({ inputs }) =>
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

/** Adds a node of which one output is used; see {@linkcode nodes}. */
export const one = (
  g: NodeGraph,
  ops: Ops,
  name: string,
  inputs: readonly Value[],
  attributes?: Record<string, Attribute>,
): Value => nodes(g, ops, name, inputs, attributes)[0]!;

const methodOf = (name: string, { method }: Op) =>
  (method ?? name[0]!.toLowerCase() + name.slice(1)) as "add";

/** Operations of which nodes in files are read by the methods that take their operands. */
export const withMethods = (ops: Ops): Ops =>
  Object.fromEntries(
    Object.entries(ops).map(([name, op]) => {
      const read: Read = (call) => call.g[methodOf(name, op)](...operands(call, op.operands as 2));
      return [name, op.operands ? { read, ...op } : op];
    }),
  );

/** The methods whose arguments are just the operands of an operation. */
export const methodsOf = (ops: Ops): Methods =>
  Object.fromEntries(
    Object.entries(ops).filter(([, op]) => op.operands).map(([name, op]) => [
      methodOf(name, op),
      (g: Builder, ...given: Operand[]) => one(g, ops, name, operandsOf(g, name, ...given)),
    ]),
  );

/**
 * Computes the cotangents of a node's inputs from those of its outputs. A cotangent is a function where
 * only some inputs may need theirs; its shape may be one to which the input was broadcast.
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

/** A rule for operations with one input that is trained through, and one output. */
export const slope =
  (rule: (g: Builder, dy: Value, x: Value, y: Value, node: Node) => Value): GradientRule =>
  (g, node, [dy]) => [rule(g, dy!, node.inputs[0]!, node.outputs[0]!, node)];

/** `part` from `start` of an axis of `size`, and 0 elsewhere. */
export function padded(g: Builder, part: Value, axis: number, start: number, size: number): Value {
  const blank = (width: number) => width > 0 ? [zeros(g, part.shape.with(axis, width))] : [];
  const parts = [...blank(start), part, ...blank(size - start - part.shape[axis]!)];
  return parts.length === 1 ? part : g.concat(parts, axis);
}

/** A tensor of zeros; {@linkcode isZeros} recognises it, so that sums need not start from it. */
export function zeros(g: Builder, shape: readonly number[]): Value {
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
    /** Leaves elements out, of a graph of layers. */
    dropout(x: Value, probability: number): Value;
  };
  /** Its inputs; undefined where one is left out. */
  readonly inputs: readonly (Value | undefined)[];
  /** The names of its outputs; empty where they are not used. */
  readonly outputs: OnnxNode["outputs"];
}

/** Adds what a node of a file computes to the graph. */
export type Read = (call: Call) => Value | readonly Value[];

/** An input that the operation needs. */
export function operand({ inputs }: Call, place: number): Value {
  const value = inputs[place];
  if (value) return value;
  throw new TypeError(`input ${place} must be given, received none`);
}

/** The first inputs, each of which the operation needs. */
export const operands = <Count extends keyof Tuples>(call: Call, count: Count): Tuples[Count] =>
  Array.from({ length: count }, (_, place) => operand(call, place)) as Tuples[Count];

type Tuples = { 1: [Value]; 2: [Value, Value]; 3: [Value, Value, Value] };

/** The numbers of an input that must be constant; undefined where it is left out. */
export function constantNumbers({ inputs }: Call, place: number): readonly number[] | undefined {
  const value = inputs[place];
  if (!value) return undefined;
  if (value.data) return Array.from(value.data, Number);
  const type = `${value.dtype} [${value.shape}]`;
  throw new TypeError(`input ${place} must be constant, received ${type} computed by each run`);
}

/** Numbers of an input without which the shape of the result is not known. */
export function neededNumbers(call: Call, place: number): readonly number[] {
  operand(call, place);
  return constantNumbers(call, place)!;
}

/** Returns the axis of a node, counted from the front of a shape. */
export const axisOf = (node: Settings, { length }: readonly number[], otherwise = 0): number =>
  positiveAxis(numberOf(node, "axis", otherwise), length);

/** Whole numbers of an attribute. */
export function intsOf({ attributes }: Call, name: string): readonly number[] | undefined {
  const value = attributes[name];
  if (!Array.isArray(value)) return undefined;
  if (value.every(Number.isSafeInteger)) return value;
  throw new RangeError(`${name} must be whole numbers below 2^53, received [${value}]`);
}

/** Returns whether an attribute is 1; 0 is its default. */
export const isSet = (node: Settings, name: string): boolean => numberOf(node, name, 0) === 1;

/** The most elements of a tensor that an operation of a file creates while it is read. */
const MADE_MAX = 2 ** 26;

/** Refuses a setting that would create a larger tensor. */
export function checkMade(what: string, elements: number): void {
  if (elements <= MADE_MAX) return;
  throw new RangeError(`${what} must be at most ${MADE_MAX}, received ${elements}`);
}

/** Returns the value of an attribute, which must be among the known ones. */
export function mustBe<Known extends string | number>(
  { attributes }: Call,
  name: string,
  otherwise: Known,
  known: readonly Known[],
): Known {
  const { [name]: value = otherwise } = attributes;
  const found = known.find((one) => one === value);
  if (found !== undefined) return found;
  throw new TypeError(`${name} must be ${known.join(" or ")}, received ${value}`);
}
