/**
 * `troupe export --format hf`: a model as transformers reads it.
 *
 * @module
 */

import { writeGpt2Folder } from "../../actors/checkpoints/mod.ts";
import type { TrainedGpt2 } from "../trained/trained_gpt2.ts";

const DTYPES = { f32: "F32", f16: "F16", bf16: "BF16" } as const;

/** Where it is written, and in which type its weights are. */
export interface HuggingFaceFlags {
  readonly out: string;
  readonly dtype: keyof typeof DTYPES;
}

/** Writes a model to a new folder. */
export async function exportHuggingFace(
  { config, weights }: TrainedGpt2,
  { out, dtype }: HuggingFaceFlags,
): Promise<void> {
  await writeGpt2Folder(out, { config, weights, dtype: DTYPES[dtype] });
}
