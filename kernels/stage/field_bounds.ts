/**
 * Bounds of the integer fields of a micro-batch that select rows or classes.
 *
 * Devices treat a value out of range differently: some refuse it, a GPU reads another row silently.
 *
 * @module
 */

import { valueTypes } from "../onnx/lower.ts";
import { fromBinary } from "@bufbuild/protobuf";
import { type LayerProgram, PORTS } from "../compile/programs.ts";
import type { HostArray } from "../devices/device.ts";
import { TROUPE } from "../graph/value.ts";
import { ModelProtoSchema } from "../onnx/onnx_pb.ts";
import { intOf } from "../onnx/signature.ts";

/** The smallest and the largest integer that a field may hold. */
export type Bounds = readonly [least: number, most: number];

/**
 * Returns the bounds of a layer's fields by name, derived from its operations: rows of a table,
 * negative ones counted from its end, and classes, with −1 for none.
 */
export function fieldBounds({ fields, models }: LayerProgram): Map<string, Bounds> {
  const bounds = new Map<string, Bounds>();
  // Most layers read no such field, and decoding a model takes time.
  if (!fields.some(({ dtype }) => dtype === "i32" || dtype === "i64")) return bounds;
  const graph = fromBinary(ModelProtoSchema, models.forward).graph!;
  const types = valueTypes(graph);
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

/** Returns the problem of a field with a value out of bounds; undefined if all are within. */
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
