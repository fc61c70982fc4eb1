/** Computes values of a graph on the reference device, or on another one. */

import type { Device } from "../../../kernels/devices/device.ts";
import { openReference } from "../../../kernels/devices/reference.ts";
import { Graph } from "../../../kernels/ops/graph.ts";
import type { Value } from "../../../kernels/graph/value.ts";
import { modelOf, runModel } from "../devices/models.ts";
import { addGradients } from "../../../kernels/ops/autodiff.ts";

/** Elements of the inputs of a graph, by name. */
export type Given = Readonly<Record<string, ArrayLike<number>>>;

/** The elements of some values by name, from those of the inputs of their graph. */
export async function computedOn(
  device: Device,
  g: Graph,
  values: Readonly<Record<string, Value>>,
  inputs: Given = {},
): Promise<Record<string, number[]>> {
  const numbers = ({ name }: { name: string }) => Array.from(inputs[name]!);
  return Object.fromEntries(await runModel(device, modelOf(g, values), numbers));
}

/** A graph with inputs x0, x1, …, its result y, and the gradients d0, d1, … of that, from dy. */
export function differentiated(
  shapes: readonly (readonly number[])[],
  build: (g: Graph, ...inputs: Value[]) => Value,
) {
  const g = new Graph(), inputs = shapes.map((shape, i) => g.input(`x${i}`, shape));
  const y = build(g, ...inputs), dy = g.input("dy", y.shape);
  const gradients = addGradients(g, [[y, dy]], inputs);
  const results: Record<string, Value> & { y: Value } = { y };
  gradients.forEach((value, i) => results[`d${i}`] = value!);
  return { g, results };
}

/** The elements of one value, by the judge. */
export async function computed(g: Graph, value: Value, inputs: Given = {}): Promise<number[]> {
  return (await computedOn(await openReference(), g, { value }, inputs)).value!;
}
