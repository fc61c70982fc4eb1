/**
 * What made the tokens of a model: one of Troupe's tokenizers, or a `tokenizer.json`.
 *
 * A checkpoint remembers the hash of such a file, and no path: the file lies beside it, in its run's
 * folder, or is named by the user.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { basename, dirname, join, resolve } from "node:path";
import {
  bytesTokenizer,
  type FileTokenizer,
  gpt2Tokenizer,
  inputFileProblem,
  parseTokenizer,
  type Tokenizer,
  TOKENIZER_BYTES_MAX,
  type TokenizerName,
} from "../../kernels/mod.ts";
import { stepFolder } from "../../actors/checkpoints/checkpoint_folders.ts";
import { inOneLine, quoted } from "../escape.ts";
import { printError } from "../print.ts";

/** The name that such a file has in a folder. */
export const TOKENIZER_FILE = "tokenizer.json";

/** Places of a file, of which the first that is there is taken. */
export interface TokenizerPlaces {
  readonly paths: readonly string[];
  /** SHA-256 that it must have, in hexadecimal. */
  readonly sha256?: string | undefined;
}

/** What made the tokens of a model, where that is known. */
export type TokenizerSource = TokenizerName | "none" | TokenizerPlaces;

/** The numbers of ids of Troupe's tokenizers. */
const SIZES: ReadonlyMap<number, TokenizerName> = new Map([[256, "bytes"], [50_257, "gpt2"]]);

/**
 * What made the tokens of a model whose folder has weights: the file that is there, or else the
 * tokenizer of Troupe's that has as many ids.
 *
 * @param folder of the weights.
 * @param vocab ids of the model.
 */
export function tokenizerOfFolder(folder: string, vocab: number): TokenizerSource {
  const path = join(folder, TOKENIZER_FILE);
  return inputFileProblem(path) === undefined ? { paths: [path] } : SIZES.get(vocab) ?? "none";
}

/** What it is called, as a checkpoint says it. */
export const tokenizerName = (source: TokenizerSource): string =>
  typeof source === "object" ? TOKENIZER_FILE : source;

/** A file of a tokenizer that was read. */
export interface TokenizerFile {
  /** Where it lay. */
  readonly path: string;
  /** SHA-256 of its bytes, in hexadecimal. */
  readonly sha256: string;
  /** Its bytes. */
  readonly content: Uint8Array;
}

/** The flag that says it; a path is of a file, or of a folder that has one. */
export const TOKENIZER_FLAG = {
  kind: "part",
  choices: ["bytes", "gpt2"] satisfies TokenizerName[],
  value: "bytes|gpt2|PATH",
  help: "what the tokens of a text are: bytes, gpt2, or a tokenizer.json or a folder with one",
} as const;

/** What a value of the flag names. */
export function tokenizerSource(value: string): TokenizerSource {
  if (value === "bytes" || value === "gpt2") return value;
  const isFolder = inputFileProblem(value) === "a folder";
  return { paths: [isFolder ? join(value, TOKENIZER_FILE) : value] };
}

/**
 * Where the file lies whose hash the checkpoint of a run remembers: in the checkpoint's folder, or in
 * the run's.
 *
 * @param path the folder of the checkpoint.
 * @param config what it says.
 * @returns undefined where it remembers none.
 * @throws {TypeError} when it says something else than a hash.
 */
export function keptTokenizer(
  path: string,
  config: Readonly<Record<string, unknown>>,
): TokenizerPlaces | undefined {
  if (config.tokenizer !== TOKENIZER_FILE) return undefined;
  const { tokenizer } = (config.files ?? {}) as { tokenizer?: unknown };
  const { sha256 } = (tokenizer ?? {}) as { sha256?: unknown };
  if (typeof sha256 !== "string" || !/^[0-9a-f]{64}$/.test(sha256)) {
    throw new TypeError(
      `Cannot read ${path}: its tokenizer must have a SHA-256, received ${quoted(tokenizer)}`,
    );
  }
  const full = resolve(path), folders = stepFolder(basename(full)) ? [full, dirname(full)] : [full];
  return { paths: folders.map((folder) => join(folder, TOKENIZER_FILE)), sha256 };
}

/**
 * Reads the file of a tokenizer.
 *
 * @throws {TypeError} when none of its places has one that can be read.
 * @throws {RangeError} when its bytes are others.
 */
export function readTokenizerFile({ paths, sha256 }: TokenizerPlaces): TokenizerFile {
  const problems = paths.map((path) => inputFileProblem(path, TOKENIZER_BYTES_MAX));
  const path = paths[problems.indexOf(undefined)];
  if (path === undefined) {
    throw new TypeError(
      `Cannot read a tokenizer: it must be bytes, gpt2, or a ${TOKENIZER_FILE} that can be read, received ${
        quoted(paths.at(-1))
      } (${problems.at(-1)}); --tokenizer names it`,
    );
  }
  const content = Deno.readFileSync(path);
  const received = createHash("sha256").update(content).digest("hex");
  if (sha256 === undefined || received === sha256) return { path, sha256: received, content };
  throw new RangeError(
    `Cannot read ${
      inOneLine(path)
    }: it must be the tokenizer of the run, with SHA-256 ${sha256}, received one with ${received}`,
  );
}

/**
 * Opens a tokenizer.
 *
 * @returns undefined where nobody knows which one.
 * @throws {TypeError} {@linkcode RangeError} {@linkcode SyntaxError} (as a rejection) when its file
 * cannot be read.
 */
export async function openTokenizer(
  source: TokenizerSource,
): Promise<Tokenizer | FileTokenizer | undefined> {
  if (source === "none") return undefined;
  if (source === "bytes") return bytesTokenizer();
  if (source === "gpt2") return await gpt2Tokenizer(printError);
  const { content, path } = readTokenizerFile(source);
  return await parseTokenizer(content, inOneLine(path));
}
