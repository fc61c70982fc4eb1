/**
 * `troupe export --format onnx`: a model as any program that runs ONNX reads it.
 *
 * @module
 */

import { writeNewFile } from "../../actors/checkpoints/durable_folder.ts";
import { DECODERS } from "../../actors/checkpoints/hugging_face/decoders.ts";
import { readTensor } from "../../actors/checkpoints/tensors/tensor_source.ts";
import {
  gpt2Onnx,
  layersOnnx,
  llamaLogits,
  llamaTies,
  mlpOnnx,
  type OnnxFile,
} from "../../kernels/mod.ts";
import type { Checkpoint, TensorSource } from "../../actors/checkpoints/mod.ts";
import { inOneLine, quoted } from "../escape.ts";
import { trainedOnnx } from "../onnx/trained_onnx.ts";
import { findCheckpoint } from "../trained/find_checkpoint.ts";
import {
  findDecoderFolder,
  type TrainedDecoder,
  trainedDecoder,
} from "../trained/trained_decoder.ts";
import { tokenizerName } from "../trained/tokenizer_source.ts";
import { type TrainedMlp, trainedMlp } from "../trained/trained_mlp.ts";

/** The models whose layers have an ONNX file. */
type Exported = TrainedDecoder | TrainedMlp;

/** Writes a model to a new file. */
interface Found {
  /** Where it lies. */
  readonly path: string;
  write(out: string, signal?: AbortSignal): Promise<void>;
}

/**
 * Finds the model of a run.
 *
 * @param file the ONNX file that the run trained, as the user names it.
 * @returns where it lies, and what writes it to a new file.
 * @throws {RangeError} when it is none that can be exported, or too large for such a file.
 * @throws {TypeError} when a run trained an ONNX file that is not named.
 */
export async function exportOnnx(
  run: string,
  { model: file }: { readonly model?: string },
): Promise<Found> {
  const folder = await findDecoderFolder(run);
  const checkpoint = folder ? undefined : await findCheckpoint("export", "RUN", run);
  if (checkpoint?.config.architecture === "onnx") {
    const { path } = checkpoint, bytes = trainedOnnx(checkpoint, file);
    return { path, write: (out, signal) => writeNewFile(out, [bytes()], signal) };
  }
  const model = folder ?? modelOf(checkpoint!), { weights, path } = model, onnx = fileOf(model);
  if (file !== undefined) {
    throw new TypeError(
      `Cannot export ${path}: --model must be left out, as its run trained no ONNX file, received ${
        quoted(file)
      }`,
    );
  }
  const valuesOf = (name: string) => readTensor(weights.get(name)!);
  return { path, write: (out, signal) => writeNewFile(out, onnx.pieces(valuesOf), signal) };
}

function modelOf(checkpoint: Checkpoint<TensorSource>): Exported {
  const { path, config: { architecture } } = checkpoint;
  if (architecture === "mlp") return trainedMlp("export", checkpoint);
  if (DECODERS.some((known) => known.architecture === architecture)) {
    return trainedDecoder("export", checkpoint);
  }
  throw new RangeError(
    `Cannot export ${path} as ONNX: its model must be gpt, llama or mlp, or that of an ONNX file, received ${
      inOneLine(String(architecture).slice(0, 80))
    }; a script exports layers of its own with layersOnnx() of @troupe/troupe/kernels`,
  );
}

function fileOf(model: Exported): OnnxFile {
  if (model.architecture === "mlp") return mlpOnnx(model.config);
  const { architecture, config } = model, tokenizer = tokenizerName(model.tokenizer);
  if (architecture === "gpt2") return gpt2Onnx(config, { tokenizer });
  // One sample of all its tokens: a shorter one is padded at its end, with any ids.
  return layersOnnx(llamaLogits(config, 1), {
    name: architecture,
    ties: llamaTies(config),
    metadata: { tokenizer },
  });
}
