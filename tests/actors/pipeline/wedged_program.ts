/** A run whose second worker hangs in step 4. */

import { train } from "../../../actors/run/train.ts";
import { runCommand } from "../../../console/command.ts";
import { gpt2 } from "../../../kernels/mod.ts";
import { batchesOf, SMALL } from "../runs.ts";

const [directory] = Deno.args as [string];

await runCommand(async ({ begin }) => {
  const sizes = { ...SMALL, steps: 8, microBatches: 2 };
  const events = train({
    model: gpt2(sizes, sizes.microBatch),
    data: batchesOf(sizes),
    steps: sizes.steps,
    microBatches: sizes.microBatches,
    workers: 2,
    schedule: "1f1b",
    device: "reference",
    stallMs: 2000,
    // F and B of two micro-batches, a Reduce and the buckets of three steps, and one action more.
    faults: [{ worker: 1, afterActions: 3 * (4 + 1 + 2) + 1, kind: "loop" }],
    checkpoint: { directory, every: 1, config: {} },
  });
  for await (const event of events) if (event.type === "plan") begin();
  return 0;
});
