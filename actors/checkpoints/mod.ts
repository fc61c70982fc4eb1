/**
 * Checkpoints: written, read, and checked before either.
 *
 * @module
 */

export { checkWritable, encodeConfig } from "./check_writable.ts";
export type { Checkpoint, FileKind, ManifestEntry, Shapes } from "./checkpoint_format.ts";
export type { Disk, DiskFile } from "./disk.ts";
export { type BestCheckpoint, readBest } from "./marks/best.ts";
export { type Gpt2Facts, readGpt2Config } from "./hugging_face/gpt2_config.ts";
export { readLlamaConfig } from "./hugging_face/llama_config.ts";
export { readT5Config, type T5Shape } from "./hugging_face/t5_config.ts";
export type { ModelFacts } from "./hugging_face/config_file.ts";
export type { DecoderConfig } from "./hugging_face/decoders.ts";
export {
  type ExportedDecoder,
  type ExportedGpt2,
  type ExportedLlama,
  type ExportedT5,
  writeGpt2Folder,
  writeLlamaFolder,
  writeT5Folder,
} from "./hugging_face/decoder_folder.ts";
export { locateCheckpoint, readCheckpoint } from "./read_checkpoint.ts";
export {
  type DrawnTensor,
  type PlacedTensor,
  readTensor,
  type TensorSource,
} from "./tensors/tensor_source.ts";
export type { ShardOrder, WrittenShard } from "./shards.ts";
export type { HeldState } from "./tensors/held_state.ts";
export type { TensorsOf } from "./tensors/tensor_files.ts";
export {
  bytesOf,
  type Floats,
  hashWeights,
  locateWeights,
  type NamedShape,
  readFloats,
  readWeights,
} from "./tensors/weights.ts";
export type { PlacedFile } from "./write_files.ts";
export { writeCheckpoint } from "./write_checkpoint.ts";
