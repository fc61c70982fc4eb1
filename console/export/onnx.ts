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
import { inOneLine } from "../escape.ts";
import { findCheckpoint } from "../trained/find_checkpoint.ts";
import {
  findDecoderFolder,
  type TrainedDecoder,
  trainedDecoder,
} from "../trained/trained_decoder.ts";
import { tokenizerName } from "../trained/tokenizer_source.ts";
import { type TrainedMlp, trainedMlp } from "../trained/trained_mlp.ts";

/** The models that have an ONNX file. */
type Exported = TrainedDecoder | TrainedMlp;

/**
 * Finds the model of a run.
 *
 * @returns where it lies, and what writes it to a new file.
 * @throws {RangeError} when it is none that can be exported, or too large for such a file.
 */
export async function exportOnnx(run: string) {
  const model = await findModel(run), { weights, path } = model, file = fileOf(model);
  const valuesOf = (name: string) => readTensor(weights.get(name)!);
  const write = (out: string, signal?: AbortSignal) =>
    writeNewFile(out, file.pieces(valuesOf), signal);
  return { path, write };
}

async function findModel(run: string): Promise<Exported> {
  const folder = await findDecoderFolder(run);
  if (folder) return folder;
  const checkpoint = await findCheckpoint("export", "RUN", run);
  const { path, config: { architecture } } = checkpoint;
  if (architecture === "mlp") return trainedMlp("export", checkpoint);
  if (DECODERS.some((known) => known.architecture === architecture)) {
    return trainedDecoder("export", checkpoint);
  }
  throw new RangeError(
    `Cannot export ${path} as ONNX: its model must be gpt, llama or mlp, received ${
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
