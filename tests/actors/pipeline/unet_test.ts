/** A U-Net in stages: each resolution is handed across all that lies below it. */

import assert from "node:assert/strict";
import { unet } from "../../../kernels/mod.ts";
import { pictureBatches, SIZES } from "../../kernels/architectures/pictures.ts";
import { edgesOf, testSerialBits, type Trainee } from "../architectures.ts";

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
