/**
 * Kernels against the matrix product of the same device, and the optimizer.
 *
 * @module
 */

import { type DeviceName, openDevice } from "../kernels/mod.ts";
import { benchDevices } from "./support/devices.ts";
import type { Row } from "./support/row.ts";
import { interleave, spreadOf } from "./support/timing.ts";
import { openProduct, productGflop } from "./support/product.ts";
import { drainOf, openBenchStage } from "./support/stage.ts";
import { gflopOf, LEARNING_RATE, SMALL } from "./support/workload.ts";

/** Rows, columns and depth of the product that stands for the device's speed. */
const SIZE = 1024;
/** Products in a round: one alone is too short a sample. */
const PRODUCTS = 3;

/** The share of its own matrix product that each device must reach, in percent. */
const SHARES: Partial<Record<DeviceName, number>> = { native: 65, wasm: 80 };

async function measure(name: DeviceName): Promise<Row[]> {
  const device = await openDevice(name), drain = drainOf(device);
  const { stage, parameters, forwardBackward } = await openBenchStage(device);
  const product = await openProduct(device, SIZE);
  let step = 0;
  const rounds = await interleave({
    product: async () => {
      for (let i = 0; i < PRODUCTS; i++) await product.run();
      await drain();
    },
    forwardBackward: async () => void await forwardBackward(),
    async adamw() {
      await stage.optimize(++step, LEARNING_RATE);
      await drain();
    },
  }, { rounds: name === "native" ? 25 : 11 });
  device.close();
  const productRate = (ms: number) => PRODUCTS * productGflop(SIZE) / (ms / 1000);
  const modelRate = (ms: number) => gflopOf(SMALL) / (ms / 1000);
  const share = SHARES[name];
  return [
    {
      name: `${name}: MatMul ${SIZE}³`,
      unit: "GFLOP/s",
      measured: spreadOf(rounds, ({ product }) => productRate(product)),
    },
    {
      name: `${name}: forward and backward`,
      unit: "GFLOP/s",
      measured: spreadOf(rounds, ({ forwardBackward }) => modelRate(forwardBackward)),
    },
    {
      name: `${name}: forward and backward ÷ MatMul`,
      unit: "%",
      measured: spreadOf(
        rounds,
        ({ product, forwardBackward }) => 100 * modelRate(forwardBackward) / productRate(product),
      ),
      ...share && { target: { atLeast: share } },
    },
    {
      name: `${name}: AdamW`,
      unit: "Melem/s",
      measured: spreadOf(rounds, ({ adamw }) => parameters / 1e6 / (adamw / 1000)),
    },
  ];
}

/** Measures each device against itself. */
export async function kernelsBench(): Promise<Row[]> {
  const { names, missing } = await benchDevices(true);
  const rows = [...missing];
  for (const name of names) rows.push(...await measure(name));
  return rows;
}
