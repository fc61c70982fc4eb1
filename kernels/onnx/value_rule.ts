/**
 * What rules of dtypes and shapes are made of, and the attributes that they read.
 *
 * @module
 */

import type { DType } from "../devices/device.ts";
import type { NodeProto } from "./onnx_pb.ts";

/** What is known of a value. */
export interface ValueType {
  readonly dtype: DType;
  readonly shape: readonly number[];
}

/** A node with what is known of its inputs. */
export interface Known {
  readonly node: NodeProto;
  readonly inputs: readonly (ValueType | undefined)[];
  /** The whole numbers of a constant input, such as axes. */
  readonly numbers: (input: number) => readonly number[] | undefined;
}

/** The types of a node's outputs, as far as they are known. */
export type Rule = (known: Known) => readonly (ValueType | undefined)[] | undefined;

/** An integer attribute of a node. */
export function intOf(node: NodeProto, name: string, fallback: number): number {
  const found = node.attribute.find((one) => one.name === name);
  return found ? Number(found.i) : fallback;
}

/** A float attribute of a node. */
export function floatOf(node: NodeProto, name: string, fallback: number): number {
  return node.attribute.find((one) => one.name === name)?.f ?? fallback;
}

/** An attribute of a node that is a list of integers. */
export function intsOf(node: NodeProto, name: string): number[] | undefined {
  return node.attribute.find((one) => one.name === name)?.ints.map(Number);
}

/** A text attribute of a node. */
export function textOf(node: NodeProto, name: string): string | undefined {
  const found = node.attribute.find((one) => one.name === name)?.s;
  return found && new TextDecoder().decode(found);
}

/** One output, with the dtype of the first input unless given. */
export function output(known: Known, shape: readonly number[], dtype = known.inputs[0]?.dtype) {
  return dtype && [{ dtype, shape }];
}
