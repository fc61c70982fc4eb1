/**
 * The whole model and the product on some threads, as a program of its own: a process computes with
 * one pool of threads.
 *
 *     deno run -A bench/threads_job.ts <threads>
 *
 * It answers `step` and `product` with the milliseconds of one.
 *
 * @module
 */

import { openDevice } from "../kernels/mod.ts";
import { answer } from "./report.ts";
import { openProduct } from "./timing.ts";
import { drainOf, openBenchStage } from "./workload.ts";

/** Rows, columns and depth of the product. */
const SIZE = 1024;
/** Products of an answer: one alone is too short a sample. */
const PRODUCTS = 8;
/** Micro-batches of a step, N. */
const MICRO_BATCHES = 8;

const device = await openDevice("native", { threads: Number(Deno.args[0]), isBlocking: true });
const { step } = await openBenchStage(device), product = await openProduct(device, SIZE);
const drain = drainOf(device);

/** Milliseconds of something. */
async function timed(run: () => Promise<void>): Promise<{ ms: number }> {
  const start = performance.now();
  await run();
  return { ms: performance.now() - start };
}

await answer({
  step: () => timed(() => step(MICRO_BATCHES)),
  product: () =>
    timed(async () => {
      for (let i = 0; i < PRODUCTS; i++) await product.run();
      await drain();
    }),
});
device.close();
