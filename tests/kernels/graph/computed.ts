/** What a graph computes, by the judge of the devices. */

import { openReference } from "../../../kernels/devices/reference/reference.ts";
import type { Graph } from "../../../kernels/graph/graph.ts";
import type { Value } from "../../../kernels/graph/value.ts";
import { modelOf, numbersOf, tensorOf } from "../devices/models.ts";

/** The elements of a value, from those of the inputs of its graph. */
export async function computed(
  g: Graph,
  value: Value,
  inputs: Readonly<Record<string, readonly number[]>> = {},
): Promise<number[]> {
  const device = await openReference();
  try {
    const kernel = await device.compile(modelOf(g, { value }));
    const output = device.alloc(value.dtype, value.shape);
    const given = g.inputs.filter(({ name }) => kernel.inputs.includes(name)).map((
      { name, shape, dtype },
    ) => [name, tensorOf(device, shape, inputs[name]!, dtype)]);
    await kernel.bind(Object.fromEntries(given), { value: output })();
    return await numbersOf(device, output);
  } finally {
    device.close();
  }
}
