/**
 * `troupe export`: writes a trained model in the format of another program.
 *
 * @module
 */

import { DECODERS, isConv1D, writeModelFolder } from "../../actors/checkpoints/hugging_face.ts";
import { writeAdapter } from "../../actors/checkpoints/peft.ts";
import type { Checkpoint } from "../../actors/checkpoints/format.ts";
import type { TensorSource } from "../../actors/checkpoints/tensors.ts";
import { readTensor } from "../../actors/checkpoints/tensors.ts";
import { checkNew, writeNewFile } from "../../actors/checkpoints/write.ts";
import { bytesTokenizerJson, gpt2TokenizerJson, llamaTies } from "../../kernels/internal.ts";
import {
  gpt2Onnx,
  layersOnnx,
  llamaLogits,
  mlpOnnx,
  type OnnxFile,
  parseTokenizer,
} from "../../kernels/mod.ts";
import type { FlagValues } from "../flag.ts";
import { runPath } from "../../actors/run_folder/read.ts";
import { ensure, inOneLine, print, printError, quoted } from "../terminal.ts";
import { keptStarts } from "../train/data_files.ts";
import { trainedOnnx } from "../train/onnx.ts";
import { checkCount, type Command, defineCommand } from "./common.ts";
import {
  ADAPTER_FLAG,
  EMA_FLAG,
  findCheckpoint,
  findDecoderFolder,
  findTrainedDecoder,
  merged,
  readTokenizerFile,
  TOKENIZER_FILE,
  TOKENIZER_FLAG,
  tokenizerName,
  type TokenizerSource,
  tokenizerSource,
  type TrainedDecoder,
  trainedDecoder,
  type TrainedMlp,
  trainedMlp,
  withAdapter,
} from "./trained.ts";

const FLAGS = {
  format: {
    kind: "choice",
    choices: ["hf", "onnx", "peft"],
    help: "hf: a folder for transformers; onnx: one file with the whole model; peft: an adapter",
  },
  model: {
    kind: "path",
    value: "FILE.onnx",
    otherwise: "none",
    help: "onnx: the file that a run with --model FILE.onnx trained",
  },
  out: { kind: "path", value: "PATH", help: "the new folder, or file" },
  adapter: ADAPTER_FLAG,
  ema: EMA_FLAG,
  merge: { kind: "switch", help: "hf, onnx: add the adapter to the weights of the model" },
  dtype: {
    kind: "choice",
    choices: ["f32", "f16", "bf16"],
    default: "f32",
    help: "hf: type of the stored weights",
  },
  tokenizer: {
    ...TOKENIZER_FLAG,
    otherwise: "that of the run",
    help: "hf: tokenizer of the model: bytes, gpt2, or a tokenizer.json or a folder with one",
  },
} as const;

const DTYPES = { f32: "F32", f16: "F16", bf16: "BF16" } as const;

/** A model to export. */
interface Found {
  /** The folder of the model. */
  readonly path: string;
  /** Writes the model to a new folder or file. */
  write(out: string, signal?: AbortSignal): Promise<void>;
}

type ExportFlags = FlagValues<typeof FLAGS>;

/**
 * Finds a decoder, to be written as a folder of Hugging Face's format.
 *
 * @throws {TypeError} {@linkcode RangeError} {@linkcode SyntaxError} in one sentence for the user.
 */
async function findForHuggingFace(run: string, flags: ExportFlags): Promise<Found> {
  const { dtype, tokenizer } = flags;
  const model = await adapted(await findTrainedDecoder("export", run, flags.ema), flags);
  const { path, config, weights, format } = model;
  const source = tokenizer === undefined ? model.tokenizer : tokenizerSource(tokenizer);
  const { ends, files } = await describeTokenizer(source, config.seq);
  const { dropout, bos = ends?.bos, eos = ends?.eos } = model;
  const exported = { config, weights, dtype: DTYPES[dtype], dropout, bos, eos, files };
  return { path, write: (out, signal) => writeModelFolder(format, out, exported, signal) };
}

