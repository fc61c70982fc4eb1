/**
 * The user's files that a run reads, and their records in its checkpoints: enough to recognize the
 * files, but a record never opens one.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { dirname, join } from "node:path";
import {
  type DecoderConfig,
  decoderOf,
  isTransformersConfig,
  parseConfig,
  readConfigJson,
} from "../../actors/checkpoints/hugging_face.ts";
import type { Checkpoint } from "../../actors/checkpoints/format.ts";
import { checkWeights } from "../../actors/checkpoints/weights.ts";
import { commandLine } from "../../actors/options/limits.ts";
import type { KnownTokens, TokenizerName } from "../../kernels/mod.ts";
import {
  assertInput,
  CSV_BYTES_MAX,
  decodeText,
  inputFileProblem,
  knowTokens,
  refusal,
  TEXT_BYTES_MAX,
  tokenBytesOf,
  TOKENS_BYTES_MAX,
} from "../../kernels/internal.ts";
import { checkFile } from "../command.ts";
import {
  formatOf,
  keptTokenizer,
  readTokenizerFile,
  TOKENIZER_FILE,
  type TokenizerFile,
  tokenizerOfFolder,
  type TokenizerPlaces,
  tokenizerSource,
} from "../commands/trained.ts";
import { ensure, inOneLine, quoted, quotedForShell } from "../terminal.ts";
import { type GivenTrainFlags, SIZES } from "./flags.ts";

/** Largest sizes of data and schedule files, by flag. */
const DATA_FILES = {
  text: TEXT_BYTES_MAX,
  tokens: Infinity,
  "token-lengths": TOKENS_BYTES_MAX,
  "schedule-file": CSV_BYTES_MAX,
} as const;

/** A flag that names a data or schedule file. */
type DataFileFlag = keyof typeof DATA_FILES;

const FLAGS = Object.keys(DATA_FILES) as DataFileFlag[];

/** Largest number of characters shown of a path. */
const PATH_SHOWN_MAX = 500;

/** The record of a file in a checkpoint. The path is only shown, never opened. */
interface KeptFile {
  /** Path of the file when it was read. */
  readonly path: string;
  /** SHA-256 of its bytes, in hexadecimal; undefined for checkpoints of Troupe 0.1. */
  readonly sha256: string | undefined;
}

/** A file, read once so that the hash is of the bytes in use. */
interface DataFile extends KeptFile {
  readonly sha256: string;
  /** Its bytes; those of a token file are read on demand. */
  readonly content: Uint8Array;
  /** Reads ranges of a token file. */
  readonly known?: KnownTokens;
}

/** Files by the flags that name them. */
export type DataFiles = { readonly [Flag in DataFileFlag]?: DataFile };

/**
 * Reads the files that the flags name. A token file is only hashed, because it may not fit into
 * memory.
 *
 * @param announce receives a message before slow work.
 * @throws {TypeError} when a file cannot be read.
 */
export async function readDataFiles(
  given: GivenTrainFlags,
  announce: (line: string) => void,
): Promise<DataFiles> {
  const files: { [Flag in DataFileFlag]?: DataFile } = {};
  for (const flag of FLAGS) {
    const path = given[flag];
    if (path === undefined) continue;
    checkFile(flag, path, DATA_FILES[flag]);
    if (flag === "tokens") {
      files[flag] = await lookAtTokens(path, announce);
      continue;
    }
    const content = await Deno.readFile(path);
    const sha256 = createHash("sha256").update(content).digest("hex");
    files[flag] = { path, sha256, content };
  }
  return files;
}

/** Least bytes of a file for which hashing is announced, because it takes seconds. */
const LARGE_BYTES = 2 ** 30;

async function lookAtTokens(path: string, announce: (line: string) => void): Promise<DataFile> {
  const { size } = await Deno.stat(path);
  if (size >= LARGE_BYTES) {
    announce(`Taking the hash of ${inOneLine(path)}, ${(size / LARGE_BYTES).toFixed(1)} GiB.`);
  }
  const known = await knowTokens(path).catch((cause) => {
    throw new TypeError(`Cannot use --tokens: ${(cause as Error).message}`, { cause });
  });
  return {
    path,
    sha256: known.sha256,
    known,
    get content() {
      checkFile("tokens", path, TOKENS_BYTES_MAX);
      return Deno.readFileSync(path);
    },
  };
}

