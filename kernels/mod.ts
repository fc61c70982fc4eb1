/**
 * Numbers: graphs, gradients, layers, stages, devices, optimizers, and the data they read.
 *
 * @module
 */

export * from "./batch.ts";
export type { CompileOptions, LayerOptions } from "./compile/compile_layer.ts";
export {
  type BatchCheck,
  batchCheck,
  compileLayer,
  compileModel,
  gpt2Parameters,
  llamaParameters,
  type ModelParameter,
  type ModelProgram,
} from "./compile/compile_model.ts";
export { cutIntoStages, formatLayout, partition, readLayout, startsOf } from "./compile/layout.ts";
export {
  inputsOf,
  type InputSpec,
  isSkip,
  type LayerProgram,
  type NamedProgram,
  outputsOf,
  type OutputSpec,
  PORTS,
  type Recompute,
  RECOMPUTE_POLICIES,
  type StageProgram,
  type StageSkip,
  type ValuePorts,
  valuePorts,
  valuesForm,
} from "./compile/programs.ts";
export { type SkipEdge, skipEdges } from "./compile/skip_edges.ts";
export {
  DIGIT_PIXELS,
  type DigitBatch,
  digitBatches,
  type Digits,
  DIGITS_SHA256,
  loadDigits,
  type Noise,
  type NoisyDigitBatch,
  noisyDigitBatches,
  STRING_VOCABULARY,
  type StringBatch,
  stringBatches,
  type StringOptions,
  type StringTask,
} from "./data/digits.ts";
export {
  checkInputFile,
  CSV_BYTES_MAX,
  decodeText,
  inputFileProblem,
  knowFile,
  type KnownFile,
  openRanges,
  type Ranges,
  type ReadableDisk,
  repeatedKey,
  TEXT_BYTES_MAX,
} from "./data/files.ts";
export {
  type Announce,
  type Fetching,
  type NpmPackage,
  npmPackageFolder,
  watchFetches,
} from "./data/npm_packages.ts";
export {
  decodeFloats,
  encodeFloats,
  encodeSafetensors,
  type Entry as SafetensorsEntry,
  type FloatDType,
  type Header as SafetensorsHeader,
  isFloatDType,
  layoutSafetensors,
  type LoadedTensor,
  type PlaceTensor,
  readFull,
  readHeader,
  readOpenSafetensors,
  readSafetensors,
  SAFETENSORS_DTYPE_BYTES,
  type SafetensorsDType,
  type SafetensorsFile,
  type SafetensorsInfo,
  type SafetensorsLayout,
  type SafetensorsMetadata,
  type SafetensorsTensor,
} from "./data/safetensors.ts";
export {
  loadText,
  TEXT_NAMES,
  TEXT_SHA256,
  type TextName,
  type TextStream,
  textStream,
} from "./data/texts.ts";
export {
  type BatchPlan,
  batchRows,
  heldOutBatches,
  rowCount,
  type RowOrder,
  rowsNeeded,
  seekable,
  type SeekableBatches,
  shuffledOrder,
  splitTokens,
  type TokenBatch,
  tokenBatches,
  type TokenBatchOptions,
} from "./data/token_batches.ts";
export {
  checkTokens,
  decodeTokens,
  type KnownTokens,
  knowTokens,
  openTokenFile,
  readTokens,
  type TokenBytes,
  tokenBytesOf,
  tokenCount,
  type TokenFile,
  type TokenReader,
  type Tokens,
  TOKENS_BYTES_MAX,
} from "./data/token_file.ts";
export {
  bytesTokenizer,
  bytesTokenizerJson,
  gpt2Tokenizer,
  gpt2TokenizerJson,
  type Tokenizer,
  type TokenizerName,
} from "./data/tokenizer.ts";
export { type FileTokenizer, parseTokenizer, TOKENIZER_BYTES_MAX } from "./data/tokenizer_json.ts";
export { type NativeOptions, openNative } from "./devices/cpu/native.ts";
export { nativeLibraryPath, ORT_VERSION } from "./devices/cpu/ort_library.ts";
export { openWasm } from "./devices/cpu/wasm.ts";
export * from "./devices/device.ts";
export { openReference } from "./devices/reference.ts";
export {
  assertThreads,
  DEVICE_NAMES,
  DEVICE_SPECS,
  type DeviceChoice,
  type DeviceLimits,
  deviceLimits,
  type DeviceName,
  type DeviceOptions,
  type DeviceSpec,
  hasFreeViews,
  hasOwnMemory,
  hasThreads,
  isDeviceSpec,
  largestValue,
  libraryBytes,
  needsProcess,
  openDevice,
  resolveDevice,
  resolveDevices,
  type ResolveOptions,
} from "./devices/table.ts";
export { assertMachineHolds, machineMemory, mebibytes } from "./devices/tensor_memory.ts";
export {
  type AdapterOptions,
  type FoundAdapters,
  webgpuAdapters,
} from "./devices/webgpu/adapters.ts";
export type { ModelValue } from "./devices/webgpu/prepare.ts";
export type { Adapter, AdapterKind, RefusedAdapter } from "./devices/webgpu/vulkan.ts";
export { openWebgpu, type WebgpuOptions } from "./devices/webgpu/webgpu.ts";
export { nameError } from "./errors.ts";
export { broadcastShape, elementCount, ELEMENTS_MAX, sameShape } from "./graph/shapes.ts";
export {
  type Attribute,
  type Binary,
  type FusedOp,
  MICROSOFT,
  type Node,
  NodeGraph,
  numberOf,
  ONNX_DTYPE,
  type Operand,
  sliceNodes,
  TROUPE,
  type Unary,
  type Value,
} from "./graph/value.ts";
export type { WindowOptions } from "./graph/windows.ts";
export {
  attention,
  type AttentionOptions,
  rotary,
  type RotaryOptions,
} from "./layers/attention.ts";
export * from "./layers/dropout.ts";
export {
  checkGpt2,
  feedForward,
  gpt2,
  type Gpt2Config,
  gpt2Logits,
  gpt2Ties,
} from "./layers/gpt2.ts";
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
export {
  type AnyLayer,
  buildLayer,
  checkDropout,
  contextPort,
  type Draws,
  fieldProblem,
  type GivenValues,
  type Handed,
  hasDropout,
  type Initializer,
  initialValues,
  isDropout,
  isValue,
  type Layer,
  LayerGraph,
  type MaskBox,
  type MaskPlace,
  type MaskSpec,
  type Model,
  modelFields,
  NotGivenError,
  openDraws,
  type ParameterSpec,
  skipKey,
  type Slice,
  type SliceContext,
  type TensorSpec,
  type Tie,
  type Values,
} from "./layers/layer.ts";
export {
  llama,
  type LlamaConfig,
  llamaLogits,
  type LlamaSizes,
  llamaSizes,
  llamaTies,
} from "./layers/llama.ts";
export * from "./layers/mlp.ts";
export { type PictureConfig, resnet, type ResNetConfig, resnetLogits } from "./layers/resnet.ts";
export {
  t5,
  t5Bucket,
  type T5Config,
  t5Logits,
  type T5Sizes,
  t5Sizes,
  t5Ties,
} from "./layers/t5.ts";
export { unet, unetPictures } from "./layers/unet.ts";
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
export {
  describeOnnx,
  fromOnnx,
  type FromOnnxOptions,
  ONNX_LOSSES,
  type OnnxDescription,
  type OnnxLoss,
} from "./onnx/import_model.ts";
export type { ExternalFiles, OnnxInput } from "./onnx/read_file.ts";
export { scratchBytes } from "./onnx/scratch.ts";
export { addGradients, dependentValues } from "./ops/autodiff.ts";
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
export { type GradientRule, isZeros, zeros } from "./ops/op.ts";
export { GRADIENTS } from "./ops/table.ts";
export { checkModelSizes, F16_MAX, GPT2_MAX, type Precision, PRECISIONS } from "./precision.ts";
export * from "./random.ts";
export {
  type ActivationOptions,
  bestRecomputeInterval,
  countBlocks,
  keyed,
  passedOf,
  type StageBorder,
  stageBorder,
} from "./stage/activations.ts";
export {
  generate,
  type GenerateOptions,
  generateText,
  openPredictor,
  type Predictor,
  sample,
  type SampleOptions,
} from "./stage/generate.ts";
export {
  type GradientNorms,
  type GradientPiece,
  type GradientSums,
  type NormMemory,
  openGradientNorms,
  type Scalars,
  type SumOptions,
} from "./stage/gradients.ts";
export type { BackwardKind, StageLayer } from "./stage/in_flight.ts";
export {
  type ActivationBytes,
  activationBytes,
  type DeviceBytes,
  planMemory,
  type PlannedDevice,
  type SliceSlots,
  type StageMemory,
  totalBytes,
} from "./stage/memory.ts";
export { openOptimizer, type Optimizer, type OptimizerMemory } from "./stage/optimizer.ts";
export {
  ADAMW_DEFAULTS,
  type AdamWOptions,
  checkBucketSize,
  checkStageOptions,
  completeOptimizer,
  LEARNING_RATE_SCHEDULES,
  type LearningRate,
  learningRateAt,
  MOMENTS,
  type OptimizerOptions,
  type PartialOptimizer,
  SGD_DEFAULTS,
  type SgdOptions,
  type StageOptions,
} from "./stage/options.ts";
export {
  type Allocator,
  type Bucket,
  BUCKET_SIZE,
  createParameters,
  flatLength,
  type FlatPart,
  type FlatRange,
  type FlatState,
  type FlatTensor,
  type HostState,
  type Parameter,
  type ParameterStore,
  type StoreOptions,
} from "./stage/parameters.ts";
export {
  type ForwardResult,
  type LibraryBytes,
  openStage,
  planLibrary,
  Stage,
} from "./stage/stage.ts";
export { type StageState, type StateOf, type TensorPart, withAliases } from "./stage/state.ts";
