/**
 * One run of the memory campaign: trains a tiny model, and says at the end, as JSON, how much
 * memory it and its children held on the way.
 *
 * @module
 */

import { print } from "../../console/print.ts";
import { train, type TrainOptions } from "../../actors/mod.ts";
import { residentBytes } from "../../console/train/resident_memory.ts";
import { type Layer } from "../../kernels/mod.ts";

/** What a run of the campaign is made with, as JSON on the command line. */
export interface MemoryRun {
  readonly steps: number;
  /** The steps after which memory is looked at. */
  readonly samples: readonly number[];
  readonly options: Pick<TrainOptions, "runtime" | "device" | "isolation" | "retries" | "journal">;
}

const ROWS = 4;

const dense = (name: string, inputs: number, outputs: number): Layer => ({
  name,
  build(g, x) {
    const points = x ?? g.batch("points", [ROWS, inputs]);
    return g.gelu(g.gemm(points, g.parameter("weight", [inputs, outputs])));
  },
});

const classifier: Layer = {
  name: "classifier",
  build: (g, x) =>
    g.crossEntropy(g.gemm(x!, g.parameter("weight", [8, 2])), g.batch("labels", [ROWS], "i32")),
};

function* batches() {
  for (let n = 0;; n++) {
    const points = Float32Array.from({ length: 2 * ROWS }, (_, i) => Math.sin(n + i));
    yield { points, labels: Int32Array.from({ length: ROWS }, (_, i) => Number(points[i]! > 0)) };
  }
}

if (import.meta.main) {
  const { steps, samples, options } = JSON.parse(Deno.args[0]!) as MemoryRun;
  const bytes: number[] = [];
  const run = train({
    model: {
      name: "tiny",
      layers: [dense("a", 2, 8), dense("b", 8, 8), classifier],
      predictions: ROWS,
    },
    data: batches(),
    steps,
    microBatches: 2,
    workers: 2,
    schedule: "1f1b",
    ...options,
  });
  for await (const event of run) {
    if (event.type === "step" && samples.includes(event.step)) bytes.push(residentBytes(Deno.pid));
  }
  print(JSON.stringify(bytes));
}