/** Decodes a file as text. */
export const textOf = ({ content, path }: DataFile): string => decodeText(content, inOneLine(path));

/**
 * Returns the records of the files of a run for a checkpoint's config.
 *
 * @param starts paths of the initial weights and adapter, of this run or of the resumed one.
 */
export function rememberFiles(
  files: Readonly<Record<string, DataFile>>,
  starts: KeptStarts,
): Record<string, KeptFile | { readonly path: string }> {
  const kept: Record<string, KeptFile | { readonly path: string }> = {};
  for (const [flag, { path, sha256 }] of Object.entries(files)) kept[flag] = { path, sha256 };
  for (const flag of START_FLAGS) {
    const path = starts[flag];
    if (path !== undefined) kept[flag] = { path };
  }
  return kept;
}

/** Flags of the files with which a run begins. */
const START_FLAGS = ["weights", "adapter"] as const;

/** Paths of the initial weights and of the initial adapter. */
type KeptStarts = { readonly [Flag in typeof START_FLAGS[number]]?: string | undefined };

/** Returns the paths of the initial weights and adapter of a checkpoint's run, to show and to record. */
export function keptStarts(config: Checkpoint["config"]): KeptStarts {
  const files = (config.files ?? {}) as Record<string, { readonly path?: unknown } | undefined>;
  return Object.fromEntries(
    START_FLAGS.map((flag) => [flag, files[flag]?.path]).filter(([, path]) =>
      typeof path === "string"
    ),
  );
}

/** The earlier run, by its checkpoint or only its config, and its use. */
interface EarlierRun extends Pick<Checkpoint, "path" | "config"> {
  readonly doing: "resume from" | "repeat the run of";
}

/**
 * Returns the records of the files of a checkpoint's run. Troupe 0.1 kept data paths in the flags.
 *
 * @throws {TypeError} when a record is not a path and a hash.
 */
function keptFiles({ path, config, doing }: EarlierRun): Map<DataFileFlag, KeptFile> {
  const files = config.files ?? {}, flags = config.flags ?? {};
  const kept = new Map<DataFileFlag, KeptFile>();
  for (const flag of FLAGS) {
    const file: unknown = (files as Record<string, unknown>)[flag];
    const old: unknown = (flags as Record<string, unknown>)[flag];
    if (file === undefined && old === undefined) continue;
    const { path: from, sha256 } = (file ?? { path: old }) as Partial<KeptFile>;
    const isHash = file === undefined || /^[0-9a-f]{64}$/.test(String(sha256));
    const must = `its ${flag} must have a path and a SHA-256`;
    ensure(typeof from === "string" && isHash, `${doing} ${path}`, must, quoted(file ?? old));
    kept.set(flag, { path: from, sha256 });
  }
  return kept;
}

/**
 * Checks that a run reads the same files as the earlier run: each must be named again, with the same
 * bytes. A named schedule replaces a schedule file.
 *
 * @param args arguments of the command, to suggest a corrected one.
 * @param announce receives a message about each file that cannot be compared.
 * @throws {TypeError} when a file is not named.
 * @throws {RangeError} when a file differs.
 */
export function checkSameFiles(
  before: EarlierRun,
  given: GivenTrainFlags,
  files: DataFiles,
  args: readonly string[],
  announce: (line: string) => void,
): void {
  const { doing } = before, cannot = `${doing} ${before.path}`;
  for (const [flag, { path, sha256 }] of keptFiles(before)) {
    const file = files[flag];
    if (!file && flag === "schedule-file" && given.schedule !== undefined) continue;
    if (!file) throw unnamed(cannot, flag, path, args);
    if (sha256 === undefined) {
      announce(
        `${before.path} does not say what its ${flag} held: ${file.path} is taken unseen.`,
      );
      continue;
    }
    const must = `--${flag} must name the file that its run read, with SHA-256 ${sha256}`;
    const remedy = doing === "resume from"
      ? "; to learn from other data, begin a run with --weights"
      : "";
    const received = `${quoted(file.path)} with ${file.sha256}${remedy}`;
    ensure(sha256 === file.sha256, cannot, must, received, RangeError);
    const bytes = tokenBytesOf(path), isSame = bytes === tokenBytesOf(file.path);
    const sized = `--tokens must name ids of ${8 * bytes} bits, which end in .u32 if it is 32`;
    ensure(flag !== "tokens" || isSame, cannot, sized, quoted(file.path), RangeError);
  }
  if (doing === "resume from") return;
  for (const [flag, path] of Object.entries(keptStarts(before.config))) {
    const named = given[flag as keyof KeptStarts];
    if (named === undefined) throw unnamed(cannot, flag, path!, args);
    announce(`${before.path} does not say what its ${flag} held: ${named} is taken unseen.`);
  }
}

