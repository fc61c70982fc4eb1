/**
 * `troupe export --format hf`: a model as transformers reads it.
 *
 * @module
 */

import { writeDecoderFolder } from "../../actors/checkpoints/hugging_face/decoder_folder.ts";
import { bytesTokenizerJson, gpt2TokenizerJson, parseTokenizer } from "../../kernels/mod.ts";
import { printError } from "../print.ts";
import {
  readTokenizerFile,
  TOKENIZER_FILE,
  type TokenizerSource,
  tokenizerSource,
} from "../trained/tokenizer_source.ts";
import { findTrainedDecoder } from "../trained/trained_decoder.ts";

const DTYPES = { f32: "F32", f16: "F16", bf16: "BF16" } as const;

/** What is asked for. */
interface HuggingFaceFlags {
  readonly dtype: keyof typeof DTYPES;
  /** What made its tokens, where the user says it. */
  readonly tokenizer?: string;
}

/**
 * Finds the model of a run, and what made its tokens.
 *
 * @returns where it lies, and what writes it to a new folder.
 * @throws {TypeError} {@linkcode RangeError} {@linkcode SyntaxError} in one sentence for the user.
 */
export async function exportHuggingFace(run: string, { dtype, tokenizer }: HuggingFaceFlags) {
  const model = await findTrainedDecoder("export", "RUN", run);
  const { path, config, weights, format } = model;
  const source = tokenizer === undefined ? model.tokenizer : tokenizerSource(tokenizer);
  const { ends, files } = await describeTokenizer(source, config.seq);
  const { dropout, bos = ends?.bos, eos = ends?.eos } = model;
  const exported = { config, weights, dtype: DTYPES[dtype], dropout, bos, eos, files };
  return {
    path,
    write: (out: string, signal?: AbortSignal) => writeDecoderFolder(format, out, exported, signal),
  };
}

/** What a folder says of a tokenizer. */
interface DescribedTokenizer {
  /** The tokens that begin and end a text. */
  readonly ends?: { readonly bos: number | undefined; readonly eos: number | undefined };
  /** The files that say it, by name. */
  readonly files: ReadonlyMap<string, Uint8Array>;
}

async function describeTokenizer(
  source: TokenizerSource,
  seq: number,
): Promise<DescribedTokenizer> {
  if (source === "none") return { files: new Map() };
  const content = typeof source === "object"
    ? readTokenizerFile(source).content
    : encode(source === "gpt2" ? await gpt2TokenizerJson(printError) : bytesTokenizerJson());
  const { bos, eos, ends } = await parseTokenizer(content, TOKENIZER_FILE);
  const about = {
    ...ends && { bos_token: ends[0] },
    clean_up_tokenization_spaces: false,
    ...ends && { eos_token: ends[1] },
    model_max_length: seq,
    tokenizer_class: source === "gpt2" ? "GPT2Tokenizer" : "PreTrainedTokenizerFast",
    ...source === "gpt2" && { unk_token: ends![1] },
  };
  return {
    ends: { bos, eos },
    files: new Map([[TOKENIZER_FILE, content], ["tokenizer_config.json", encode(about)]]),
  };
}

const encode = (json: unknown): Uint8Array =>
  new TextEncoder().encode(JSON.stringify(json, null, 2) + "\n");
