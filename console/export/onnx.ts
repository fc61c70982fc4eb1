/**
 * `troupe export --format onnx`: a model as any program that runs ONNX reads it.
 *
 * @module
 */

import { writeNewFile } from "../../actors/checkpoints/durable_folder.ts";
import { readTensor } from "../../actors/checkpoints/tensors/tensor_source.ts";
import { gpt2Onnx, mlpOnnx, type OnnxFile } from "../../kernels/mod.ts";
import { inOneLine } from "../escape.ts";
import { findCheckpoint } from "../trained/find_checkpoint.ts";
import { findGpt2Folder, type TrainedGpt2, trainedGpt2 } from "../trained/trained_gpt2.ts";
import { tokenizerName } from "../trained/tokenizer_source.ts";
import { type TrainedMlp, trainedMlp } from "../trained/trained_mlp.ts";

/** The models that have an ONNX file. */
type Exported = TrainedGpt2 | TrainedMlp;

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
  const folder = await findGpt2Folder(run);
  if (folder) return folder;
  const checkpoint = await findCheckpoint("export", "RUN", run);
  const { path, config: { architecture } } = checkpoint;
  if (architecture === "gpt2") return trainedGpt2("export", checkpoint);
  if (architecture === "mlp") return trainedMlp("export", checkpoint);
  throw new RangeError(
    `Cannot export ${path} as ONNX: its model must be gpt or mlp, received ${
      inOneLine(String(architecture).slice(0, 80))
    }; a script exports layers of its own with layersOnnx() of @troupe/troupe/kernels`,
  );
}

function fileOf(model: Exported): OnnxFile {
  if (model.architecture === "mlp") return mlpOnnx(model.config);
  return gpt2Onnx(model.config, { tokenizer: tokenizerName(model.tokenizer) });
}
