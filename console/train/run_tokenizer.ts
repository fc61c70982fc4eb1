/**
 * The tokenizer of a run where it is a file: named, of the folder of first weights, or kept by the run
 * that is gone on with.
 *
 * @module
 */

import { dirname, join } from "node:path";
import { commandLine } from "../../actors/run/command_line.ts";
import { inputFileProblem, type TokenizerName } from "../../kernels/mod.ts";
import { quoted } from "../escape.ts";
import {
  keptTokenizer,
  readTokenizerFile,
  TOKENIZER_FILE,
  type TokenizerFile,
  tokenizerOfFolder,
  type TokenizerPlaces,
  tokenizerSource,
} from "../trained/tokenizer_source.ts";
import type { Doing, Remembering } from "./data_files.ts";
import type { GivenTrainFlags } from "./train_flags.ts";

/** What says which tokenizer a run has. */
export interface TokenizerRequest {
  /** What was typed. */
  readonly given: GivenTrainFlags;
  /** The run that is gone on with or made again. */
  readonly before: (Remembering & { readonly doing: Doing }) | undefined;
  /** Number of ids that the folder of first weights says; undefined where none does. */
  readonly vocab: number | undefined;
}

/**
 * The tokenizer of a run, where no flag and no checkpoint names one of Troupe's; its file is read.
 *
 * @returns undefined where one of Troupe's is named, or none at all.
 * @throws {TypeError} when the file cannot be read, or nobody has said which it is.
 * @throws {RangeError} when it is another than that of the run before.
 */
export function tokenizerOfRun(
  request: TokenizerRequest,
): TokenizerFile | TokenizerName | undefined {
  const { given, before, vocab } = request, { tokenizer: asked, weights, tokens } = given;
  const kept = before && keptTokenizer(before.path, before.config);
  if (asked !== undefined) {
    const source = tokenizerSource(asked);
    return typeof source === "object"
      ? readTokenizerFile({ ...source, sha256: kept?.sha256 })
      : undefined;
  }
  if (kept) return readTokenizerFile(placesOf(request, kept));
  if (before || weights === undefined || vocab === undefined) return undefined;
  const source = tokenizerOfFolder(folderOf(weights), vocab);
  if (typeof source === "object") return readTokenizerFile(source);
  if (tokens !== undefined) return undefined; // ids are whatever they are
  if (source !== "none") return source;
  throw new TypeError(
    `Cannot use the tokens of a text with --weights: --tokenizer must say what made those of its model, as there is no ${
      quoted(join(folderOf(weights), TOKENIZER_FILE))
    }, received none`,
  );
}

const folderOf = (weights: string): string =>
  inputFileProblem(weights) === "a folder" ? weights : dirname(weights);

/** Where it may lie that is named: a run that is made again is named by a file, which opens none. */
function placesOf(
  { given: { weights }, before }: TokenizerRequest,
  { paths, sha256 }: TokenizerPlaces,
): TokenizerPlaces {
  const { path, doing } = before!;
  if (doing === "resume from") return { paths, sha256 };
  if (weights !== undefined) return { paths: [join(folderOf(weights), TOKENIZER_FILE)], sha256 };
  throw new TypeError(
    `Cannot ${doing} ${path}: --tokenizer must name the ${TOKENIZER_FILE} of its run, as no file opens another, received none; add to ${
      commandLine("train")
    } --tokenizer FILE`,
  );
}
