/**
 * Checkpoints: written, read, and checked before either.
 *
 * @module
 */

export { checkWritable, encodeConfig } from "./write.ts";
export type { Checkpoint, ManifestEntry } from "./format.ts";
export type { FileKind, Shapes } from "./tensors.ts";
export type { Disk, DiskFile } from "./format.ts";
export { type BestCheckpoint, readBest } from "./markers.ts";
export { type Gpt2Facts, readGpt2Config } from "./hugging_face_config.ts";
export { readLlamaConfig } from "./hugging_face_config.ts";
export { readT5Config, type T5Shape } from "./hugging_face_config.ts";
export type { ModelFacts } from "./hugging_face_config.ts";
export type { DecoderConfig } from "./hugging_face.ts";
export {
  type ExportedDecoder,
  type ExportedGpt2,
  type ExportedLlama,
  type ExportedT5,
  writeGpt2Folder,
  writeLlamaFolder,
  writeT5Folder,
} from "./hugging_face.ts";
export { locateCheckpoint, readCheckpoint } from "./read.ts";
export { type DrawnTensor, type PlacedTensor, readTensor, type TensorSource } from "./tensors.ts";
export type { ShardOrder, WrittenShard } from "./read.ts";
export type { HeldState } from "./tensors.ts";
export type { TensorsOf } from "./tensors.ts";
export {
  bytesOf,
  type Floats,
  hashWeights,
  locateWeights,
  type NamedShape,
  readFloats,
  readWeights,
} from "./weights.ts";
export type { PlacedFile } from "./write.ts";
export { writeCheckpoint } from "./write.ts";
