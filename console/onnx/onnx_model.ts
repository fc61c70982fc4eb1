/**
 * A model of an ONNX file as a part of a run.
 *
 * @module
 */

import { didYouMean } from "../../actors/run/options/did_you_mean.ts";
import type { ModelPart } from "../../actors/parts/mod.ts";
import { fromOnnx, modelFields, onnxWithWeights } from "../../kernels/mod.ts";
import { quoted } from "../escape.ts";
import type { TrainFlags } from "../train/train_flags.ts";
import { LABEL, onnxFields } from "./onnx_fields.ts";
import { dimensionsOfRun, type OnnxFile } from "./onnx_file.ts";

/**
 * The part that a file is, with what the flags say of its training.
 *
 * @throws {TypeError} {@linkcode RangeError} when they leave something open, or name what is not there.
 */
export function onnxModel(file: OnnxFile, flags: TrainFlags): ModelPart {
  const { content, name } = file, { loss, output, label = LABEL } = flags;
  if (loss === undefined) {
    throw new TypeError(
      `Cannot train ${quoted(file.path)}: --loss must be cross-entropy or mse, received none`,
    );
  }
  return {
    name,
    version: "1",
    build: ({ seq }) => {
      const dimensions = dimensionsOfRun(file, { ...flags, seq }),
        frozen = frozenOf(file, flags.freeze);
      const model = fromOnnx(content, { loss, label, dimensions, frozen, ...output && { output } });
      const specs = modelFields(model);
      return {
        ...model,
        name,
        config: { architecture: "onnx", loss },
        fieldsOf: (batch) => onnxFields(specs, label, batch),
        onnx: (weights) => onnxWithWeights(content, weights),
      };
    },
  };
}

/** The initializers that a list names; `NAME*` stands for all that begin so. */
function frozenOf({ path, initializers }: OnnxFile, list = ""): string[] {
  return list.split(",").filter(Boolean).flatMap((one) => {
    const isPrefix = one.endsWith("*"), begin = one.slice(0, -1);
    const found = initializers.filter((name) => isPrefix ? name.startsWith(begin) : name === one);
    if (found.length > 0) return found;
    throw new RangeError(
      `Cannot use --freeze: each must be an initializer of ${quoted(path)}, received ${
        quoted(one)
      }${didYouMean(one, initializers)}`,
    );
  });
}
