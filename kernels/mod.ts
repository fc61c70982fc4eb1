/**
 * Numbers: graphs, gradients, layers, stages, devices, optimizers, and the data they read.
 *
 * @module
 */

export type { ActivationOptions } from "./stage/activations/activations.ts";
export {
  llama,
  type LlamaConfig,
  llamaLogits,
  type LlamaSizes,
  llamaSizes,
  llamaTies,
} from "./architectures/llama.ts";
export {
  type PictureConfig,
  resnet,
  type ResNetConfig,
  resnetLogits,
} from "./architectures/resnet.ts";
export {
  t5,
  t5Bucket,
  type T5Config,
  t5Logits,
  type T5Sizes,
  t5Sizes,
  t5Ties,
} from "./architectures/t5.ts";
export { unet, unetPictures } from "./architectures/unet.ts";
export { addGradients, dependentValues } from "./graph/autodiff.ts";
export * from "./compile/batch_check.ts";
export * from "./compile/compile_model.ts";
export type { CompileOptions } from "./compile/compile_options.ts";
export { type SkipEdge, skipEdges } from "./compile/skip_edges.ts";
export { gpt2Parameters, llamaParameters } from "./compile/decoder_parameters.ts";
export * from "./compile/layout.ts";
export * from "./data/mod.ts";
export * from "./devices/device.ts";
export * from "./devices/mod.ts";
export * from "./generation/generate.ts";
export {
  type GradientNorms,
  type GradientPiece,
  type NormMemory,
  openGradientNorms,
  type Scalars,
} from "./optimizer/gradient_norms.ts";
export { type GradientRule, GRADIENTS, isZeros, zeros } from "./graph/gradient_rules.ts";
export * from "./graph/graph.ts";
export { NodeGraph } from "./graph/node_graph.ts";
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
export * from "./graph/slice.ts";
export * from "./graph/value.ts";
export * from "./files/input_file.ts";
export * from "./files/known_file.ts";
export * from "./layers/batch.ts";
export { nameError } from "./name_error.ts";
export { buildLayer, isValue } from "./layers/build_layer.ts";
export * from "./layers/dropout.ts";
export { attention, type AttentionOptions } from "./layers/helpers/attention.ts";
export { convolution, type ConvolutionOptions } from "./layers/helpers/convolution.ts";
export { embedding, type EmbeddingOptions } from "./layers/helpers/embedding.ts";
export {
  kaimingNormal,
  type KaimingOptions,
  kaimingUniform,
  xavierNormal,
  type XavierOptions,
  xavierUniform,
} from "./layers/helpers/initializers.ts";
export { linear, type LinearOptions } from "./layers/helpers/linear.ts";
export {
  crossEntropy,
  type CrossEntropyOptions,
  meanSquaredError,
} from "./layers/helpers/losses.ts";
export {
  groupNorm,
  type GroupNormOptions,
  layerNorm,
  type NormOptions,
  rmsNorm,
} from "./layers/helpers/norms.ts";
export { rotary, type RotaryOptions } from "./layers/helpers/rotary.ts";
export * from "./layers/initial_values.ts";
export * from "./layers/layer.ts";
export * from "./layers/model_fields.ts";
export * from "./layers/model_sizes.ts";
export * from "./layers/gpt2.ts";
export * from "./layers/mlp.ts";
export * from "./optimizer/learning_rate.ts";
export * from "./devices/machine_memory.ts";
export * from "./files/npm_package.ts";
export { describeOnnx, type OnnxDescription } from "./import/describe_onnx.ts";
export type { Dimensions } from "./import/dimensions.ts";
export { fromOnnx } from "./import/from_onnx.ts";
export type { FromOnnxOptions } from "./import/training_plan.ts";
export { ONNX_LOSSES, type OnnxLoss } from "./import/loss.ts";
export type { OnnxInput } from "./import/file/onnx_graph.ts";
export type { ExternalFiles } from "./import/file/onnx_tensor.ts";
export { onnxWithWeights } from "./import/file/with_weights.ts";
export { gpt2Onnx } from "./export/gpt2_onnx.ts";
export { layersOnnx, type LayersOnnxOptions } from "./export/layers_onnx.ts";
export { mlpOnnx } from "./export/mlp_onnx.ts";
export type { OnnxFile } from "./export/onnx_file.ts";
export { encodeModel, type Port } from "./onnx/encode_model.ts";
export { transientBytes } from "./onnx/transient.ts";
export type { FlatState, HostState } from "./optimizer/flat_state.ts";
export type { FlatPart, FlatRange, FlatTensor } from "./optimizer/flat_tensor.ts";
export { openOptimizer, type Optimizer, type OptimizerMemory } from "./optimizer/optimizer.ts";
export * from "./optimizer/optimizer_options.ts";
export type { GradientSums, SumOptions } from "./optimizer/gradient_sums.ts";
export {
  type Bucket,
  BUCKET_SIZE,
  createParameters,
  flatLength,
  type Parameter,
  type ParameterStore,
  type StoreOptions,
} from "./optimizer/parameters.ts";
export * from "./compile/partition.ts";
export type { NamedProgram, StageProgram, StageSkip } from "./compile/stage_program.ts";
export { F16_MAX, type Precision, PRECISIONS } from "./layers/precision.ts";
export * from "./generation/predict.ts";
export { sample, type SampleOptions } from "./generation/sample.ts";
export * from "./compile/layer_program.ts";
export { compileLayer } from "./compile/compile_layers.ts";
export type { LayerOptions } from "./compile/forward_graph.ts";
export { type Recompute, RECOMPUTE_POLICIES } from "./compile/saved_values.ts";
export * from "./random.ts";
export { bestRecomputeInterval, countBlocks } from "./stage/recompute_interval.ts";
export {
  decodeFloats,
  encodeFloats,
  type FloatDType,
  isFloatDType,
} from "./files/safetensors/floats.ts";
export {
  SAFETENSORS_DTYPE_BYTES,
  type SafetensorsDType,
  type SafetensorsInfo,
  type SafetensorsMetadata,
} from "./files/safetensors/format.ts";
export {
  type Entry as SafetensorsEntry,
  type Header as SafetensorsHeader,
  readFull,
  readHeader,
  type SafetensorsFile,
} from "./files/safetensors/header.ts";
export { repeatedKey } from "./files/repeated_key.ts";
export * from "./files/safetensors/read.ts";
export * from "./files/safetensors/write.ts";
export { keyed, passedOf } from "./stage/activations/passed.ts";
export { type StageBorder, stageBorder } from "./stage/activations/value_paths.ts";
export type { BackwardKind, StageLayer } from "./stage/activations/slot.ts";
export { type LibraryBytes, planLibrary } from "./stage/library_memory.ts";
export { openStage } from "./stage/open_stage.ts";
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
} from "./stage/stage_memory.ts";
export { checkBucketSize, checkStageOptions, type StageOptions } from "./stage/stage_options.ts";
export {
  type StageState,
  type StateOf,
  type TensorPart,
  withAliases,
} from "./stage/stage_state.ts";
