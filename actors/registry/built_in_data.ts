/**
 * Built-in data: texts and files of tokens, digits of MNIST, and strings to sort or reverse.
 *
 * @module
 */

import {
  type Batch,
  type BatchPlan,
  bytesTokenizer,
  digitBatches,
  documentBatches,
  type DocumentBatchOptions,
  type FileTokenizer,
  gpt2Tokenizer,
  heldOutBatches,
  loadDigits,
  loadText,
  noisyDigitBatches,
  openTokenFile,
  rowCount,
  type RowOrder,
  type SeekableBatches,
  shuffledOrder,
  splitTokens,
  stringBatches,
  type StringTask,
  tokenBatches,
  type TokenFile,
  type Tokenizer,
  type Tokens,
} from "../../kernels/mod.ts";
import {
  checkTokens,
  decodeText,
  decodeTokens,
  DIGIT_PIXELS,
  DIGITS_SHA256,
  evaluationPlan,
  STRING_VOCABULARY,
  TEXT_SHA256,
  type TextName,
  tokensIn,
} from "../../kernels/internal.ts";
import type { Digits } from "../../kernels/mod.ts";
import { type DataComponent, type DataOptions, defineData, type OpenedData } from "./component.ts";

/** Sizes of a digit; its pixels are stored row by row. */
const SIZES = { inputs: DIGIT_PIXELS, channels: 1, height: 28, width: 28 };

/** Standard deviation of the noise; ink is 1, paper 0. */
const DEVIATION = 0.5;

/**
 * Returns a component of MNIST digits.
 *
 * @param batchesOf makes micro-batches with a seed; -1 for held-out digits.
 */
function digits(
  name: string,
  sizes: OpenedData["sizes"] & object,
  batchesOf: (digits: Digits, cut: BatchPlan, seed: number) => SeekableBatches<Batch>,
): DataComponent {
  return defineData({
    name,
    version: "1",
    sha256: DIGITS_SHA256,
    async open({ microBatch, microBatches, replicas, seed, announce }) {
      const { train, heldOut } = await loadDigits(announce);
      const order = shuffledOrder(train.labels.length, seed);
      return {
        sizes,
        batches: batchesOf(train, { microBatch, microBatches, replicas, order }, seed),
        heldOut: (microBatch) => [...batchesOf(heldOut, { microBatch, microBatches: 1 }, -1)],
      };
    },
  });
}

/** Digits of MNIST with labels. */
export const mnist: DataComponent = digits("mnist", { ...SIZES, classes: 10 }, digitBatches);

/** Digits of MNIST with and without noise. The noise of held-out pictures is the same in all runs. */
export const noisy: DataComponent = digits(
  "noisy-mnist",
  SIZES,
  (digits, cut, seed) => noisyDigitBatches(digits, cut, { deviation: DEVIATION, seed }),
);

/** Strings of digits to sort. */
export const sort: DataComponent = stringComponent("sort");

/** Strings of digits to reverse. */
export const reverse: DataComponent = stringComponent("reverse");

/** Number of held-out strings. */
const HELD_OUT = 256;

function stringComponent(task: StringTask): DataComponent {
  return defineData({
    name: task,
    version: "1",
    open({ microBatch, microBatches, replicas, seq, seed }) {
      const options = { task, seq, seed };
      return {
        sizes: { vocab: STRING_VOCABULARY },
        batches: stringBatches(options, { microBatch, microBatches, replicas }),
        heldOut: (microBatch) => {
          const cut = { microBatch, microBatches: 1, steps: Math.ceil(HELD_OUT / microBatch) };
          return [...stringBatches({ ...options, isHeldOut: true }, cut)];
        },
      };
    },
  });
}

/** The State of the Union addresses. */
export const sotu: DataComponent = storedText("sotu");

/** Moby Dick. */
export const mobyDick: DataComponent = storedText("moby-dick");

