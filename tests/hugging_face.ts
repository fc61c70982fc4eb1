/** The fixture of Hugging Face's folders; `tests/fixtures/README.md` says how it was made. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { GPT2, parseConfig, readConfigJson } from "../actors/checkpoints/hugging_face.ts";
import { readWeights } from "../actors/checkpoints/weights.ts";
import { gpt2Logits, gpt2Parameters, openDevice, openPredictor } from "../kernels/mod.ts";
import { gpt2Ties } from "../kernels/layers/gpt2.ts";

/** The path of something of the fixture. */
export const hfPath = (name: string): string =>
  fileURLToPath(new URL(`fixtures/hugging_face/${name}`, import.meta.url));

/** The sizes in the `config.json` of a GPT-2. */
export const gpt2Sizes = (folder: string) =>
  parseConfig(GPT2, readConfigJson(folder), join(folder, "config.json"));

/** Results of PyTorch. */
export const EXPECTED: {
  readonly ids: readonly number[];
  readonly logits: Readonly<Record<string, readonly (readonly number[])[]>>;
  readonly fineTuned: {
    readonly learningRate: number;
    readonly weightDecay: number;
    readonly microBatch: number;
    readonly microBatches: number;
    readonly float32: readonly number[];
    readonly float64: readonly number[];
  };
} = JSON.parse(Deno.readTextFileSync(hfPath("expected.json")));

/** The folders of the fixture. */
export const FOLDERS: readonly string[] = Object.keys(EXPECTED.logits);

/** The logits of the model in a folder after each of the fixture's ids. */
export async function logitsOf(folder: string): Promise<number[][]> {
  const config = gpt2Sizes(folder), ties = gpt2Ties(config);
  const weights = await readWeights(folder, gpt2Parameters(config), ties);
  const device = await openDevice("native");
  try {
    const predict = await openPredictor(device, gpt2Logits(config), weights, ties);
    const logits = await predict({ ids: Int32Array.from(EXPECTED.ids) });
    const { vocab } = config;
    return EXPECTED.ids.map((_, i) => [...logits.subarray(i * vocab, (i + 1) * vocab)]);
  } finally {
    device.close();
  }
}

/** The most that logits differ by. */
export function distance(
  received: readonly (readonly number[])[],
  expected: readonly (readonly number[])[],
): number {
  assert.deepEqual(received.map((row) => row.length), expected.map((row) => row.length));
  return Math.max(
    ...received.flatMap((row, i) => row.map((one, j) => Math.abs(one - expected[i]![j]!))),
  );
}

/** SHA-256 of a text, in hexadecimal. */
export const sha256Of = (text: string): string => createHash("sha256").update(text).digest("hex");