/**
 * Returns a decoder without an adapter: merged if that is asked for.
 *
 * @throws {TypeError} if the decoder has an adapter that is not merged, or none to merge.
 */
async function adapted(
  found: TrainedDecoder,
  { adapter, merge = false }: Pick<ExportFlags, "adapter" | "merge">,
): Promise<TrainedDecoder> {
  const model = await withAdapter(found, adapter);
  const has = model.adapter !== undefined, { path } = model;
  const refusal = has
    ? "its adapter must be merged (--merge) or exported alone (--format peft)"
    : "it must have an adapter for --merge";
  ensure(has === merge, `export ${path}`, refusal, has ? "neither" : "none");
  return merged(model);
}

/** Finds the adapter of a run, to be written as a folder of PEFT's format. */
async function findForPeft(run: string, { adapter, merge, ema }: ExportFlags): Promise<Found> {
  const folder = await findDecoderFolder(run, ema);
  const checkpoint = folder ? undefined : await findCheckpoint("export", run, ema);
  const found = folder ?? trainedDecoder("export", checkpoint!), { path, format } = found;
  const model = await withAdapter(found, adapter);
  ensure(!merge, "export", "--merge must come with --format hf or onnx", "peft");
  ensure(model.adapter, `export ${path}`, "its run must have trained an adapter");
  const { lora, parameters, weights } = model.adapter;
  const exported = {
    ...{ lora, parameters, weights },
    isTransposed: parameters.some(({ name }) => isConv1D(format, name)),
    base: checkpoint ? keptStarts(checkpoint.config).weights : path,
  };
  return { path, write: (out, signal) => writeAdapter(out, exported, signal) };
}

/** Returns the files of a tokenizer by name, and the tokens that begin and end a text. */
async function describeTokenizer(source: TokenizerSource, seq: number) {
  const files = new Map<string, Uint8Array>();
  if (source === "none") return { files };
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
  files.set(TOKENIZER_FILE, content).set("tokenizer_config.json", encode(about));
  return { ends: { bos, eos }, files };
}

const encode = (json: unknown): Uint8Array =>
  new TextEncoder().encode(JSON.stringify(json, null, 2) + "\n");

/**
 * Finds a model, to be written as an ONNX file.
 *
 * @throws {RangeError} if the model cannot be exported, or is too large for such a file.
 * @throws {TypeError} if the run trained an ONNX file that `--model` does not name.
 */
async function findForOnnx(run: string, flags: ExportFlags): Promise<Found> {
  const { model: file } = flags;
  const folder = await findDecoderFolder(run, flags.ema);
  const checkpoint = folder ? undefined : await findCheckpoint("export", run, flags.ema);
  if (checkpoint) refuseAdapter(checkpoint, flags);
  if (checkpoint?.config.architecture === "onnx") {
    const { path } = checkpoint, bytes = trainedOnnx(checkpoint, file);
    return { path, write: (out, signal) => writeNewFile(out, [bytes()], signal) };
  }
  const found = folder ?? modelOf(checkpoint!), isDecoder = found.architecture !== "mlp";
  const model = isDecoder ? await adapted(found, flags) : found;
  const { weights, path } = model, onnx = onnxOf(model);
  const must = "--model must be left out, as its run trained no ONNX file";
  ensure(file === undefined, `export ${path}`, must, quoted(file));
  const valuesOf = (name: string) => readTensor(weights.get(name)!);
  return { path, write: (out, signal) => writeNewFile(out, onnx.pieces(valuesOf), signal) };
}

/** Refuses to merge an adapter into a model that is no decoder. */
function refuseAdapter(
  { path, config: { architecture, lora } }: Checkpoint<TensorSource>,
  { adapter, merge }: ExportFlags,
): void {
  const isAdapted = lora !== undefined || adapter !== undefined || merge;
  const fits = !isAdapted || !["mlp", "onnx"].includes(String(architecture));
  const must = "the model of an adapter must be gpt or llama to be merged";
  ensure(fits, `export ${path}`, must, architecture);
}

