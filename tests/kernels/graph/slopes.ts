/** Holds gradients to differences of the forward graph, on the reference device. */

import assert from "node:assert/strict";
import { fromBinary } from "@bufbuild/protobuf";
import { ModelProtoSchema } from "../../../kernels/onnx/onnx_pb.ts";
import { signatureOf } from "../../../kernels/onnx/signature.ts";
import { valueTypes } from "../../../kernels/onnx/value_types.ts";
import {
  addGradients,
  elementCount,
  encodeModel,
  Graph,
  openReference,
  sliceNodes,
  substream,
  type Tensor,
  type Value,
} from "../../../kernels/mod.ts";

/** What a gradient is asked of. */
export interface Case {
  /** Shapes of the f32 inputs. */
  readonly shapes: readonly (readonly number[])[];
  readonly build: (g: Graph, ...inputs: Value[]) => Value;
  /** Inputs are drawn from [low, high]. */
  readonly range?: readonly [number, number];
}

/** A rewrite asks for shapes: those of all values must follow from a model's bytes. */
function assertTypes(g: Graph, outputs: readonly Value[]): void {
  const ports = [...g.inputs, ...outputs].map((value) => ({ name: value.name, value }));
  const inputs = ports.slice(0, g.inputs.length);
  const { graph } = fromBinary(
    ModelProtoSchema,
    encodeModel(g, inputs, ports.slice(inputs.length)),
  );
  const types = valueTypes(graph!, signatureOf(graph).inputs);
  const written = new Set(graph!.node.flatMap(({ output }) => output));
  for (const node of sliceNodes(g, g.inputs, outputs)) {
    for (const { name, shape, dtype } of node.outputs.filter(({ name }) => written.has(name))) {
      assert.deepEqual(types.get(name), { shape, dtype }, `the type of what ${node.op} returns`);
    }
  }
}

/** Draws from a stream that the case's name determines. */
function draw(random: () => number, count: number, [low, high]: readonly [number, number]) {
  return Float32Array.from({ length: count }, () => low + (high - low) * random());
}

/** Σ weights∘f(inputs), and its gradients, as one model each. */
export async function assertGradients(name: string, { shapes, build, range = [-1, 1] }: Case) {
  const generator = substream(1, name);
  const random = () => (generator.next() >>> 0) / 2 ** 32;
  const g = new Graph();
  const inputs = shapes.map((shape, i) => g.input(`x${i}`, shape));
  const y = build(g, ...inputs), dy = g.input("dy", y.shape);
  const ports = inputs.map((value) => ({ name: value.name, value }));
  const forward = encodeModel(g, ports, [{ name: "y", value: y }]);
  const gradients = addGradients(g, [[y, dy]], inputs).map((value, i) => ({
    name: `d${i}`,
    value: value!,
  }));
  assertTypes(g, [y, ...gradients.map(({ value }) => value)]);
  const backward = encodeModel(g, [...ports, { name: "dy", value: dy }], gradients);

  const device = await openReference();
  try {
    const tensors: Record<string, Tensor> = {
      y: device.alloc("f32", y.shape),
      dy: device.alloc("f32", y.shape),
    };
    shapes.forEach((shape, i) => {
      tensors[`x${i}`] = device.alloc("f32", shape);
      tensors[`d${i}`] = device.alloc("f32", shape);
    });
    const pick = (names: readonly string[]) =>
      Object.fromEntries(names.map((one) => [one, tensors[one]!]));
    const f = await device.compile(forward), b = await device.compile(backward);
    const runForward = f.bind(pick(f.inputs), pick(f.outputs));
    const values = shapes.map((shape) => draw(random, elementCount(shape), range));
    const directions = shapes.map((shape) => draw(random, elementCount(shape), [-1, 1]));
    const weights = draw(random, elementCount(y.shape), [-1, 1]);
    const loss = async (offset: number) => {
      values.forEach((x, i) =>
        device.write(tensors[`x${i}`]!, x.map((v, k) => v + offset * directions[i]![k]!))
      );
      await runForward();
      const output = await device.read<Float32Array>(tensors.y!);
      return output.reduce((sum, v, k) => sum + v * weights[k]!, 0);
    };
    const step = 1e-2;
    const numeric = (await loss(step) - await loss(-step)) / (2 * step);
    await loss(0);
    device.write(tensors.dy!, weights);
    await b.bind(pick(b.inputs), pick(b.outputs))();
    let analytic = 0;
    for (const [i, direction] of directions.entries()) {
      const gradient = await device.read<Float32Array>(tensors[`d${i}`]!);
      gradient.forEach((d, k) => analytic += d * direction[k]!);
    }
    const tolerance = (name === "Cast" ? 0.1 : 2e-3) * Math.max(1, Math.abs(numeric));
    assert.ok(
      Math.abs(analytic - numeric) < tolerance,
      `along a direction the slope is ${numeric}, the gradient says ${analytic}`,
    );
  } finally {
    device.close();
  }
}
