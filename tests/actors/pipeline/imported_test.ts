/** A model that is imported from ONNX in stages: records and skip edges where its tensors cross. */

import assert from "node:assert/strict";
import {
  compileModel,
  fromOnnx,
  initialValues,
  layersOnnx,
  unet,
  unetPictures,
} from "../../../kernels/mod.ts";
import { pictureBatches, SIZES } from "../../kernels/architectures/pictures.ts";
import { bitsOf, edgesOf, type Trainee } from "../architectures.ts";

const MICRO_BATCH = 2, MOST = 60, CONFIG = { ...SIZES, layers: 4 };
const pictures = await pictureBatches(MICRO_BATCH, MOST);
const batches = (count: number) => pictures.slice(0, count);

const own = unet(CONFIG, MICRO_BATCH);
const weights = new Map(
  compileModel(own, "none").parameters.map((
    { name, spec },
  ) => [name, initialValues(spec, name, 1)]),
);
const file = layersOnnx(unetPictures(CONFIG, MICRO_BATCH)).pieces((name) => weights.get(name));

const IMPORTED: Trainee = {
  model: fromOnnx(await new Blob([...file]).bytes(), { loss: "mse", label: "targets" }),
  batches,
};

Deno.test("a U-Net that was written as ONNX comes back, and has the losses that it had", async () => {
  const options = { steps: 4, runtime: "serial", device: "native" } as const;
  const back = await bitsOf(IMPORTED, options);
  const want = await bitsOf({ model: { ...own, weights }, batches }, options);
  for (const [i, loss] of want.losses.entries()) {
    assert.ok(Math.abs(back.losses[i]! / loss - 1) < 1e-5, `step ${i + 1}: ${back.losses[i]}`);
  }
});

Deno.test("skip edges of an imported U-Net cross one, two and more stages", () => {
  const edges = edgesOf(IMPORTED, 8).flatMap(({ from, to }) => to.map((stage) => stage - from));
  assert.deepEqual([...new Set(edges)].sort(), [1, 2, 5]);
});

Deno.test("an imported U-Net on four workers has the serial bits, in two stages of a worker, too", async () => {
  for (const schedule of ["1f1b", "hanayo"]) {
    const options = { schedule, workers: 4, device: "native", steps: 1 } as const;
    const serial = await bitsOf(IMPORTED, { ...options, runtime: "serial" });
    assert.deepEqual(await bitsOf(IMPORTED, { ...options, runtime: "local" }), serial, schedule);
  }
});
