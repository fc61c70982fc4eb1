/** A training with checkpoints whose workers suffer some faults, and its hash: a script of ranks. */

import { type RuntimeName, train, type WorkerFault } from "../../../../actors/mod.ts";
import { print, printError } from "../../../../console/print.ts";
import { gpt2 } from "../../../../kernels/mod.ts";
import { batchesOf, SMALL } from "../../runs.ts";

const [runtime, schedule, directory, ...kinds] = Deno.args;
const sizes = { ...SMALL, hidden: 16, seq: 8, microBatches: 4, steps: 8 };
const events = train({
  model: gpt2(sizes, sizes.microBatch),
  data: batchesOf(sizes),
  steps: sizes.steps,
  microBatches: sizes.microBatches,
  workers: 2,
  schedule: schedule!,
  runtime: runtime as RuntimeName,
  checkpoint: { directory: directory!, every: 3, config: {} },
  faults: kinds.map((kind, i): WorkerFault => ({
    worker: 1 - i,
    afterActions: i === 0 ? 40 : 14,
    kind: kind as WorkerFault["kind"],
  })),
  announce: printError,
});
for await (const event of events) {
  if (event.type === "end") print(JSON.stringify({ weightsHash: event.weightsHash }));
}
