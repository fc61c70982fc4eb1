/**
 * Numbers: graphs, gradients, layers, stages, devices, optimizers, and the data they read.
 *
 * @module
 */

export * from "./autodiff.ts";
export * from "./compile_model.ts";
export * from "./data/mod.ts";
export * from "./device.ts";
export * from "./devices/mod.ts";
export * from "./generate.ts";
export * from "./gradients.ts";
export * from "./graph.ts";
export * from "./layer.ts";
export * from "./layers/gpt2.ts";
export * from "./layers/mlp.ts";
export * from "./learning_rate.ts";
export * from "./npm_package.ts";
export * from "./onnx.ts";
export * from "./optimizer.ts";
export * from "./parameters.ts";
export * from "./partition.ts";
export * from "./predict.ts";
export * from "./program.ts";
export * from "./random.ts";
export * from "./safetensors.ts";
export * from "./stage.ts";
