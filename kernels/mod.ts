/**
 * Numbers: graphs, gradients, layers, stages, devices, optimizers, and the data they read.
 *
 * @module
 */

export { type ActivationBytes, activationBytes, type ActivationOptions } from "./activations.ts";
export * from "./autodiff.ts";
export * from "./compile_model.ts";
export * from "./data/mod.ts";
export * from "./device.ts";
export * from "./devices/mod.ts";
export * from "./generate.ts";
export { type GradientNorms, type NormMemory, openGradientNorms } from "./gradient_norms.ts";
export * from "./gradients.ts";
export * from "./graph.ts";
export * from "./input_file.ts";
export * from "./layer.ts";
export * from "./layers/gpt2.ts";
export * from "./layers/mlp.ts";
export * from "./learning_rate.ts";
export * from "./machine_memory.ts";
export * from "./npm_package.ts";
export * from "./onnx.ts";
export {
  ADAMW_DEFAULTS,
  type AdamWOptions,
  MOMENTS,
  openOptimizer,
  type Optimizer,
  type OptimizerMemory,
  type OptimizerOptions,
  type SgdOptions,
} from "./optimizer.ts";
export {
  type Bucket,
  BUCKET_SIZE,
  createParameters,
  flatLength,
  type FlatRange,
  type FlatState,
  type HostState,
  type Parameter,
  type ParameterStore,
  type StoreOptions,
} from "./parameters.ts";
export * from "./partition.ts";
export { F16_MAX, type Precision, PRECISIONS } from "./precision.ts";
export * from "./predict.ts";
export * from "./program.ts";
export * from "./random.ts";
export { bestRecomputeInterval } from "./recompute_interval.ts";
export * from "./safetensors.ts";
export * from "./stage.ts";
export {
  checkBucketSize,
  checkStageOptions,
  type DeviceBytes,
  planMemory,
  type StageMemory,
  totalBytes,
} from "./stage_memory.ts";
