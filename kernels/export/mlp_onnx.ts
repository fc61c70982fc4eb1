/**
 * A multilayer perceptron as an ONNX file.
 *
 * @module
 */

import { compileModel } from "../compile/compile_model.ts";
import { mlp, type MlpConfig } from "../layers/mlp.ts";
import { type OnnxFile, onnxFile, onnxGraph } from "./onnx_file.ts";

/**
 * An MLP classifier as an ONNX file, of operations of opset 20 only: `pixels`, f32 [batch, inputs], to
 * `logits`, f32 [batch, classes]. Weights have the names of {@linkcode mlp}; `metadata_props` hold
 * `model` and the sizes, by the names of {@linkcode MlpConfig}.
 *
 * @throws {RangeError} as {@linkcode mlp}; or when it would have 2 GiB or more.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { mlpOnnx } from "@troupe/troupe/kernels";
 *
 * const file = mlpOnnx({ inputs: 2, hidden: 3, layers: 1, classes: 2 });
 * const sizes = new Map([["0.weight", 6], ["0.bias", 3], ["1.weight", 6], ["1.bias", 2]]);
 * const pieces = file.pieces((name) => new Float32Array(sizes.get(name.slice("layers.".length))!));
 * assert.equal(new Blob([...pieces]).size, file.byteLength);
 * ```
 */
export function mlpOnnx(config: MlpConfig): OnnxFile {
  const { inputs, hidden, layers, classes } = config;
  const input = { name: "pixels", dtype: "f32", shape: ["batch", inputs] } as const;
  const output = { name: "logits", dtype: "f32", shape: ["batch", classes] } as const;
  return onnxFile({
    graph: onnxGraph("mlp", input, output, ({ node }) => {
      let x = input.name as string;
      for (let i = 0; i <= layers; i++) {
        const read = [x, `layers.${i}.weight`, `layers.${i}.bias`];
        x = i === layers
          ? node("Gemm", read, {}, output.name)
          : node("Gelu", [node("Gemm", read)], { approximate: "tanh" });
      }
    }),
    parameters: compileModel(mlp(config, 1), "none").parameters,
    metadata: { model: "mlp", inputs, hidden, layers, classes },
  });
}