function unnamed(cannot: string, flag: string, path: string, args: readonly string[]): Error {
  const shown = path.length > PATH_SHOWN_MAX ? "FILE" : path;
  const must =
    `--${flag} must name the file that its run read, because a file may not open another`;
  return untrusted(cannot, must, "train", [...withoutData(args), `--${flag}`, shown]);
}

/** Returns the error of an input that must be typed, with the command line that does so. */
export function untrusted(cannot: string, must: string, name: string, words: readonly string[]) {
  const line = commandLine(name, ...words.map(shellWord));
  return refusal(cannot, must, `none; if you trust it, type: ${line}`, TypeError);
}

/** Removes the data flags from arguments. */
function withoutData(args: readonly string[]): string[] {
  const isData = (arg = "") => /^--(data|text|tokens|token-lengths)(=|$)/.test(arg);
  return args.filter((arg, i) => !isData(arg) && !(isData(args[i - 1]) && !arg.startsWith("--")));
}

/** Quotes a word for a shell, without control characters. */
export const shellWord = (word: string): string => quotedForShell(inOneLine(word));

/**
 * Reads the tokenizer file of a run, unless a flag or checkpoint names a built-in tokenizer.
 *
 * @param given flags given by the user.
 * @param vocab number of ids in the folder of initial weights, if it has them.
 * @returns undefined if a built-in tokenizer is named, or none.
 * @throws {TypeError} when the file cannot be read or is not named.
 * @throws {RangeError} when it differs from that of the earlier run.
 */
export function tokenizerOfRun(
  given: GivenTrainFlags,
  before: EarlierRun | undefined,
  vocab: number | undefined,
): TokenizerFile | TokenizerName | undefined {
  const { tokenizer: asked, weights, tokens } = given;
  const kept = before && keptTokenizer(before.path, before.config);
  if (asked !== undefined) {
    const source = tokenizerSource(asked);
    return typeof source === "object"
      ? readTokenizerFile({ ...source, sha256: kept?.sha256 })
      : undefined;
  }
  if (kept) return readTokenizerFile(placesOf(before!, weights, kept));
  if (before || weights === undefined || vocab === undefined) return undefined;
  const source = tokenizerOfFolder(folderOf(weights), vocab);
  if (typeof source === "object") return readTokenizerFile(source);
  if (tokens !== undefined) return undefined; // any file can contain ids
  const missing = quoted(join(folderOf(weights), TOKENIZER_FILE));
  const must = `--tokenizer must say what made those of its model, as there is no ${missing}`;
  ensure(source !== "none", "use the tokens of a text with --weights", must);
  return source;
}

const folderOf = (weights: string): string =>
  inputFileProblem(weights) === "a folder" ? weights : dirname(weights);

/** Returns the paths to try. A file that names the run to repeat adds none, so it opens no file. */
function placesOf(
  { path, doing }: EarlierRun,
  weights: string | undefined,
  { paths, sha256 }: TokenizerPlaces,
): TokenizerPlaces {
  if (doing === "resume from") return { paths, sha256 };
  if (weights !== undefined) return { paths: [join(folderOf(weights), TOKENIZER_FILE)], sha256 };
  const must =
    `--tokenizer must name the ${TOKENIZER_FILE} of its run, because a file may not open another`;
  const received = `none; add to ${commandLine("train")} --tokenizer FILE`;
  throw refusal(`${doing} ${path}`, must, received, TypeError);
}

