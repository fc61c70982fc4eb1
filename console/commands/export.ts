/**
 * `troupe export`: a trained model in the format of another program.
 *
 * @module
 */

import { DECODERS, writeDecoderFolder } from "../../actors/checkpoints/hugging_face.ts";
import type { Checkpoint, TensorSource } from "../../actors/checkpoints/mod.ts";
import { readTensor } from "../../actors/checkpoints/tensors.ts";
import { checkNew, writeNewFile } from "../../actors/checkpoints/write.ts";
import {
  bytesTokenizerJson,
  gpt2Onnx,
  gpt2TokenizerJson,
  layersOnnx,
  llamaLogits,
  llamaTies,
  mlpOnnx,
  type OnnxFile,
  parseTokenizer,
} from "../../kernels/mod.ts";
import type { CommandContext } from "../command.ts";
import { type CommandSyntax, COMMON_FLAGS, type FlagValues, withDefaults } from "../flag.ts";
import { answersItself, parseArguments } from "../parse.ts";
import { runPath } from "../run_files/run_folder.ts";
import { inOneLine, print, printError, quoted } from "../terminal.ts";
import { trainedOnnx } from "../train/onnx.ts";
import {
  findCheckpoint,
  findDecoderFolder,
  findTrainedDecoder,
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
} from "./trained.ts";

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
async function exportHuggingFace(run: string, { dtype, tokenizer }: HuggingFaceFlags) {
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

/** The models whose layers have an ONNX file. */
type Exported = TrainedDecoder | TrainedMlp;

/** Writes a model to a new file. */
interface Found {
  /** Where it lies. */
  readonly path: string;
  write(out: string, signal?: AbortSignal): Promise<void>;
}

/**
 * Finds the model of a run.
 *
 * @param file the ONNX file that the run trained, as the user names it.
 * @returns where it lies, and what writes it to a new file.
 * @throws {RangeError} when it is none that can be exported, or too large for such a file.
 * @throws {TypeError} when a run trained an ONNX file that is not named.
 */
async function exportOnnx(
  run: string,
  { model: file }: { readonly model?: string },
): Promise<Found> {
  const folder = await findDecoderFolder(run);
  const checkpoint = folder ? undefined : await findCheckpoint("export", "RUN", run);
  if (checkpoint?.config.architecture === "onnx") {
    const { path } = checkpoint, bytes = trainedOnnx(checkpoint, file);
    return { path, write: (out, signal) => writeNewFile(out, [bytes()], signal) };
  }
  const model = folder ?? modelOf(checkpoint!), { weights, path } = model, onnx = fileOf(model);
  if (file !== undefined) {
    throw new TypeError(
      `Cannot export ${path}: --model must be left out, as its run trained no ONNX file, received ${
        quoted(file)
      }`,
    );
  }
  const valuesOf = (name: string) => readTensor(weights.get(name)!);
  return { path, write: (out, signal) => writeNewFile(out, onnx.pieces(valuesOf), signal) };
}

function modelOf(checkpoint: Checkpoint<TensorSource>): Exported {
  const { path, config: { architecture } } = checkpoint;
  if (architecture === "mlp") return trainedMlp("export", checkpoint);
  if (DECODERS.some((known) => known.architecture === architecture)) {
    return trainedDecoder("export", checkpoint);
  }
  throw new RangeError(
    `Cannot export ${path} as ONNX: its model must be gpt, llama or mlp, or that of an ONNX file, received ${
      inOneLine(String(architecture).slice(0, 80))
    }; a script exports layers of its own with layersOnnx() of @troupe/troupe/kernels`,
  );
}

function fileOf(model: Exported): OnnxFile {
  if (model.architecture === "mlp") return mlpOnnx(model.config);
  const { architecture, config } = model, tokenizer = tokenizerName(model.tokenizer);
  if (architecture === "gpt2") return gpt2Onnx(config, { tokenizer });
  // One sample of all its tokens: a shorter one is padded at its end, with any ids.
  return layersOnnx(llamaLogits(config, 1), {
    name: architecture,
    ties: llamaTies(config),
    metadata: { tokenizer },
  });
}

const FLAGS = {
  format: {
    kind: "choice",
    choices: ["hf", "onnx"],
    help: "hf: a folder as transformers writes it; onnx: one file of a whole model",
  },
  model: {
    kind: "path",
    value: "FILE.onnx",
    otherwise: "none",
    help: "onnx: the file that the run trained, of a run with --model FILE.onnx",
  },
  out: { kind: "path", value: "PATH", help: "the new folder, or file" },
  dtype: {
    kind: "choice",
    choices: ["f32", "f16", "bf16"],
    default: "f32",
    help: "in which type weights are stored in a folder",
  },
  tokenizer: {
    ...TOKENIZER_FLAG,
    otherwise: "that of the run",
    help: "hf: what made its tokens: bytes, gpt2, or a tokenizer.json or a folder with one",
  },
  ...COMMON_FLAGS,
} as const;

/** The declaration of `troupe export`. */
export const EXPORT_SYNTAX: CommandSyntax = {
  name: "export",
  summary: "writes a trained model in the format of another program",
  usage: ["RUN --format hf --out DIR", "RUN --format onnx [--model FILE.onnx] --out FILE.onnx"],
  about: [
    "RUN is a run's folder or its name below runs/, whose newest checkpoint is taken, the folder of one",
    "checkpoint, or a GPT-2 or a Llama in a folder of Hugging Face's.",
  ],
  groups: [{ flags: FLAGS }],
  notes: ["Exit codes: 0 done; 1 it failed, and nothing is there; 2 bad input."],
};

/** A model that was found, and what writes it. */
interface ExportFound {
  readonly path: string;
  write(out: string, signal: AbortSignal | undefined): Promise<void>;
}

/** A format: what it makes, and what finds a model for it. */
interface Format {
  readonly makes: "folder" | "file";
  find(run: string, flags: FlagValues<typeof FLAGS>): Promise<ExportFound>;
}

const FORMATS: Readonly<Record<"hf" | "onnx", Format>> = {
  hf: { makes: "folder", find: exportHuggingFace },
  onnx: { makes: "file", find: exportOnnx },
};

/** Runs the command; returns the exit code. */
export async function exportCommand(
  args: readonly string[],
  { begin, signal }: Pick<CommandContext, "begin"> & Partial<CommandContext>,
): Promise<number> {
  if (answersItself(args, EXPORT_SYNTAX)) return 0;
  const { flags: given, words } = parseArguments(args, FLAGS, { takesWords: true });
  const { format, out } = given, [run] = words;
  if (run === undefined || words.length > 1) {
    throw new TypeError(
      `Cannot export: the number of runs must be 1, received ${words.length}`,
    );
  }
  if (format === undefined) {
    throw new TypeError(
      `Cannot export: --format must be one of ${FLAGS.format.choices.join(", ")}, received none`,
    );
  }
  if (out === undefined) {
    throw new TypeError(
      `Cannot export: --out must name a new ${FORMATS[format].makes}, received none`,
    );
  }
  for (const [name, of] of [["dtype", "hf"], ["tokenizer", "hf"], ["model", "onnx"]] as const) {
    if (given[name] === undefined || format === of) continue;
    throw new TypeError(
      `Cannot export: --${name} must come with --format ${of}, received ${format}`,
    );
  }
  const { makes, find } = FORMATS[format];
  await checkNew(out, makes);
  const look = () => find(runPath(run), withDefaults(FLAGS, given));
  let found = await look();
  begin();
  begin(""); // from now on Ctrl-C ends it, and nothing is left
  for (let tries = 1;; tries++) {
    try {
      await found.write(out, signal);
      break;
    } catch (error) {
      if (signal?.aborted) return 130;
      // A run that goes on and keeps few may have removed it for a newer one.
      const next = /^Cannot read /.test((error as Error).message) && tries < TRIES_MAX
        ? await look()
        : found;
      if (next.path === found.path) throw error;
      found = next;
    }
  }
  print(`${inOneLine(found.path)} is exported to ${inOneLine(out)}`);
  return 0;
}

/** Times that a model is looked for. */
const TRIES_MAX = 20;
