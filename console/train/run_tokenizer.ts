/**
 * The tokenizer of a run where it is a file: named, of the folder of first weights, or kept by the run
 * that is gone on with.
 *
 * @module
 */

import { dirname, join } from "node:path";
import { commandLine } from "../../actors/run/command_line.ts";
import { inputFileProblem } from "../../kernels/mod.ts";
import { quoted } from "../escape.ts";
import {
  keptTokenizer,
  readTokenizerFile,
  TOKENIZER_FILE,
  type TokenizerFile,
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
  /** Whether the sizes of the model are those that the folder of first weights says. */
  readonly isOfFolder: boolean;
}

/**
 * Reads the file of a run's tokenizer.
 *
 * @returns undefined where the run has none, or one that comes with Troupe.
 * @throws {TypeError} when the file cannot be read, or nobody has said which it is.
 * @throws {RangeError} when it is another than that of the run before.
 */
export function tokenizerOfRun(request: TokenizerRequest): TokenizerFile | undefined {
  const { given, before, isOfFolder } = request, { tokenizer: asked } = given;
  const kept = before && keptTokenizer(before.path, before.config);
  if (asked !== undefined) {
    const source = tokenizerSource(asked);
    return typeof source === "object"
      ? readTokenizerFile({ ...source, sha256: kept?.sha256 })
      : undefined;
  }
  if (kept) return readTokenizerFile(placesOf(request, kept));
  if (before || !isOfFolder) return undefined;
  const path = fileOfWeights(given.weights!), problem = inputFileProblem(path);
  if (problem === undefined) return readTokenizerFile({ paths: [path] });
  if (given.tokens !== undefined) return undefined;
  throw new TypeError(
    `Cannot use the tokens of a text with --weights: --tokenizer must say what made those of its model, as there is no ${
      quoted(path)
    }, received none`,
  );
}

/** The file of a tokenizer beside weights. */
const fileOfWeights = (weights: string): string =>
  join(inputFileProblem(weights) === "a folder" ? weights : dirname(weights), TOKENIZER_FILE);

/** Where it may lie that is named: a run that is made again is named by a file, which opens none. */
function placesOf(
  { given: { weights }, before }: TokenizerRequest,
  { paths, sha256 }: TokenizerPlaces,
): TokenizerPlaces {
  const { path, doing } = before!;
  if (doing === "resume from") return { paths, sha256 };
  if (weights !== undefined) return { paths: [fileOfWeights(weights)], sha256 };
  throw new TypeError(
    `Cannot ${doing} ${path}: --tokenizer must name the ${TOKENIZER_FILE} of its run, as no file opens another, received none; add to ${
      commandLine("train")
    } --tokenizer FILE`,
  );
}
