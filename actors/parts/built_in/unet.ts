/**
 * `--model unet`: a U-Net that learns to take the noise out of pictures.
 *
 * @module
 */

import { type PictureConfig, unet, unetPictures } from "../../../kernels/mod.ts";
import { defineModel, type ModelPart, type Trained } from "../model_part.ts";

/** A U-Net. */
export const unetModel: ModelPart<"height" | "width" | "channels"> = defineModel({
  name: "unet",
  version: "1",
  sizes: ["height", "width", "channels"],
  data: "noisy-mnist",
  build({ layers, hidden, microBatch, data: { height, width, channels } }) {
    const config = { height, width, channels, layers, hidden };
    return {
      ...unet(config, microBatch),
      config: { architecture: "unet", ...config },
      show: (trained) => clean(config, trained),
    };
  },
});

/** What it makes of held-out pictures: by how much the noise falls, and the first of them. */
async function clean(
  config: PictureConfig,
  { data, predict }: Trained,
): Promise<string | undefined> {
  const pictures = data.heldOut?.(1) ?? [];
  if (pictures.length === 0) return undefined;
  const cleaned = await predict(unetPictures(config, 1));
  let before = 0, after = 0, first: string | undefined;
  for (const { features, targets } of pictures as readonly Record<string, Float32Array>[]) {
    const [noisy, wanted] = [features!, targets!], made = await cleaned({ features: noisy });
    before += meanSquaredError(noisy, wanted);
    after += meanSquaredError(made, wanted);
    first ??= drawn([noisy, made, wanted], config);
  }
  const mean = (sum: number) => (sum / pictures.length).toFixed(4);
  return `The mean squared error of ${pictures.length} held-out pictures falls from ${
    mean(before)
  } to ${mean(after)}; one with noise, as the network cleans it, and as it was:\n${first}`;
}

const meanSquaredError = (a: Float32Array, b: Float32Array): number =>
  a.reduce((sum, value, i) => sum + (value - b[i]!) ** 2, 0) / a.length;

/** From 0 to 1. */
const SHADES = [..." ░▒▓█"];

/** The first channels of pictures, side by side; a letter is as high as two pixels. */
function drawn(pictures: readonly Float32Array[], { height, width }: PictureConfig): string {
  const letter = (picture: Float32Array, row: number, column: number) => {
    const [upper, lower = upper] = [row, row + 1].map((at) =>
      at < height ? picture[at * width + column]! : undefined
    );
    const shade = Math.round((upper! + lower!) / 2 * (SHADES.length - 1));
    return SHADES[Math.max(0, Math.min(shade, SHADES.length - 1))];
  };
  const columns = Array.from({ length: width }, (_, column) => column);
  const lines = Array.from(
    { length: Math.ceil(height / 2) },
    (_, line) =>
      pictures.map((picture) => columns.map((column) => letter(picture, 2 * line, column)).join(""))
        .join(" │ "),
  );
  return lines.join("\n");
}