/** Flags that a `config.json` sets, by the model's names. */
const { experts: _experts, "head-slices": _slices, ...SIZE_FLAGS } = SIZES;

/** Model and sizes of a folder of weights. */
type FolderSizes = Pick<GivenTrainFlags, "model" | keyof typeof SIZE_FLAGS>;

/**
 * Returns the model sizes for a path of weights, from the `config.json` in a Hugging Face folder, or
 * next to a file in one. A checkpoint folder and a single file have none.
 *
 * @param given flags given by the user.
 * @param takenBack switches turned off with `--no`.
 * @throws {TypeError} when a folder has no `config.json`.
 * @throws {RangeError} when the model is unknown, or a given size differs.
 * @throws as `checkWeights`.
 */
export async function sizesOfWeights(
  path: string,
  given: GivenTrainFlags,
  takenBack: readonly string[],
): Promise<FolderSizes> {
  const isFolder = inputFileProblem(path) === "a folder";
  const folder = isFolder ? path : dirname(path), file = join(folder, "config.json");
  const problem = inputFileProblem(file);
  if (problem !== undefined) {
    const must = "its folder must have a config.json, which says the sizes of the model";
    const remedy = "name the file of the weights to say them by flags";
    ensure(!isFolder, "use --weights", must, `${quoted(path)} (${problem}); ${remedy}`);
    return {};
  }
  const config = readConfigJson(folder);
  if (!isTransformersConfig(config)) return {};
  if (!isFolder && !decoderOf(config)) return {};
  const format = formatOf(config, file), sizes = parseConfig(format, config, file);
  const isSame = given.model === undefined || given.model === format.model;
  const must = `it must be ${format.model}, the model_type of ${file}`;
  assertInput(isSame, "use --model", must, given.model);
  const flags = flagsOf(sizes);
  const positions = Number(config[format.keys.seq!]), isLearned = format.model === "gpt";
  checkTyped(flags, given, takenBack, {
    keyOf: (name) => `${format.keys[SIZE_FLAGS[name]]} of ${file}`,
    positions,
    mayBeFewer: !isLearned || !isFolder,
  });
  const seq = given.seq ?? sizes.seq, model = { ...sizes, seq };
  // Check the actual weights before a model is compiled for sizes that only config.json states.
  await checkWeights(path, format.parameters(model), format.ties(model));
  return { ...flags, model: format.model, seq };
}

/** Returns the flags for sizes. */
const flagsOf = (sizes: DecoderConfig): FolderSizes =>
  Object.fromEntries(
    Object.entries(SIZE_FLAGS).map(([flag, name]) =>
      [flag, (sizes as unknown as Record<string, unknown>)[name]] as const
    ).filter(([, value]) => value !== undefined),
  );

/** Facts of a folder to check given sizes against. */
interface FolderFacts {
  /** Returns the name of a size in the folder's config. */
  keyOf(name: keyof typeof SIZE_FLAGS): string;
  /** Largest context of the model, in tokens. */
  readonly positions: number;
  /** True if a smaller context is allowed. */
  readonly mayBeFewer: boolean;
}

function checkTyped(
  sizes: FolderSizes,
  given: GivenTrainFlags,
  takenBack: readonly string[],
  { keyOf, positions, mayBeFewer }: FolderFacts,
): void {
  const refuse = (name: keyof typeof SIZE_FLAGS, must: unknown, received: unknown, more = "") => {
    throw refusal(`use --${name}`, `it must be ${must}, the ${keyOf(name)}`, `${received}${more}`);
  };
  const typed = { ...given, tie: takenBack.includes("tie") ? false : given.tie };
  for (const name of Object.keys(SIZE_FLAGS) as (keyof typeof SIZE_FLAGS)[]) {
    const value = typed[name];
    if (name === "seq" || value === undefined || value === sizes[name]) continue;
    if (sizes[name] !== undefined) refuse(name, sizes[name], value);
  }
  const { seq = sizes.seq! } = given;
  if (seq === sizes.seq || (seq < positions && mayBeFewer)) return;
  refuse(
    "seq",
    mayBeFewer ? `at most ${positions}` : positions,
    seq,
    seq < positions ? "; name the file of the weights, not its folder, to leave out positions" : "",
  );
}