/** The user's text file, in UTF-8. */
export const text: DataComponent = textComponent("text", (options) => {
  const { content, path } = fileOf(options, "text");
  return decodeText(content, path);
});

/** The user's file of token ids, read in order; ids that the run does not reach are held out. */
export const tokens: DataComponent = defineData({
  name: "tokens",
  version: "1",
  async open(options) {
    const file = fileOf(options, "tokens");
    const { steps, replicas, microBatches, microBatch, seq } = options;
    const samples = steps * replicas * microBatches * microBatch, used = samples * seq;
    if (options.documents || options.lengths) {
      const tokens = file.known
        ? await openTokenFile(file.known)
        : decodeTokens(file.content, file.path);
      const tokenizer = await tokenizerOfTokens(options);
      const reading = { steps, lastIsSmaller: true } as const;
      return openDocuments(
        tokenizer,
        { tokens, documents: documentsOf(options, tokens) },
        samples,
        reading,
        options,
      );
    }
    const cut = file.known
      ? cutTokens(await openTokenFile(file.known), (all) => all.from(used))
      : cutTokens(decodeTokens(file.content, file.path), (all) => all.subarray(used));
    return openTokens(
      await tokenizerOfTokens(options),
      cut,
      { steps, lastIsSmaller: true },
      options,
    );
  },
});

const cutTokens = <T extends Tokens | TokenFile>(tokens: T, heldOut: (tokens: T) => T) => ({
  tokens,
  heldOut: heldOut(tokens),
});

/** Returns the tokenizer of ids; with a vocabulary but without a tokenizer, they have no text. */
const tokenizerOfTokens = (options: DataOptions) =>
  options.tokenizer !== undefined || options.vocab === undefined ? tokenizerOf(options) : undefined;

/** Returns the tokens of each document of a file, whose sum must be that of its tokens. */
function documentsOf({ documents }: DataOptions, { length }: Tokens | TokenFile): Uint32Array {
  const cannot = "Cannot read the documents of --tokens: --token-lengths must";
  if (!documents) throw new TypeError(`${cannot} name the file of their lengths, received none`);
  const sum = tokensIn(documents);
  if (sum === length) return documents;
  throw new RangeError(`${cannot} have the sum ${length}, the tokens of the file, received ${sum}`);
}

/** Opens documents; those after the first `samples` are held out. */
function openDocuments(
  tokenizer: AnyTokenizer | undefined,
  { tokens, documents }: Pick<DocumentBatchOptions, "tokens" | "documents">,
  samples: number,
  reading: { order: RowOrder } | { steps: number; lastIsSmaller: true },
  options: DataOptions,
): OpenedData {
  const { seq, vocab = tokenizer!.vocabularySize, microBatch, microBatches, replicas } = options;
  const { arePairs, lengths, groupByLength, seed } = options, cut = (arePairs ? 2 : 1) * samples;
  const trained = documents.subarray(0, cut), rest = documents.subarray(cut);
  const own = { arePairs, lengths, seq, vocabularySize: vocab }, from = tokensIn(trained);
  const heldOut = "from" in tokens ? tokens.from(from) : tokens.subarray(from);
  return {
    sizes: { vocab },
    ...tokenizer && { tokenizer },
    batches: documentBatches({
      ...{ ...own, tokens, documents: trained, microBatch, microBatches, replicas, ...reading },
      ...groupByLength && { groupSeed: seed },
    }),
    heldOut: (count) => {
      const plan = evaluationPlan(rest.length / (arePairs ? 2 : 1), count, "documents");
      return [...documentBatches({ ...own, tokens: heldOut, documents: rest, ...plan })];
    },
  };
}

