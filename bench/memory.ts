/**
 * Resident memory of a run of GPT-2 small, next to its estimate and to PyTorch.
 *
 * @module
 */

import { processesFrom } from "../console/train/memory_report.ts";
import { openTorch } from "./peers.ts";
import { reasonRow, type Row, valueRow } from "./report.ts";
import { GPT2_SMALL, trainWatched } from "./workload.ts";

const WORKERS = 2, MICRO_BATCHES = 8, STEPS = 4;

const GIB = 2 ** 30;

const row = (name: string, bytes: number, note = ""): Row =>
  valueRow(name, "GiB", [bytes / GIB], note === "" ? {} : { note });

const ratio = (name: string, value: number, atMost: number): Row =>
  valueRow(name, "×", [value], { target: { atMost } });

/** Returns the peak of PyTorch's memory while it takes steps, and its version. */
async function torchBytes(): Promise<{ bytes: number; title: string }> {
  await using torch = await openTorch(WORKERS, {
    workload: GPT2_SMALL,
    microBatches: MICRO_BATCHES,
  });
  let bytes = 0;
  const look = () => {
    const others = processesFrom(Deno.pid).filter(({ pid }) => pid !== Deno.pid);
    bytes = Math.max(bytes, others.reduce((sum, { rssBytes }) => sum + rssBytes, 0));
  };
  const timer = setInterval(look, 200);
  try {
    for (let step = 0; step < 2; step++) await torch.step();
    return { bytes, title: torch.title };
  } finally {
    clearInterval(timer);
  }
}

/** Trains GPT-2 small on two workers, and with PyTorch on two threads, if it is installed. */
export async function memoryBench(): Promise<Row[]> {
  if (Deno.build.os !== "linux") {
    throw new Error("the memory of other processes is known on Linux only");
  }
  const ours: Row[] = [], peaks = new Map<string, number>();
  for (const recompute of ["none", "cheap"]) {
    const { planned, peak, training, end } = await trainWatched({
      ...{ ...GPT2_SMALL, microBatches: MICRO_BATCHES, steps: STEPS },
      flags: [
        ...["--device", "native", "--workers", `${WORKERS}`, "--schedule", "1f1b"],
        ...["--recompute", recompute],
      ],
    });
    peaks.set(recompute, peak);
    ours.push(
      row(
        `GPT-2 small on two workers, recompute ${recompute}: planned`,
        planned,
        "12×768, T = 256, V = 50257, B = 2, N = 8",
      ),
      row("resident in training", training),
      row("resident at the end", end, "the checkpoint is written"),
      ratio("the most that was resident ÷ planned", peak / planned, 1.25),
    );
  }
  try {
    const { bytes, title } = await torchBytes();
    const ratios = Array.from(
      peaks,
      ([recompute, peak]) =>
        ratio(`the most that was resident, recompute ${recompute} ÷ PyTorch`, peak / bytes, 0.85),
    );
    return [...ours, row("PyTorch in training", bytes, title), ...ratios];
  } catch (error) {
    return [...ours, reasonRow("PyTorch", error, "GiB")];
  }
}
