/**
 * Measures the growth of the step time and the memory of a GPT-2 with each of its sizes.
 *
 * [Note: exponents] One size of a small model is doubled three times. A row compares the exponent of
 * the measured time with that of the operations of matrix products over the same sizes; its note
 * names the limit of both. Bytes are the estimate, and the tensors that the device holds.
 *
 * @module
 */

import { ADAMW_DEFAULTS, compileModel, openDevice } from "../kernels/mod.ts";
import { planMemory, totalBytes } from "../kernels/stage/memory.ts";
import { type Row, rowMaker, valueRow } from "./report.ts";
import { exponentOf, interleave, type Round } from "./timing.ts";
import { benchModel, gflopOf, openBenchStage, type Workload } from "./workload.ts";

/** Sizes that are doubled, with N, the micro-batches of a step. */
const BASE = { layers: 2, hidden: 128, seq: 64, vocab: 1024, microBatches: 2 };

type Sizes = typeof BASE;

const SAMPLES = 2;
const HEAD_WIDTH = 64;
const FACTORS = [1, 2, 4, 8] as const;
const ROUNDS = { rounds: 9 } as const;

/** The expected growth of time and bytes. */
const REASONS: Readonly<Record<keyof Sizes, { readonly time: string; readonly bytes: string }>> = {
  layers: {
    time: "towards 1: blocks are alike, but embedding and head stay as they are",
    bytes: "towards 1, for the same reason",
  },
  hidden: {
    time: "towards 2: a block has 12·d² weights; attention, head and embedding grow with d, and " +
      "larger products run at a higher rate",
    bytes: "towards 2: weights grow with d², activations with d",
  },
  seq: {
    time: "between 1 and 2: products with weights grow with T, attention with T²; the optimizer " +
      "does not grow",
    bytes: "between 0 and 2: weights do not grow, activations grow with T, attention with T²",
  },
  vocab: {
    time: "towards 1: head, loss and the optimizer of two tables grow with V, blocks do not",
    bytes: "towards 1: two tables and the logits grow with V, blocks do not",
  },
  microBatches: {
    time: "below 1, as the optimizer runs once per step",
    bytes: "0: a worker alone has one micro-batch in flight",
  },
};

const workloadOf = ({ layers, hidden, seq, vocab }: Sizes): Workload => ({
  config: { layers, hidden, heads: hidden / HEAD_WIDTH, seq, vocab },
  microBatch: SAMPLES,
});

/** Bytes of the whole model on one worker. */
function plannedBytes(workload: Workload): number {
  const program = compileModel(benchModel(workload), "none");
  const options = { optimizer: ADAMW_DEFAULTS, backward: "whole", slots: 1 } as const;
  return totalBytes(planMemory(program, options).device);
}

/** Opens one size of an axis. */
async function openPoint(axis: keyof Sizes, factor: number) {
  const sizes = { ...BASE, [axis]: factor * BASE[axis] }, workload = workloadOf(sizes);
  const device = await openDevice("native", { isBlocking: true });
  const { step } = await openBenchStage(device, workload);
  return {
    size: sizes[axis],
    gflop: gflopOf(workload) * sizes.microBatches,
    planned: plannedBytes(workload),
    device,
    step: () => step(sizes.microBatches),
  };
}

type Point = Awaited<ReturnType<typeof openPoint>>;

async function measure(axis: keyof Sizes): Promise<Row[]> {
  const points: Point[] = [];
  try {
    for (const factor of FACTORS) points.push(await openPoint(axis, factor));
    const cases = Object.fromEntries(points.map(({ size, step }) => [`${size}`, step]));
    return rowsOf(axis, points, await interleave(cases, ROUNDS));
  } finally {
    for (const { device } of points) device.close();
  }
}

function rowsOf(
  axis: keyof Sizes,
  points: readonly Point[],
  rounds: readonly Round<string>[],
): Row[] {
  const mebibytes = (bytes: number) => (bytes / 2 ** 20).toFixed(1);
  const power = (value: (point: Point) => number) =>
    exponentOf(points.map((point) => [point.size, value(point)]));
  const { time, bytes } = REASONS[axis], name = axis === "microBatches" ? "N" : axis;
  const held = ({ device }: Point) => device.allocatedBytes, row = rowMaker(rounds);
  return [
    ...points.map((point): Row =>
      row(`${name} ${point.size}: step`, "ms", (ms) => ms[point.size]!, {
        note: `planned ${mebibytes(point.planned)} MiB, held ${mebibytes(held(point))} MiB`,
      })
    ),
    row(`time grows with ${name} to the power of`, "", (ms) => power(({ size }) => ms[size]!), {
      note: `operations ${power(({ gflop }) => gflop).toFixed(2)}; ${time}`,
    }),
    valueRow(`bytes grow with ${name} to the power of`, "", [power(held)], {
      note: `planned ${power(({ planned }) => planned).toFixed(2)}; ${bytes}`,
    }),
  ];
}

/** Measures each size on the native device. */
export async function scalingBench(): Promise<Row[]> {
  const rows: Row[] = [];
  for (const axis of Object.keys(BASE) as (keyof Sizes)[]) rows.push(...await measure(axis));
  return rows;
}
