/**
 * The model that `troupe profile` measures, as the flags name it.
 *
 * @module
 */

import type { Profile } from "../../actors/foresight/mod.ts";
import { type DataPart, findPart, importPart } from "../../actors/parts/mod.ts";
import type { BuiltModel } from "../../actors/parts/model_part.ts";
import { refuseOnnxFile } from "../onnx/onnx_file.ts";
import { printError } from "../print.ts";
import { noteReads, refuseUnread, SIZES, sizesOfFlags } from "../train/flags/model_flags.ts";
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

type Numbers = Readonly<Record<string, number>>;

/** A model that is measured. */
export interface ModelToProfile {
  /** Makes it for so many samples. */
  of(microBatch: number): Promise<BuiltModel>;
  /** Its sizes, for people to read in its profile. */
  readonly sizes: Readonly<Record<string, number>>;
  /** The flags of `troupe train` that name it. */
  readonly flags: NonNullable<Profile["model"]>;
}

/**
 * Finds the model.
 *
 * @param given the flags that were typed.
 * @throws {TypeError} {@linkcode RangeError} (as a rejection) when there is none, it asks its data
 * for other sizes, or does not read one that was typed.
 */
export async function profiledModel(
  flags: ProfileFlags,
  given: Readonly<Record<string, unknown>>,
): Promise<ModelToProfile> {
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
  const read = new Set<unknown>();
  const of = async (microBatch: number) =>
    await part.build(noteReads({ ...sizes, data, microBatch }, read));
  await of(1);
  if (found.isBuiltIn) refuseUnread(`Cannot measure ${part.name}`, given, read);
  const isOwn = (option: string) => !found.isBuiltIn || read.has(option);
  const own = Object.entries({ vocab: data.vocab, ...flags }).filter(([flag, value]) =>
    Object.hasOwn(SIZES, flag) && value !== undefined && isOwn(SIZES[flag as keyof typeof SIZES])
  );
  return {
    of,
    sizes: Object.fromEntries(own.filter(([, value]) => typeof value === "number")) as Numbers,
    flags: { model: flags.model, ...Object.fromEntries(own) as Numbers },
  };
}

/** Data with sizes alone, for a model that only its profile says the vocabulary of. */
export const EMPTY_DATA: DataPart = {
  name: "none",
  version: "1",
  open: ({ vocab = DATA_SIZES.vocab! }) => ({ batches: [], sizes: { ...DATA_SIZES, vocab } }),
};
