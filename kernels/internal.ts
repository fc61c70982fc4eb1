/**
 * Names of this room that the rooms above use and that the package does not publish.
 *
 * @module
 */

export { joinSlices, sliceBatch, sliceOf, splitBatch } from "./batch.ts";
export { builtin, eventTurns } from "./builtin.ts";
export { type BatchCheck, batchCheck, modelsOfLengths } from "./compile/compile_model.ts";
export {
  cutIntoStages,
  formatLayout,
  partition,
  readLayout,
  skipEdges,
  startsOf,
} from "./compile/layout.ts";
export {
  fieldBounds,
  haveLengths,
  isSkip,
  layersOf,
  type NamedProgram,
  slicesOf,
} from "./compile/programs.ts";
export {
  DIGIT_PIXELS,
  DIGITS_SHA256,
  noisyDigitBatches,
  STRING_VOCABULARY,
  stringBatches,
  type StringTask,
} from "./data/digits.ts";
export {
  checkInputFile,
  CSV_BYTES_MAX,
  decodeText,
  inputFileProblem,
  repeatedKey,
  TEXT_BYTES_MAX,
} from "./data/files.ts";
export { type Fetching, watchFetches } from "./data/npm_packages.ts";
export {
  decodeFloats,
  encodeFloats,
  FROM_START,
  isFloatDType,
  openBytes,
  readFull,
  readHeader,
  readOpenSafetensors,
  type SafetensorsFile,
} from "./data/safetensors.ts";
export { TEXT_SOURCES, type TextName } from "./data/texts.ts";
export { sampleLengths, tokensIn } from "./data/token_batches.ts";
export {
  checkTokens,
  decodeLengths,
  decodeTokens,
  knowTokens,
  tokenBytesOf,
  TOKENS_BYTES_MAX,
} from "./data/token_file.ts";
export { bytesTokenizerJson, gpt2TokenizerJson } from "./data/tokenizer.ts";
export { TOKENIZER_BYTES_MAX } from "./data/tokenizer.ts";
export { bf16Instructions, cpuFlags } from "./devices/cpu/onednn.ts";
export { ORT_VERSION } from "./devices/cpu/ort_library.ts";
export { DTYPE_BYTES, HOST_ARRAYS } from "./devices/device.ts";
export {
  assertThreads,
  DEVICE_SPECS,
  DEVICES,
  findMatrixLibrary,
  isDeviceSpec,
  resolveDevice,
  resolveDevices,
} from "./devices/table.ts";
export { assertMachineHolds, mebibytes } from "./devices/tensor_memory.ts";
export { type FoundAdapters, webgpuAdapters } from "./devices/webgpu/adapters.ts";
export {
  assertInput,
  checkOptionNames,
  nameError,
  nameErrors,
  refusal,
  resultOr,
} from "./errors.ts";
export { elementCount, ELEMENTS_MAX, sameShape } from "./graph/shapes.ts";
export { checkGpt2, gpt2Ties } from "./layers/gpt2.ts";
export { measureSamples, withLossAndMetrics } from "./layers/metrics.ts";
export { fieldProblem, hasDropout, initialValues, modelFields, openDraws } from "./layers/layer.ts";
export { llamaSizes, llamaTies } from "./layers/llama.ts";
export {
  checkLora,
  isLora,
  loraNames,
  type LoraOptions,
  loraScale,
  loraTargets,
  withLora,
} from "./layers/lora.ts";
export { resnetLogits } from "./layers/convolutional.ts";
export { t5Sizes, t5Ties } from "./layers/t5.ts";
export { unetPictures } from "./layers/convolutional.ts";
export { F16_MAX, GPT2_MAX } from "./precision.ts";
export { substream } from "./random.ts";
export {
  bestRecomputeInterval,
  countBlocks,
  keyed,
  type StageBorder,
  stageBorder,
  stageValues,
} from "./stage/activations.ts";
export { F32_SQUARES_MAX, type GradientSums } from "./stage/gradients.ts";
export type { BackwardKind } from "./stage/in_flight.ts";
export { jobParameter, type JobShare, type JobStage, openJobs, shareOf } from "./stage/jobs.ts";
export {
  activationBytes,
  commonSizes,
  planMemory,
  savedBytes,
  type SliceSlots,
  sumMemory,
  totalBytes,
} from "./stage/memory.ts";
export {
  type AdafactorOptions,
  AVERAGE,
  completeOptimizer,
  groupOf,
  momentsOf,
  stateCount,
} from "./stage/options.ts";
export { type Bucket, BUCKET_SIZE, flatLength, type FlatRange } from "./stage/parameters.ts";
export { openPool, type SlotPool } from "./stage/pool.ts";
export { compileStage, type ForwardResult, openStage, planLibrary, Stage } from "./stage/stage.ts";
export { checkStageOptions, type StageState, withAliases } from "./stage/state.ts";
export { describeOnnx, type OnnxDescription } from "./onnx/import_model.ts";
export { layoutSafetensors } from "./data/safetensors.ts";
