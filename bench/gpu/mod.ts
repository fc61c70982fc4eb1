/**
 * What a GPU does under the webgpu device: products, a GPT-2 small, dispatches and copies.
 *
 * It takes less than ten minutes on any adapter: sizes are the largest, up to those of its name, that
 * the rate of a smaller one lets hope for. So each row says its size.
 *
 * @module
 */

import { type Adapter, openWebgpu, resolveDevice } from "../../kernels/mod.ts";
import type { Row } from "../support/row.ts";
import { gptRows } from "./gpt.ts";
import { measureLimits } from "./limits.ts";
import { productRows, type Products } from "./products.ts";
import { spread } from "../support/timing.ts";
import { transferRows } from "./transfers.ts";

/** What is measured, and the largest tensor that it takes. */
const adapterRow = ({ name, kind, maxBufferBytes }: Adapter): Row => ({
  name: `${name} (${kind}): largest buffer`,
  unit: "MiB",
  measured: spread([maxBufferBytes / 2 ** 20]),
  ...kind === "software" && { note: "no GPU: these figures say nothing about one" },
});

/** Products and transfers, on a device that is closed before a model needs its memory. */
async function smallParts(adapter: Adapter): Promise<Products> {
  const limits = await measureLimits(adapter), device = await openWebgpu({ adapter });
  try {
    const { rows, gflopPerSecond } = await productRows(device, adapter.hasF16, limits);
    return { rows: [...rows, ...await transferRows(device)], gflopPerSecond };
  } finally {
    device.close();
  }
}

/** Measures the first adapter: a GPU, else software in its place. */
export async function gpuBench(): Promise<Row[]> {
  const adapter = (await resolveDevice("webgpu")).adapter!;
  const { rows, gflopPerSecond } = await smallParts(adapter);
  return [adapterRow(adapter), ...rows, ...await gptRows(adapter, gflopPerSecond)];
}
