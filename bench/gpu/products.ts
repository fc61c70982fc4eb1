/**
 * GEMM on a GPU, beside the limit of its adapter.
 *
 * @module
 */

import type { Device } from "../../kernels/mod.ts";
import { openProduct, productGflop } from "../support/product.ts";
import type { Row } from "../support/row.ts";
import { drainOf } from "../support/stage.ts";
import { interleave, spreadOf } from "../support/timing.ts";
import { limitRow, type Limits } from "./limits.ts";
import { roundsWithin } from "./rounds.ts";

const SMALLEST = 256, LARGEST = 4096;

/** A product that is likely to take longer is not tried. */
const LONGEST_MS = 3_000;

/** Milliseconds of rounds for each type. */
const BUDGET_MS = 20_000;

/** The products of each type, and how fast FP32 is. */
export interface Products {
  readonly rows: readonly Row[];
  readonly gflopPerSecond: number;
}

/** The largest product that does not take too long, opened, and its milliseconds. */
async function largestProduct(device: Device, dtype: "f32" | "f16") {
  const drain = drainOf(device);
  for (let size = SMALLEST;; size *= 2) {
    const product = await openProduct(device, size, dtype);
    const run = async () => {
      await product.run();
      await drain();
    };
    await run(); // compiles the shader
    const start = performance.now();
    await run();
    const ms = performance.now() - start;
    if (size === LARGEST || 8 * ms > LONGEST_MS) return { size, run, ms, close: product.close };
    product.close();
  }
}

/** Measures products of each type. */
export async function productRows(
  device: Device,
  hasF16: boolean,
  limits: Limits,
): Promise<Products> {
  const rows: Row[] = [];
  let gflopPerSecond = 0;
  for (const dtype of ["f32", "f16"] as const) {
    if (dtype === "f16" && !hasF16) {
      rows.push({ name: "MatMul, f16", unit: "GFLOP/s", note: "no shader-f16" });
      continue;
    }
    const { size, run, ms, close } = await largestProduct(device, dtype);
    const rounds = await interleave({ run }, roundsWithin(BUDGET_MS, ms));
    close();
    const rate = spreadOf(rounds, ({ run }) => productGflop(size) / (run / 1000));
    if (dtype === "f32") gflopPerSecond = rate.median;
    rows.push(limitRow(limits, dtype), {
      name: `MatMul ${size}³, ${dtype}`,
      unit: "GFLOP/s",
      measured: rate,
    });
    const limit = "rates" in limits ? limits.rates[dtype] : undefined;
    if (limit === undefined) continue;
    rows.push({
      name: `MatMul ${size}³, ${dtype} ÷ limit`,
      unit: "%",
      measured: spreadOf(rounds, ({ run }) => 100 * productGflop(size) / (run / 1000) / limit),
      ...dtype === "f16" && { note: "above 100 % where it has units for matrices" },
    });
  }
  return { rows, gflopPerSecond };
}
