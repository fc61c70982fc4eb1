/** Computes values of a graph on the reference device, or on another one. */

import type { Device } from "../../../kernels/devices/device.ts";
import { openReference } from "../../../kernels/devices/reference.ts";
import type { Graph } from "../../../kernels/ops/graph.ts";
import type { Value } from "../../../kernels/graph/value.ts";
import { modelOf, numbersOf, tensorOf } from "../devices/models.ts";

/** Elements of the inputs of a graph, by name. */
export type Given = Readonly<Record<string, ArrayLike<number>>>;

/** The elements of some values by name, from those of the inputs of their graph. */
export async function computedOn(
  device: Device,
  g: Graph,
  values: Readonly<Record<string, Value>>,
  inputs: Given = {},
): Promise<Record<string, number[]>> {
  const kernel = await device.compile(modelOf(g, values));
  const given = g.inputs.filter(({ name }) => kernel.inputs.includes(name)).map((
    { name, shape, dtype },
  ) => [name, tensorOf(device, shape, Array.from(inputs[name]!), dtype)] as const);
  const made = Object.entries(values).map(([name, { shape, dtype }]) =>
    [name, device.alloc(dtype, shape)] as const
  );
  await kernel.bind(Object.fromEntries(given), Object.fromEntries(made))();
  const found: Record<string, number[]> = {};
  for (const [name, tensor] of made) found[name] = await numbersOf(device, tensor);
  for (const [, tensor] of [...given, ...made]) device.free(tensor);
  kernel.close();
  return found;
}

/** The elements of one value, by the judge. */
export async function computed(g: Graph, value: Value, inputs: Given = {}): Promise<number[]> {
  return (await computedOn(await openReference(), g, { value }, inputs)).value!;
}
