/**
 * Resident memory of all processes of a run after 200 and 2,000 steps, with a checkpoint every 100
 * steps and snapshots for recovery. Each run is a program,
 * `deno run -A bench/steady.ts local|workers|process [STEPS]`.
 *
 * [Note: medians of windows] A heap grows until it is collected, so a single sample says little: each
 * figure is the median of samples at a hundred steps.
 *
 * @module
 */

import { train } from "../actors/run/train.ts";
import type { TrainOptions } from "../actors/options/train_options.ts";
import { print } from "../console/terminal.ts";
import { watchResident } from "../console/train/memory_report.ts";
import { gpt2 } from "../kernels/mod.ts";
import { type Row, valueRow } from "./report.ts";
import { spread } from "./timing.ts";
import { benchBatches, LEARNING_RATE, type Workload } from "./workload.ts";

/** Two blocks of a GPT-2, so small that thousands of steps take seconds. */
const TINY: Workload = {
  config: { layers: 2, hidden: 64, heads: 2, seq: 32, vocab: 256 },
  microBatch: 2,
};

const MICRO_BATCHES = 4;

/** The compared steps, and the samples before each. */
const EARLY = 200, WINDOW = 100;
export const LATE = 2000;

const RUNTIMES: Readonly<Record<string, Pick<TrainOptions, "runtime" | "isolation">>> = {
  local: { runtime: "local" },
  workers: { runtime: "workers", isolation: "worker" },
  process: { runtime: "workers", isolation: "process" },
};

/** Returns the resident bytes at each step of a run. */
async function residentBytes(runtime: string, steps: number): Promise<number[]> {
  const directory = await Deno.makeTempDir(), batches = benchBatches(64, 1, TINY);
  using watch = watchResident();
  const bytes: number[] = [];
  const run = train({
    model: gpt2(TINY.config, TINY.microBatch),
    data: function* () {
      for (let i = 0;; i++) yield batches[i % batches.length]!;
    }(),
    steps,
    microBatches: MICRO_BATCHES,
    workers: 2,
    learningRate: LEARNING_RATE,
    checkpoint: { directory, every: 100, keep: 2, config: {} },
    snapshots: "memory",
    returnWeights: false,
    device: "native",
    ...RUNTIMES[runtime]!,
  });
  try {
    for await (const event of run) if (event.type === "step") bytes.push(watch.look().rssBytes);
  } finally {
    await Deno.remove(directory, { recursive: true });
  }
  return bytes;
}

/** Does the same in a program. */
async function measure(runtime: string): Promise<number[]> {
  const args = ["run", "-A", import.meta.url, runtime];
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), { args }).output();
  const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
  if (code === 0) return JSON.parse(text(stdout));
  throw new Error(`Cannot measure ${runtime}: its run must end well, received ${text(stderr)}`);
}

/** Returns the row of the growth of memory, whose bytes are known at each step. */
export function growthRow(name: string, bytes: readonly number[]): Row {
  const [early, late] = [EARLY, LATE].map((step) => spread(bytes.slice(step - WINDOW, step)));
  return {
    name: `${name} ${LATE} steps ÷ after ${EARLY}`,
    unit: "%",
    measured: {
      median: 100 * late!.median / early!.median,
      low: 100 * late!.low / early!.high,
      high: 100 * late!.high / early!.low,
    },
    target: { atMost: 105 },
  };
}

/** Measures each runtime. */
export async function steadyBench(): Promise<Row[]> {
  const rows: Row[] = [], mib = (bytes: number) => bytes / 2 ** 20;
  for (const runtime of Object.keys(RUNTIMES)) {
    const bytes = await measure(runtime), early = bytes.slice(EARLY - WINDOW, EARLY).map(mib);
    rows.push(
      valueRow(`${runtime}: resident after ${EARLY} steps`, "MiB", early),
      growthRow(`${runtime}: after`, bytes),
    );
  }
  return rows;
}

if (import.meta.main) {
  const [runtime = "local", steps = `${LATE}`] = Deno.args;
  print(JSON.stringify(await residentBytes(runtime, Number(steps))));
}
