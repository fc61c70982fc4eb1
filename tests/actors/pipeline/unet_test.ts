/** A U-Net in stages: each resolution is handed across all that lies below it. */

import assert from "node:assert/strict";
import { readCheckpoint, type TrainOptions } from "../../../actors/mod.ts";
import { unet } from "../../../kernels/mod.ts";
import { createSchedule, withRecomputation } from "../../../schedules/mod.ts";
import { folderTest } from "../../in_folder.ts";
import { pictureBatches, SIZES } from "../../kernels/architectures/pictures.ts";
import { bitsOf, edgesOf, testSerialBits, type Trainee } from "../architectures.ts";

const MICRO_BATCH = 2, MOST = 60;
const pictures = await pictureBatches(MICRO_BATCH, MOST);

/** Nine layers: enough for the stages of every schedule on four workers. */
const UNET: Trainee = {
  model: unet({ ...SIZES, layers: 4 }, MICRO_BATCH),
  batches: (count) => pictures.slice(0, count),
};

Deno.test("skip edges of the U-Net cross one, two and more stages", () => {
  const crossed = (stages: number) =>
    edgesOf(UNET, stages).map(({ from, to }) => Math.max(...to) - from).sort();
  assert.deepEqual(crossed(4), [1, 2, 3]);
  assert.deepEqual(crossed(8), [2, 4, 6]);
});

testSerialBits("a U-Net", UNET);

const OPTIONS = { device: "native", workers: 4, schedule: "1f1b", runtime: "local" } as const;
const AHEAD = withRecomputation(createSchedule("1f1b", { workers: 4, microBatches: 8 }));

/** None of them is another sum. */
const VARIANTS: readonly Partial<TrainOptions>[] = [
  { recompute: "none" },
  { recompute: "full" },
  { recomputeInterval: 1 },
  { recomputeInterval: 2, recompute: "full", workers: 2 },
  { schedule: AHEAD },
  { runtime: "workers" },
  { runtime: "workers", isolation: "process" },
];

Deno.test("a U-Net has the serial bits whatever is computed again, and in threads and processes", async () => {
  const serial = await bitsOf(UNET, { ...OPTIONS, runtime: "serial" });
  for (const variant of VARIANTS) {
    const what = JSON.stringify(variant).slice(0, 80);
    assert.deepEqual(await bitsOf(UNET, { ...OPTIONS, ...variant }), serial, what);
  }
});

folderTest(
  "a U-Net goes on from a checkpoint on fewer workers as if nothing had been",
  async (directory) => {
    const whole = await bitsOf(UNET, { ...OPTIONS, steps: 3 });
    await bitsOf(UNET, { ...OPTIONS, steps: 1, checkpoint: { directory, config: {} } });
    const resume = (await readCheckpoint(directory))!;
    const rest = await bitsOf(UNET, {
      ...{ ...OPTIONS, steps: 3, resume, workers: 2, schedule: "message-driven" },
    });
    assert.deepEqual([rest.losses, rest.hash], [whole.losses.slice(1), whole.hash]);
  },
);
