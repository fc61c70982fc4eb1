/**
 * Convolutions of groups that the WebGPU provider would compute wrongly.
 *
 * [Note: groups of four] Its kernel of a grouped convolution takes four outputs at a time, or two, where
 * the outputs of all groups divide by that and a group has four at least; where those of one group do
 * not divide, four outputs of two groups are computed as if they were of one. Its kernel of a transposed
 * one takes two inputs or four at a time where a group has one output, and then reads the weights of
 * others. (ONNX Runtime 1.30, found by comparing sizes.) So groups get further outputs, of weight zero,
 * until they divide, and those are cut off.
 *
 * @module
 */

import { elementCount } from "../../../graph/shapes.ts";
import type { NodeProto } from "../../../onnx/onnx_pb.ts";
import type { ConstantDType, Rewrite, Writer } from "../../../onnx/graph_writer.ts";
import { intOf, type ValueType } from "../../../onnx/value_types.ts";

/** Outputs that are computed at a time. */
const FOUR = 4;

const groupsOf = (node: NodeProto) => intOf(node, "group", 1);

/** Whether the outputs of several groups would be computed at a time. */
export function mixesGroups(node: NodeProto, weight: ValueType | undefined): boolean {
  const groups = groupsOf(node), [outputs = 0] = weight?.shape ?? [], own = outputs / groups;
  const together = [FOUR, 2].find((count) => outputs % count === 0) ?? 1;
  return groups > 1 && own >= FOUR && own % together !== 0;
}

/** Whether a transposed one would read the weights of other inputs. */
export function mixesInputs(node: NodeProto, weight: ValueType | undefined): boolean {
  const groups = groupsOf(node), [inputs = 0, own = 0] = weight?.shape ?? [];
  return groups > 1 && own === 1 && inputs > groups;
}

/** The outputs of each group without those behind the first `own` of `wide`, with the bias added. */
function cutOff(
  write: Writer,
  node: NodeProto,
  found: string,
  [own, wide]: readonly [number, number],
): void {
  const [, , bias] = node.input, [y] = node.output as [string];
  const { shape } = write.typeOf(y), [n = 0, outputs = 0, ...sizes] = shape;
  const reshaped = (of: string, to: readonly number[], output?: string) =>
    write.node("Reshape", [of, write.constant("i64", to)], {}, output);
  const apart = reshaped(found, [n, groupsOf(node), wide, elementCount(sizes)]);
  const ends = [0, own, 2].map((number) => write.constant("i64", [number]));
  const kept = write.node("Slice", [apart, ...ends]);
  if (!bias) return void reshaped(kept, shape, y);
  const perChannel = reshaped(bias, [outputs, ...sizes.map(() => 1)]);
  write.node("Add", [reshaped(kept, shape), perChannel], {}, y);
}

/** A weight with outputs of zeros behind those of an axis. */
function widened(
  write: Writer,
  weight: string,
  axis: number,
  count: number,
  as: readonly number[],
) {
  const shape = as.map((size, i) => i === axis ? count : size);
  const dtype = write.typeOf(weight).dtype as ConstantDType;
  const zeros = write.constant(dtype, Array<number>(elementCount(shape)).fill(0), shape);
  const matrix = write.node("Reshape", [weight, write.constant("i64", as)]);
  return write.node("Concat", [matrix, zeros], { axis });
}

/** See the note above. */
export const wholeFours: Rewrite = (write, node) => {
  const [x, weight] = node.input as [string, string], groups = groupsOf(node);
  const [outputs = 0, ...rest] = write.typeOf(weight).shape, own = outputs / groups;
  const wide = Math.ceil(own / FOUR) * FOUR;
  const wider = widened(write, weight, 1, wide - own, [groups, own, elementCount(rest)]);
  const shape = write.constant("i64", [groups * wide, ...rest]);
  cutOff(write, node, write.again([x, write.node("Reshape", [wider, shape])]), [own, wide]);
};

/** See the note above. */
export const twoOutputs: Rewrite = (write, node) => {
  const [x, weight] = node.input as [string, string], { shape } = write.typeOf(weight);
  cutOff(write, node, write.again([x, widened(write, weight, 1, 1, shape)]), [1, 2]);
};
