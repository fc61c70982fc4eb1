/**
 * Numbers: graphs, gradients, layers, stages, devices, optimizers, and the data they read.
 *
 * @module
 */

export type { ActivationOptions } from "./stage/activations.ts";
export {
  llama,
  type LlamaConfig,
  llamaLogits,
  type LlamaSizes,
  llamaSizes,
  llamaTies,
} from "./layers/llama.ts";
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
export { addGradients, dependentValues } from "./graph/autodiff.ts";
export { type BatchCheck, batchCheck } from "./compile/compile_model.ts";
export { compileModel, type ModelParameter, type ModelProgram } from "./compile/compile_model.ts";
export type { CompileOptions } from "./compile/compile_layer.ts";
export { type SkipEdge, skipEdges } from "./compile/skip_edges.ts";
export { gpt2Parameters, llamaParameters } from "./compile/compile_model.ts";
export { formatLayout, readLayout } from "./compile/layout.ts";
export {
  type BatchPlan,
  batchRows,
  bytesTokenizer,
  bytesTokenizerJson,
  checkTokens,
  decodeTokens,
  decodeWideTokens,
  DIGIT_PIXELS,
  type DigitBatch,
  digitBatches,
  type Digits,
  DIGITS_SHA256,
  type FileTokenizer,
  gpt2Tokenizer,
  gpt2TokenizerJson,
  heldOutBatches,
  type KnownTokens,
  knowTokens,
  loadDigits,
  loadText,
  type Noise,
  type NoisyDigitBatch,
  noisyDigitBatches,
  openTokenFile,
  parseTokenizer,
  readTokens,
  rowCount,
  type RowOrder,
  rowsNeeded,
  seekable,
  type SeekableBatches,
  shuffledOrder,
  splitTokens,
  STRING_VOCABULARY,
  type StringBatch,
  stringBatches,
  type StringOptions,
  type StringTask,
  TEXT_NAMES,
  TEXT_SHA256,
  type TextName,
  type TextStream,
  textStream,
  type TokenBatch,
  tokenBatches,
  type TokenBatchOptions,
  type TokenBytes,
  tokenBytesOf,
  tokenCount,
  type TokenFile,
  type Tokenizer,
  TOKENIZER_BYTES_MAX,
  type TokenizerName,
  type TokenReader,
  type Tokens,
  TOKENS_BYTES_MAX,
} from "./data/texts.ts";
export * from "./devices/device.ts";
export {
  type Adapter,
  type AdapterKind,
  type AdapterOptions,
  assertThreads,
  DEVICE_NAMES,
  DEVICE_SPECS,
  type DeviceChoice,
  type DeviceLimits,
  deviceLimits,
  type DeviceName,
  type DeviceOptions,
  type DevicePermissions,
  devicePermissions,
  type DeviceSpec,
  type FoundAdapters,
  hasFreeViews,
  hasOwnMemory,
  hasThreads,
  isDeviceSpec,
  largestValue,
  libraryBytes,
  type ModelValue,
  nativeLibraryPath,
  type NativeOptions,
  needsProcess,
  openDevice,
  openNative,
  openReference,
  openWasm,
  openWebgpu,
  ORT_VERSION,
  type RefusedAdapter,
  resolveDevice,
  resolveDevices,
  type ResolveOptions,
  webgpuAdapters,
  type WebgpuOptions,
} from "./devices/table.ts";
export { generate, type GenerateOptions, generateText } from "./stage/generate.ts";
export {
  type GradientNorms,
  type GradientPiece,
  type NormMemory,
  openGradientNorms,
  type Scalars,
} from "./stage/gradients.ts";
export { type GradientRule, GRADIENTS, isZeros, zeros } from "./graph/gradient_rules.ts";
export * from "./graph/graph.ts";
export { NodeGraph } from "./graph/value.ts";
export { ConvolutionGraph } from "./graph/ops/convolutions.ts";
export { EinsumGraph } from "./graph/ops/einsum.ts";
export { ElementwiseGraph } from "./graph/ops/elementwise.ts";
export { ChoiceGraph } from "./graph/ops/choices.ts";
export { GatherGraph } from "./graph/ops/gathers.ts";
export { MoveGraph } from "./graph/ops/moves.ts";
export { NormalizationGraph } from "./graph/ops/normalization.ts";
export { PoolingGraph } from "./graph/ops/pooling.ts";
export { ProductGraph } from "./graph/ops/products.ts";
export { ReductionGraph } from "./graph/ops/reductions.ts";
export { ResizingGraph } from "./graph/ops/resizing.ts";
export { broadcastShape, elementCount, ELEMENTS_MAX, sameShape } from "./graph/shapes.ts";
export { sliceNodes } from "./graph/value.ts";
export {
  type Attribute,
  type Binary,
  type FusedOp,
  MICROSOFT,
  type Node,
  numberOf,
  ONNX_DTYPE,
  type Operand,
  TROUPE,
  type Unary,
  type Value,
} from "./graph/value.ts";
export {
  checkInputFile,
  CSV_BYTES_MAX,
  decodeText,
  inputFileProblem,
  TEXT_BYTES_MAX,
} from "./data/files.ts";
export {
  knowFile,
  type KnownFile,
  openRanges,
  type Ranges,
  type ReadableDisk,
} from "./data/files.ts";
export * from "./batch.ts";
export { nameError } from "./errors.ts";
export { buildLayer, isValue } from "./layers/layer.ts";
export * from "./layers/dropout.ts";
export { attention, type AttentionOptions } from "./layers/attention.ts";
export { convolution, type ConvolutionOptions } from "./layers/helpers.ts";
export { embedding, type EmbeddingOptions } from "./layers/helpers.ts";
export {
  kaimingNormal,
  type KaimingOptions,
  kaimingUniform,
  xavierNormal,
  type XavierOptions,
  xavierUniform,
} from "./layers/helpers.ts";
export { linearOfLinear as linear, type LinearOptions } from "./layers/helpers.ts";
export { crossEntropy, type CrossEntropyOptions, meanSquaredError } from "./layers/helpers.ts";
export {
  groupNorm,
  type GroupNormOptions,
  layerNorm,
  type NormOptions,
  rmsNorm,
} from "./layers/helpers.ts";
export { rotary, type RotaryOptions } from "./layers/attention.ts";
export { type Draws, initialValues, openDraws } from "./layers/layer.ts";
export {
  type AnyLayer,
  checkDropout,
  contextPort,
  type GivenValues,
  type Handed,
  type Initializer,
  isDropout,
  type Layer,
  LayerGraph,
  type MaskBox,
  type MaskPlace,
  type MaskSpec,
  type Model,
  NotGivenError,
  type ParameterSpec,
  skipKey,
  type Slice,
  type SliceContext,
  type TensorSpec,
  type Tie,
  type Values,
} from "./layers/layer.ts";
export { fieldProblem, hasDropout, modelFields } from "./layers/layer.ts";
export { checkModelSizes, GPT2_MAX } from "./precision.ts";
export {
  checkGpt2,
  feedForward,
  gpt2,
  type Gpt2Config,
  gpt2Logits,
  gpt2Ties,
} from "./layers/gpt2.ts";
export * from "./layers/mlp.ts";
export { LEARNING_RATE_SCHEDULES, type LearningRate, learningRateAt } from "./stage/options.ts";
export { assertMachineHolds, machineMemory, mebibytes } from "./devices/tensor_memory.ts";
export {
  type Announce,
  type Fetching,
  type NpmPackage,
  npmPackageFolder,
  watchFetches,
} from "./data/npm_packages.ts";
export { describeOnnx, type OnnxDescription } from "./onnx/import_model.ts";
export type { Dimensions } from "./onnx/fold.ts";
export { fromOnnx } from "./onnx/import_model.ts";
export type { FromOnnxOptions } from "./onnx/import_model.ts";
export { ONNX_LOSSES, type OnnxLoss } from "./onnx/import_model.ts";
export type { OnnxInput } from "./onnx/read_file.ts";
export type { ExternalFiles } from "./onnx/read_file.ts";
export { onnxWithWeights } from "./onnx/export.ts";
export { gpt2Onnx } from "./onnx/export.ts";
export { layersOnnx, type LayersOnnxOptions } from "./onnx/export.ts";
export { mlpOnnx } from "./onnx/export.ts";
export type { OnnxFile } from "./onnx/export.ts";
export { encodeModel, type Port } from "./onnx/encode.ts";
export { transientBytes } from "./onnx/scratch.ts";
export type { FlatState, HostState } from "./stage/parameters.ts";
export type { FlatPart, FlatRange, FlatTensor } from "./stage/parameters.ts";
export { openOptimizer, type Optimizer, type OptimizerMemory } from "./stage/optimizer.ts";
export {
  ADAMW_DEFAULTS,
  type AdamWOptions,
  completeOptimizer,
  MOMENTS,
  type OptimizerOptions,
  type PartialOptimizer,
  SGD_DEFAULTS,
  type SgdOptions,
} from "./stage/options.ts";
export type { GradientSums, SumOptions } from "./stage/gradients.ts";
export {
  type Bucket,
  BUCKET_SIZE,
  createParameters,
  flatLength,
  type Parameter,
  type ParameterStore,
  type StoreOptions,
} from "./stage/parameters.ts";
export { cutIntoStages, partition, startsOf } from "./compile/layout.ts";
export type { NamedProgram, StageProgram, StageSkip } from "./compile/programs.ts";
export { F16_MAX, type Precision, PRECISIONS } from "./precision.ts";
export { openPredictor, type Predictor } from "./stage/generate.ts";
export { sample, type SampleOptions } from "./stage/generate.ts";
export {
  inputsOf,
  type InputSpec,
  isSkip,
  type LayerProgram,
  outputsOf,
  type OutputSpec,
  PORTS,
  type ValuePorts,
  valuePorts,
  valuesForm,
} from "./compile/programs.ts";
export { compileLayer } from "./compile/compile_model.ts";
export type { LayerOptions } from "./compile/compile_layer.ts";
export { type Recompute, RECOMPUTE_POLICIES } from "./compile/programs.ts";
export * from "./random.ts";
export { bestRecomputeInterval, countBlocks } from "./stage/activations.ts";
export { decodeFloats, encodeFloats, type FloatDType, isFloatDType } from "./data/safetensors.ts";
export {
  SAFETENSORS_DTYPE_BYTES,
  type SafetensorsDType,
  type SafetensorsInfo,
  type SafetensorsMetadata,
} from "./data/safetensors.ts";
export {
  type Entry as SafetensorsEntry,
  type Header as SafetensorsHeader,
  readFull,
  readHeader,
  type SafetensorsFile,
} from "./data/safetensors.ts";
export { repeatedKey } from "./data/files.ts";
export {
  type LoadedTensor,
  type PlaceTensor,
  readOpenSafetensors,
  readSafetensors,
} from "./data/safetensors.ts";
export {
  encodeSafetensors,
  layoutSafetensors,
  type SafetensorsLayout,
  type SafetensorsTensor,
} from "./data/safetensors.ts";
export { keyed, passedOf } from "./stage/activations.ts";
export { type StageBorder, stageBorder } from "./stage/activations.ts";
export type { BackwardKind, StageLayer } from "./stage/in_flight.ts";
export { type LibraryBytes, planLibrary } from "./stage/stage.ts";
export { openStage } from "./stage/stage.ts";
export { type ForwardResult, Stage } from "./stage/stage.ts";
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
export { checkBucketSize, checkStageOptions, type StageOptions } from "./stage/options.ts";
export { type StageState, type StateOf, type TensorPart, withAliases } from "./stage/state.ts";
