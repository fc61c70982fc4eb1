/**
 * Which numbers the fields of a micro-batch may hold where they say which row or class is meant.
 *
 * Devices differ in what they do with others: some refuse, a GPU takes another row and says nothing.
 *
 * @module
 */

import { fromBinary } from "@bufbuild/protobuf";
import { type LayerProgram, PORTS } from "../compile/programs.ts";
import type { HostArray } from "../devices/device.ts";
import { TROUPE } from "../graph/value.ts";
import { ModelProtoSchema } from "../onnx/onnx_pb.ts";
import { signatureOf } from "../onnx/signature.ts";
import { intOf, valueTypes } from "../onnx/value_types.ts";

/** The least and the largest whole number that a field may hold. */
export type Bounds = readonly [least: number, most: number];

/**
 * The bounds of a layer's fields, by name, as far as its operations say them: rows of a table,
 * counted from its end where they are negative, and classes, or the number for none.
 */
export function fieldBounds({ fields, models }: LayerProgram): Map<string, Bounds> {
  const bounds = new Map<string, Bounds>();
  // Most layers read no such field, and decoding a model takes time.
  if (!fields.some(({ dtype }) => dtype === "i32" || dtype === "i64")) return bounds;
  const graph = fromBinary(ModelProtoSchema, models.forward).graph!;
  const types = valueTypes(graph, signatureOf(graph).inputs);
  const names = new Map(fields.map(({ name }) => [PORTS.field(name), name]));
  for (const node of graph.node) {
    const reshaped = node.opType === "Reshape" ? names.get(node.input[0]!) : undefined;
    if (reshaped !== undefined) names.set(node.output[0]!, reshaped);
    const field = names.get(node.input[1] ?? ""), shape = types.get(node.input[0] ?? "")?.shape;
    if (field === undefined || !shape) continue;
    if (node.opType === "Gather") {
      const rows = shape[intOf(node, "axis", 0)]!;
      bounds.set(field, [-rows, rows - 1]);
    } else if (node.domain === TROUPE && node.opType === "CrossEntropy") {
      bounds.set(field, [-1, shape[1]! - 1]);
    }
  }
  return bounds;
}

/** What is wrong with a field that holds another number, in words; undefined where none is. */
export function boundsProblem(
  name: string,
  values: HostArray,
  [least, most]: Bounds,
): string | undefined {
  for (let i = 0; i < values.length; i++) {
    if (values[i]! >= least && values[i]! <= most) continue;
    return `the field "${name}" must hold whole numbers from ${least} to ${most}, received ${
      values[i]
    } at position ${i}`;
  }
}

/**
 * Refuses a field that holds another number.
 *
 * @throws {RangeError} naming the field, its bounds and the number.
 */
export function checkBounds(name: string, values: HostArray, bounds: Bounds): void {
  const problem = boundsProblem(name, values, bounds);
  if (problem !== undefined) throw new RangeError(`Cannot run F: ${problem}`);
}
