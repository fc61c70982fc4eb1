/**
 * The model of an ONNX file in a checkpoint.
 *
 * @module
 */

import { readTensor } from "../../actors/checkpoints/tensors/tensor_source.ts";
import type { Checkpoint, TensorSource } from "../../actors/checkpoints/mod.ts";
import { onnxWithWeights } from "../../kernels/mod.ts";
import { quoted } from "../escape.ts";
import { isOnnxFile, readOnnxFile } from "./onnx_file.ts";

/**
 * What makes the bytes of a file with the weights of a checkpoint.
 *
 * @param path the file that its run trained, as the user names it: no file opens another.
 * @throws {TypeError} when none is named, or it cannot be read.
 * @throws {RangeError} when it is another one.
 */
export function trainedOnnx(
  { path: from, config, state: { weights } }: Checkpoint<TensorSource>,
  path: string | undefined,
): () => Uint8Array {
  const cannot = `Cannot export ${from}: --model must name the ONNX file that its run trained`;
  const { model } = (config.parts ?? {}) as { model?: { name?: unknown; integrity?: unknown } };
  const { name, integrity } = model ?? {};
  if (path === undefined) {
    throw new TypeError(`${cannot}, ${quoted(name)}, as no file opens another, received none`);
  }
  if (!isOnnxFile(path)) throw new TypeError(`${cannot}, received ${quoted(path)}`);
  const file = readOnnxFile(path);
  if (file.integrity !== integrity) {
    throw new RangeError(
      `${cannot}, with hash ${quoted(integrity)}, received ${quoted(path)} with ${file.integrity}`,
    );
  }
  return () =>
    onnxWithWeights(
      file.content,
      new Map([...weights].map(([name, source]) => [name, readTensor(source)])),
    );
}
