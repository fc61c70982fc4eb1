/**
 * The model that `troupe profile` measures, as the flags name it.
 *
 * @module
 */

import { findPart, importPart } from "../../actors/parts/mod.ts";
import type { BuiltModel } from "../../actors/parts/model_part.ts";
import { refuseOnnxFile } from "../onnx/onnx_file.ts";
import { printError } from "../print.ts";
import { sizesOfFlags } from "../train/flags/model_flags.ts";
import type { ProfileFlags } from "./profile_flags.ts";

/** Sizes of data that is not there: bytes of a text, and MNIST's. */
const DATA_SIZES: Readonly<Record<string, number>> = {
  vocab: 256,
  inputs: 784,
  classes: 10,
  channels: 1,
  height: 28,
  width: 28,
};

/** Models without heads and tokens. */
const WITHOUT_TOKENS = ["mlp", "resnet", "unet"];

/** Makes the model for so many samples. */
export type ModelOf = (microBatch: number) => Promise<BuiltModel>;

/**
 * Finds the model.
 *
 * @throws {TypeError} {@linkcode RangeError} (as a rejection) when there is none, or it asks its data
 * for other sizes.
 */
export async function profiledModel(flags: ProfileFlags): Promise<ModelOf> {
  refuseOnnxFile("Cannot measure layers", flags.model);
  const found = await findPart("model", flags.model);
  if (!found.isBuiltIn) {
    printError(`model ${found.name}: ${found.from} with hash ${found.integrity}`);
  }
  const { value: part } = await importPart(found);
  const unknown = part.sizes?.find((name) => !Object.hasOwn(DATA_SIZES, name));
  if (unknown !== undefined) {
    throw new TypeError(
      `Cannot measure ${part.name}: sizes of its data must be among ${
        Object.keys(DATA_SIZES).join(", ")
      }, received ${unknown}`,
    );
  }
  const sizes = sizesOfFlags(flags), { vocab } = sizes;
  const data = { ...DATA_SIZES, ...vocab !== undefined && { vocab } };
  return async (microBatch) => await part.build({ ...sizes, data, microBatch });
}

/** The sizes of a model, for people to read in its profile. */
export function sizesOf(flags: ProfileFlags): Readonly<Record<string, number>> {
  const { layers, hidden, heads, seq, vocab = DATA_SIZES.vocab! } = flags;
  return WITHOUT_TOKENS.includes(flags.model)
    ? { layers, hidden }
    : { layers, hidden, heads, seq, vocab };
}
