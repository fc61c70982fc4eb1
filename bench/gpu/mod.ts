/**
 * What a GPU does under the webgpu device: products, a GPT-2 small, dispatches and copies.
 *
 * It takes less than ten minutes on any adapter: sizes are the largest, up to those of its name, that
 * the rate of a smaller one lets hope for. So each row says its size.
 *
 * @module
 */

import { type Adapter, openWebgpu, webgpuAdapters } from "../../kernels/mod.ts";
import type { Row } from "../support/row.ts";
import { gptRows } from "./gpt.ts";
import { measureLimits } from "./limits.ts";
import { productRows, type Products } from "./products.ts";
import { spread } from "../support/timing.ts";
import { transferRows } from "./transfers.ts";

/** The adapter that is measured: the first GPU, else software in its place. */
async function useAdapter(): Promise<Adapter> {
  const { adapters: [adapter] } = await webgpuAdapters();
  if (!adapter) throw new Error("this machine has no adapter: see `deno task troupe devices`");
  // For this process and those that it starts: drivers are loaded when a device is opened.
  for (const [name, value] of Object.entries(adapter.environment)) Deno.env.set(name, value);
  return adapter;
}

/** What is measured, and the largest tensor that it takes. */
const adapterRow = ({ name, kind, maxBufferBytes }: Adapter): Row => ({
  name: `${name} (${kind}): largest buffer`,
  unit: "MiB",
  measured: spread([maxBufferBytes / 2 ** 20]),
  ...kind === "software" && { note: "no GPU: these figures say nothing about one" },
});

/** Products and transfers, on a device that is closed before a model needs its memory. */
async function smallParts(hasF16: boolean): Promise<Products> {
  const limits = await measureLimits(), device = await openWebgpu();
  try {
    const { rows, gflopPerSecond } = await productRows(device, hasF16, limits);
    return { rows: [...rows, ...await transferRows(device)], gflopPerSecond };
  } finally {
    device.close();
  }
}

/** Measures the first adapter. */
export async function gpuBench(): Promise<Row[]> {
  const adapter = await useAdapter(), { hasF16 } = adapter;
  const { rows, gflopPerSecond } = await smallParts(hasF16);
  return [adapterRow(adapter), ...rows, ...await gptRows(hasF16, gflopPerSecond)];
}
