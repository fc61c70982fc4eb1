/**
 * Checkpoints: written, read, and checked before either.
 *
 * @module
 */

export { checkWritable, encodeConfig, type PlacedFile, writeCheckpoint } from "./write.ts";
export type { Checkpoint, Disk, DiskFile, ManifestEntry } from "./format.ts";
export {
  type DrawnTensor,
  type FileKind,
  type HeldState,
  type PlacedTensor,
  readTensor,
  type Shapes,
  type TensorsOf,
  type TensorSource,
} from "./tensors.ts";
export { type BestCheckpoint, readBest } from "./markers.ts";
export {
  type Gpt2Facts,
  type ModelFacts,
  readGpt2Config,
  readLlamaConfig,
  readT5Config,
  type T5Shape,
} from "./hugging_face_config.ts";
export {
  type DecoderConfig,
  type ExportedDecoder,
  type ExportedGpt2,
  type ExportedLlama,
  type ExportedT5,
  writeGpt2Folder,
  writeLlamaFolder,
  writeT5Folder,
} from "./hugging_face.ts";
export { locateCheckpoint, readCheckpoint, type ShardOrder, type WrittenShard } from "./read.ts";
export {
  bytesOf,
  type Floats,
  hashWeights,
  locateWeights,
  type NamedShape,
  readFloats,
  readWeights,
} from "./weights.ts";
