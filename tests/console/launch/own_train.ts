/** A user's training script for ranks: it resumes from the checkpoints that it finds. */

import { readCheckpoint } from "../../../actors/checkpoints/read.ts";
import { train } from "../../../actors/run/train.ts";
import { gpt2 } from "../../../kernels/mod.ts";
import { print } from "../../../console/terminal.ts";
import { batchesOf, SMALL } from "../../actors/runs.ts";

const directory = Deno.args[0]!, sizes = { ...SMALL, microBatches: 2, steps: 10 };
for await (
  const event of train({
    model: gpt2(sizes, sizes.microBatch),
    data: batchesOf(sizes),
    steps: sizes.steps,
    microBatches: sizes.microBatches,
    workers: 2,
    device: "reference",
    runtime: "mpi",
    checkpoint: { directory, every: 2, config: {} },
    resume: await readCheckpoint(directory),
  })
) {
  if (event.type === "step") print(`step ${event.step}`);
  if (event.type === "end") print(event.weightsHash);
}
