/**
 * The pictures of `tests/fixtures/unet` and the networks that PyTorch trained on them.
 *
 * @module
 */

import { type Batch, resnet, unet } from "../../../kernels/mod.ts";
import { readFloats, readJson } from "../stage/pytorch.ts";
import { type Fixture, inSteps } from "./trains_as_pytorch.ts";

/** A network of convolutions. */
export type PictureNetwork = "unet" | "resnet";

/** The sizes of both networks. */
export const { config: SIZES } = await readJson("resnet/expected.json");

/** PyTorch's results for a network. */
export async function pictureFixture(network: PictureNetwork): Promise<Fixture> {
  const { microBatch, microBatches, steps, lr } = SIZES;
  const batches = await pictureBatches(microBatch, microBatches * steps);
  const { float32 } = await readJson(`${network}/expected.json`);
  return {
    model: (network === "unet" ? unet : resnet)(SIZES, microBatch),
    weights: await readFloats(`${network}/weights.safetensors`),
    gradients: await readFloats(`${network}/gradients.safetensors`),
    losses: float32.losses,
    steps: inSteps(batches, steps, microBatches),
    learningRate: lr,
  };
}

/** Micro-batches with the fields of both networks; the pictures are repeated. */
export async function pictureBatches(microBatch: number, count: number): Promise<Batch[]> {
  const { labels } = await readJson("resnet/expected.json");
  const read = (name: string) =>
    Deno.readFile(new URL(`../../fixtures/unet/${name}.bin`, import.meta.url));
  const [noisy, clean] = [await read("noisy"), await read("clean")];
  const pixels = SIZES.height * SIZES.width;
  return Array.from({ length: count }, (_, g) => {
    const rows = Array.from({ length: microBatch }, (_, j) => (g * microBatch + j) % labels.length);
    const some = (bytes: Uint8Array, number: (byte: number) => number) => {
      const all = rows.flatMap((row) => [...bytes.subarray(row * pixels, (row + 1) * pixels)]);
      return Float32Array.from(all, number);
    };
    return {
      features: some(noisy, (byte) => (byte - 96) / 64),
      targets: some(clean, (byte) => byte / 256),
      labels: Int32Array.from(rows, (row) => labels[row]),
    };
  });
}