/** Opens a text as documents, between which are empty lines; a tenth at the end is held out. */
async function openText(
  tokenizer: AnyTokenizer,
  content: string,
  options: DataOptions,
): Promise<OpenedData> {
  const { seq, seed, arePairs } = options, encoded: Tokens[] = [];
  for (const document of arePairs ? pairsOf(content) : content.split(/\n\s*\n/)) {
    const ids = await tokenizer.encode(document.trim());
    // A longer document is several samples.
    const most = arePairs ? ids.length : seq;
    for (let at = 0; at < ids.length; at += most) encoded.push(ids.subarray(at, at + most));
  }
  if ("close" in tokenizer) tokenizer.close();
  const documents = Uint32Array.from(encoded, ({ length }) => length);
  const tokens = new Uint32Array(tokensIn(documents));
  let at = 0;
  for (const ids of encoded) tokens.set(ids, (at += ids.length) - ids.length);
  const all = documents.length / (arePairs ? 2 : 1), samples = Math.floor(0.9 * all);
  if (samples < 1) {
    throw new RangeError(
      `Cannot train on documents: the text must have at least two, received ${all}`,
    );
  }
  return openDocuments(tokenizer, { tokens, documents }, samples, {
    order: shuffledOrder(samples, seed),
  }, options);
}

/** Returns the sources and targets of a text: each line has one of each, with a tab between them. */
function pairsOf(content: string): string[] {
  return content.split("\n").filter((line) => line.trim() !== "").flatMap((line, i) => {
    const pair = line.split("\t");
    if (pair.length === 2 && pair.every((one) => one.trim() !== "")) return pair;
    throw new RangeError(
      `Cannot train on pairs: each line must have a source, a tab and a target, received ${
        JSON.stringify(line.slice(0, 100))
      } in line ${i + 1}`,
    );
  });
}

/** Returns the component of a text that Troupe provides. */
function storedText(name: TextName): DataComponent {
  const part = textComponent(name, ({ announce }) => loadText(name, announce));
  return defineData({ ...part, sha256: TEXT_SHA256[name] });
}

/** Returns the component of a text, read row by row in a new order each epoch. */
function textComponent(
  name: string,
  load: (options: DataOptions) => string | Promise<string>,
): DataComponent {
  return defineData({
    name,
    version: "1",
    async open(options) {
      const tokenizer = await tokenizerOf(options), { seq, seed } = options;
      const content = await load(options);
      if (options.lengths) return await openText(tokenizer, content, options);
      const encoded = await tokenizer.encode(content);
      if ("close" in tokenizer) tokenizer.close();
      checkTokens(encoded, options.vocab ?? tokenizer.vocabularySize);
      const { train: tokens, heldOut } = splitTokens(encoded, seq);
      const order = shuffledOrder(rowCount(tokens.length, seq), seed);
      return openTokens(tokenizer, { tokens, heldOut }, { order }, options);
    },
  });
}

type AnyTokenizer = Tokenizer | FileTokenizer;

function openTokens(
  tokenizer: AnyTokenizer | undefined,
  { tokens, heldOut }: Record<"tokens" | "heldOut", Tokens | TokenFile>,
  reading: { order: RowOrder } | { steps: number; lastIsSmaller: true },
  { seq, vocab = tokenizer!.vocabularySize, microBatch, microBatches, replicas }: DataOptions,
): OpenedData {
  const cut = { seq, vocabularySize: vocab, microBatches, replicas };
  return {
    sizes: { vocab },
    ...tokenizer && { tokenizer },
    batches: tokenBatches({ ...cut, microBatch, tokens, ...reading }),
    heldOut: (samples) => heldOutBatches({ ...cut, microBatch: samples, tokens: heldOut }),
  };
}

function tokenizerOf(
  { tokenizer, announce }: DataOptions,
): AnyTokenizer | Promise<AnyTokenizer> {
  if (typeof tokenizer === "object") return tokenizer;
  return tokenizer === "gpt2" ? gpt2Tokenizer(announce) : bytesTokenizer();
}

function fileOf({ file }: DataOptions, flag: string): NonNullable<DataOptions["file"]> {
  if (file) return file;
  throw new TypeError(`Cannot read a file of ${flag}: --${flag} must name it, received none`);
}