function modelOf(checkpoint: Checkpoint<TensorSource>): TrainedDecoder | TrainedMlp {
  const { path, config: { architecture } } = checkpoint;
  if (architecture === "mlp") return trainedMlp("export", checkpoint);
  const isKnown = DECODERS.some((known) => known.architecture === architecture);
  const must = "its model must be gpt, llama or mlp, or that of an ONNX file";
  const remedy = "a script can export its own layers with layersOnnx() of @troupe/troupe/kernels";
  const received = `${inOneLine(String(architecture).slice(0, 80))}; ${remedy}`;
  ensure(isKnown, `export ${path} as ONNX`, must, received, RangeError);
  return trainedDecoder("export", checkpoint);
}

function onnxOf(model: TrainedDecoder | TrainedMlp): OnnxFile {
  if (model.architecture === "mlp") return mlpOnnx(model.config);
  const { architecture, config } = model, tokenizer = tokenizerName(model.tokenizer);
  if (architecture === "gpt2") return gpt2Onnx(config, { tokenizer });
  // One sample of all its tokens: shorter texts are padded at the end with any ids.
  const ties = llamaTies(config), options = { name: architecture, ties, metadata: { tokenizer } };
  return layersOnnx(llamaLogits(config, 1), options);
}

const FORMATS = {
  hf: { makes: "folder", find: findForHuggingFace },
  onnx: { makes: "file", find: findForOnnx },
  peft: { makes: "folder", find: findForPeft },
} as const;

/** Flags of one format. */
const FORMAT_FLAGS = { dtype: "hf", tokenizer: "hf", model: "onnx" } as const;

/** Maximum number of attempts to read a checkpoint. */
const TRIES_MAX = 20;

/** `troupe export`. */
export const exportCommand: Command = defineCommand({
  name: "export",
  summary: "writes a trained model in the format of another program",
  usage: [
    "RUN --format hf [--merge] --out DIR",
    "RUN --format onnx [--model FILE.onnx] --out FILE.onnx",
    "RUN --format peft --out DIR",
  ],
  about: [
    "RUN is the folder of a run or its name below runs/, for its newest checkpoint; the folder of one",
    "checkpoint; or a folder of Hugging Face with a GPT-2 or a Llama.",
  ],
  flags: FLAGS,
  notes: ["Exit codes: 0 done; 1 it failed and wrote nothing; 2 bad input."],
  run: async ({ given, flags, words }, { begin, signal }) => {
    const { format, out } = given;
    checkCount("export", "runs", words.length, [1]);
    const formats = FLAGS.format.choices.join(", ");
    ensure(format, "export", `--format must be one of ${formats}`);
    const { makes, find } = FORMATS[format];
    ensure(out !== undefined, "export", `--out must name a new ${makes}`);
    for (const [name, of] of Object.entries(FORMAT_FLAGS)) {
      const isMisplaced = name in given && format !== of;
      ensure(!isMisplaced, "export", `--${name} must come with --format ${of}`, format);
    }
    await checkNew(out, makes);
    const look = () => find(runPath(words[0]!), flags);
    let found = await look();
    begin();
    begin(""); // from here Ctrl-C ends it and leaves nothing
    for (let tries = 1;; tries++) {
      try {
        await found.write(out, signal);
        break;
      } catch (error) {
        if (signal?.aborted) return 130;
        // A running run that keeps few checkpoints may have replaced this one.
        const isGone = /^Cannot read /.test((error as Error).message) && tries < TRIES_MAX;
        const next = isGone ? await look() : found;
        if (next.path === found.path) throw error;
        found = next;
      }
    }
    print(`${inOneLine(found.path)} is exported to ${inOneLine(out)}`);
  },
});
