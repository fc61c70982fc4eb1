/**
 * Computation: graphs, gradients, layers, stages, devices, optimizers, and the data that they read.
 *
 * @module
 */

export { type Batch, countTargets, type Slicing } from "./batch.ts";
export type { CompileOptions } from "./compile/compile_layer.ts";
export {
  compileModel,
  gpt2Parameters,
  llamaParameters,
  type ModelParameter,
  type ModelProgram,
} from "./compile/compile_model.ts";
export {
  type InputSpec,
  type LayerProgram,
  type OutputSpec,
  type Recompute,
  RECOMPUTE_POLICIES,
  type StageProgram,
  type StageSkip,
} from "./compile/programs.ts";
export { type DigitBatch, digitBatches, type Digits, loadDigits } from "./data/digits.ts";
export type { KnownFile, ReadableDisk } from "./data/files.ts";
export { type Announce, type NpmPackage, npmPackageFolder } from "./data/npm_packages.ts";
export {
  encodeSafetensors,
  type LoadedTensor,
  type PlaceTensor,
  readSafetensors,
  SAFETENSORS_DTYPE_BYTES,
  type SafetensorsDType,
  type SafetensorsInfo,
  type SafetensorsMetadata,
  type SafetensorsTensor,
} from "./data/safetensors.ts";
export { loadText, type TextStream, textStream } from "./data/texts.ts";
export {
  type BatchPlan,
  type Documents,
  groupedOrder,
  heldOutBatches,
  rowCount,
  type RowOrder,
  type SeekableBatches,
  shuffledOrder,
  splitTokens,
  type TokenBatch,
  tokenBatches,
  type TokenBatchOptions,
} from "./data/token_batches.ts";
export { Dataset } from "./data/table.ts";
export type { TableSchema } from "./data/table_schema.ts";
export {
  type KnownTokens,
  openTokenFile,
  readTokens,
  type TokenFile,
  type TokenReader,
  type Tokens,
} from "./data/token_file.ts";
export { bytesTokenizer, gpt2Tokenizer, type Tokenizer } from "./data/tokenizer.ts";
export { type FileTokenizer, parseTokenizer } from "./data/tokenizer.ts";
export { type NativeOptions, openNative } from "./devices/cpu/native.ts";
export { nativeLibraryPath } from "./devices/cpu/ort_library.ts";
export { openWasm } from "./devices/cpu/wasm.ts";
export type {
  CopiedBytes,
  Device,
  DType,
  HostArray,
  Kernel,
  Run,
  Tensor,
} from "./devices/device.ts";
export type { MatrixLibrary } from "./devices/cpu/onednn.ts";
export { openReference } from "./devices/reference.ts";
export {
  DEVICE_NAMES,
  type DeviceChoice,
  type DeviceLimits,
  deviceLimits,
  type DeviceName,
  type DeviceOptions,
  openDevice,
} from "./devices/table.ts";
export type { Adapter, AdapterKind } from "./devices/webgpu/vulkan.ts";
export { openWebgpu, type WebgpuOptions } from "./devices/webgpu/webgpu.ts";
export {
  type Attribute,
  type Binary,
  type Node,
  NodeGraph,
  type Operand,
  type TensorSpec,
  type Unary,
  type Value,
} from "./graph/value.ts";
export type { WindowOptions } from "./graph/shapes.ts";
export {
  attention,
  type AttentionOptions,
  rotary,
  type RotaryOptions,
} from "./layers/attention.ts";
export { feedForward, gpt2, type Gpt2Config, gpt2Logits } from "./layers/gpt2.ts";
export {
  convolution,
  type ConvolutionOptions,
  crossEntropy,
  type CrossEntropyOptions,
  embedding,
  type EmbeddingOptions,
  groupNorm,
  type GroupNormOptions,
  kaimingNormal,
  type KaimingOptions,
  kaimingUniform,
  layerNorm,
  linear,
  type LinearOptions,
  meanSquaredError,
  type NormOptions,
  rmsNorm,
  xavierNormal,
  type XavierOptions,
  xavierUniform,
} from "./layers/helpers.ts";
export { accuracy, f1Score } from "./layers/metrics.ts";
export {
  type AnyLayer,
  buildLayer,
  type GivenValues,
  type Handed,
  type Initializer,
  type Layer,
  LayerGraph,
  type MaskBox,
  type MaskPlace,
  type MaskSpec,
  type Metric,
  type Model,
  type ParameterSpec,
  type Slice,
  type SliceContext,
  type Tie,
  type Values,
} from "./layers/layer.ts";
export { llama, type LlamaConfig, llamaLogits } from "./layers/llama.ts";
export { mlp, type MlpConfig, mlpLogits } from "./layers/mlp.ts";
export { gru, lstm, type RecurrentOptions } from "./layers/recurrent.ts";
export { type PictureConfig, resnet, type ResNetConfig } from "./layers/convolutional.ts";
export { t5, type T5Config, t5Logits } from "./layers/t5.ts";
export { unet } from "./layers/convolutional.ts";
export { encodeModel, type Port } from "./onnx/encode.ts";
export {
  gpt2Onnx,
  layersOnnx,
  type LayersOnnxOptions,
  mlpOnnx,
  type OnnxFile,
  onnxWithWeights,
} from "./onnx/export.ts";
export type { Dimensions } from "./onnx/fold.ts";
export { fromOnnx, type FromOnnxOptions, type OnnxLoss } from "./onnx/import_model.ts";
export type { ExternalFiles, OnnxInput } from "./onnx/read_file.ts";
export { addGradients } from "./ops/autodiff.ts";
export {
  type AveragePoolOptions,
  Builder,
  type ConvOptions,
  type ConvTransposeOptions,
  type GemmOptions,
  type InterpolationOptions,
  type MatmulOptions,
  type PoolOptions,
  type Reduction,
} from "./ops/builder.ts";
export { Graph } from "./ops/graph.ts";
export { type Precision, PRECISIONS } from "./precision.ts";
export {
  generate,
  type GenerateOptions,
  generateText,
  sample,
  type SampleOptions,
} from "./stage/inference.ts";
export { openPredictor, type Predictor } from "./stage/inference.ts";
export {
  ADAMW_DEFAULTS,
  type AdamWOptions,
  LEARNING_RATE_SCHEDULES,
  type LearningRate,
  learningRateAt,
  SGD_DEFAULTS,
  type SgdOptions,
} from "./stage/options.ts";
export type { DeviceSpec } from "./devices/table.ts";
export type { DropoutKey } from "./layers/dropout.ts";
export type { FloatDType } from "./data/safetensors.ts";
export type { Ints } from "./graph/shapes.ts";
export type { MessageArray } from "./devices/device.ts";
export type { PartialOptimizer } from "./stage/options.ts";
export type { PerAxis } from "./graph/shapes.ts";
export type { StageMemory } from "./stage/memory.ts";
export type { StageOptions } from "./stage/options.ts";
export type { StageValues } from "./devices/device.ts";
export type { StateOf } from "./stage/state.ts";
export type { TensorPart } from "./stage/state.ts";
export type { TokenizerName } from "./data/tokenizer.ts";
export type { ActivationOptions } from "./stage/activations.ts";
export type { DeviceBytes } from "./stage/memory.ts";
export type { KeyedArrays } from "./devices/device.ts";
export type { OptimizerOptions } from "./stage/options.ts";
export type { SumOptions } from "./stage/options.ts";
export type { ValueArray } from "./devices/device.ts";
