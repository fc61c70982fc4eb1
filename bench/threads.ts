/**
 * Speed-up of a single worker by threads, next to the speed-up of a product. Each number of threads
 * is measured by a program, `deno run -A bench/threads.ts THREADS`, as a process computes with one
 * pool of threads.
 *
 * @module
 */

import { openDevice } from "../kernels/mod.ts";
import { answer, type Row, rowMaker, startProgram } from "./report.ts";
import { interleave, openProduct, PRODUCT_SIZE } from "./timing.ts";
import { closing, drainOf, openBenchStage } from "./workload.ts";

/** Share of the speed-up of the product that the step must have. */
const TARGET = { atLeast: 0.8 } as const;

/** Products of an answer: one is too short a sample. */
const PRODUCTS = 8;

/** Micro-batches of a step, N. */
const MICRO_BATCHES = 8;

/** Returns 1, 2, 4 … and the number of cores. */
function threadCounts(): number[] {
  const cores = navigator.hardwareConcurrency, counts: number[] = [];
  for (let count = 1; count < cores; count *= 2) counts.push(count);
  return [...counts, cores];
}

/** Measures each number of threads in its process. */
export async function threadsBench(): Promise<Row[]> {
  const counts = threadCounts();
  const jobs = counts.map((count) => [count, startProgram("threads.ts", `${count}`)] as const);
  try {
    const cases = Object.fromEntries(
      jobs.flatMap(([count, job]) =>
        ["step", "product"].map((what) =>
          [`${what} ${count}`, async () => (await job.ask<{ ms: number }>(what)).ms] as const
        )
      ),
    );
    const row = rowMaker(await interleave(cases, { rounds: 11, isAlone: false }));
    const faster = (ms: Readonly<Record<string, number>>, what: string, count: number) =>
      ms[`${what} 1`]! / ms[`${what} ${count}`]!;
    return [
      ...counts.map((count) =>
        row(`native, one worker, threads ${count}: step`, "ms", (ms) => ms[`step ${count}`]!)
      ),
      ...counts.filter((count) => count > 1).flatMap((count): Row[] => [
        row(`  step on ${count} threads ÷ on 1`, "×", (ms) => faster(ms, "step", count)),
        row(
          `  MatMul ${PRODUCT_SIZE}³ on ${count} threads ÷ on 1`,
          "×",
          (ms) => faster(ms, "product", count),
        ),
        row(`  … of that`, "", (ms) => faster(ms, "step", count) / faster(ms, "product", count), {
          // `--threads auto` gives a single worker all cores.
          ...count === counts.at(-1) && { target: TARGET },
        }),
      ]),
    ];
  } finally {
    for (const [, job] of jobs) await job.close();
  }
}

/** Answers `step` and `product` with their milliseconds on some threads. */
async function runJob(threads: number): Promise<void> {
  using device = closing(await openDevice("native", { threads, isBlocking: true }));
  const { step } = await openBenchStage(device), product = await openProduct(device, PRODUCT_SIZE);
  const drain = drainOf(device);
  const timed = (run: () => Promise<void>) => async () => {
    const start = performance.now();
    await run();
    return { ms: performance.now() - start };
  };
  await answer({
    step: timed(() => step(MICRO_BATCHES)),
    product: timed(async () => {
      for (let i = 0; i < PRODUCTS; i++) await product.run();
      await drain();
    }),
  });
}

if (import.meta.main) await runJob(Number(Deno.args[0]));
