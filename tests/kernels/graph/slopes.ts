/** Holds gradients to differences of the forward graph, on the reference device. */

import assert from "node:assert/strict";
import { fromBinary } from "@bufbuild/protobuf";
import { ModelProtoSchema } from "../../../kernels/onnx/onnx_pb.ts";
import { valueTypes } from "../../../kernels/onnx/lower.ts";
import { encodeModel, Graph, openReference, type Value } from "../../../kernels/mod.ts";
import { elementCount } from "../../../kernels/graph/shapes.ts";
import { sliceNodes } from "../../../kernels/graph/value.ts";
import { substream } from "../../../kernels/random.ts";
import { computedOn, differentiated } from "./computed.ts";

/** A function to differentiate. */
export interface Case {
  /** Shapes of the f32 inputs. */
  readonly shapes: readonly (readonly number[])[];
  readonly build: (g: Graph, ...inputs: Value[]) => Value;
  /** Inputs are drawn from [low, high]. */
  readonly range?: readonly [number, number];
}

/** A case of up to three inputs. */
export const on = (
  shapes: Case["shapes"],
  build: (g: Graph, a: Value, b: Value, c: Value) => Value,
  range?: Case["range"],
): Case => ({
  shapes,
  build: (g, ...inputs) => build(g, ...inputs as [Value, Value, Value]),
  ...range && { range },
});

/** A rewrite asks for shapes: those of all values must follow from a model's bytes. */
function assertTypes(g: Graph, outputs: readonly Value[]): void {
  const ports = [...g.inputs, ...outputs].map((value) => ({ name: value.name, value }));
  const inputs = ports.slice(0, g.inputs.length);
  const model = encodeModel(g, inputs, ports.slice(inputs.length));
  const { graph } = fromBinary(ModelProtoSchema, model);
  const types = valueTypes(graph!);
  const written = new Set(graph!.node.flatMap(({ output }) => output));
  for (const node of sliceNodes(g, g.inputs, outputs)) {
    for (const { name, shape, dtype } of node.outputs.filter(({ name }) => written.has(name))) {
      assert.deepEqual(types.get(name), { shape, dtype }, `the type of what ${node.op} returns`);
    }
  }
}

const dot = (a: readonly number[], b: readonly number[]) =>
  a.reduce((sum, value, i) => sum + value * b[i]!, 0);

/**
 * Compares the gradients of Σ weights∘f(inputs) with its slope along a random direction. The name
 * determines what is drawn.
 */
export async function assertGradients(name: string, { shapes, build, range = [-1, 1] }: Case) {
  const generator = substream(1, name);
  const draw = (shape: readonly number[], [low, high]: readonly [number, number] = [-1, 1]) =>
    Array.from(
      { length: elementCount(shape) },
      () => low + (high - low) * (generator.next() >>> 0) / 2 ** 32,
    );
  const { g, results } = differentiated(shapes, build), { y } = results;
  assertTypes(g, Object.values(results));
  const values = shapes.map((shape) => draw(shape, range));
  const directions = shapes.map((shape) => draw(shape)), weights = draw(y.shape);
  const device = await openReference();
  const at = (offset: number) =>
    Object.fromEntries(
      values.map((x, i) => [`x${i}`, x.map((v, k) => v + offset * directions[i]![k]!)]),
    );
  const loss = async (offset: number) =>
    dot((await computedOn(device, g, { y }, at(offset))).y!, weights);
  const step = 1e-2, numeric = (await loss(step) - await loss(-step)) / (2 * step);
  const found = await computedOn(device, g, results, { ...at(0), dy: weights });
  const analytic = directions.reduce((sum, one, i) => sum + dot(found[`d${i}`]!, one), 0);
  const tolerance = (name === "Cast" ? 0.1 : 2e-3) * Math.max(1, Math.abs(numeric));
  assert.ok(
    Math.abs(analytic - numeric) < tolerance,
    `along a direction the slope is ${numeric}, the gradient says ${analytic}`,
  );
}
