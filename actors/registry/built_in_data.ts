/**
 * Built-in data: texts and files of tokens, digits of MNIST, and strings to sort or reverse.
 *
 * @module
 */

import { type OpenedData } from "../options/model_definition.ts";
import {
  type Batch,
  type BatchPlan,
  bytesTokenizer,
  digitBatches,
  type Documents,
  type FileTokenizer,
  gpt2Tokenizer,
  groupedOrder,
  heldOutBatches,
  loadDigits,
  loadText,
  openTokenFile,
  rowCount,
  type RowOrder,
  type SeekableBatches,
  shuffledOrder,
  splitTokens,
  tokenBatches,
  type TokenFile,
  type Tokenizer,
  type Tokens,
} from "../../kernels/mod.ts";
import {
  assertInput,
  checkTokens,
  decodeText,
  decodeTokens,
  DIGIT_PIXELS,
  DIGITS_SHA256,
  noisyDigitBatches,
  sampleLengths,
  STRING_VOCABULARY,
  stringBatches,
  type StringTask,
  TEXT_SOURCES,
  type TextName,
  tokensIn,
} from "../../kernels/internal.ts";
import type { Digits } from "../../kernels/mod.ts";
import { type DataComponent, type DataOptions, defineData } from "./component.ts";

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
    const samples = steps * replicas * microBatches * microBatch;
    const tokens = file.known
      ? await openTokenFile(file.known)
      : decodeTokens(file.content, file.path);
    // With a vocabulary but without a tokenizer, ids have no text.
    const hasText = options.tokenizer !== undefined || options.vocab === undefined;
    const tokenizer = hasText ? await tokenizerOf(options) : undefined;
    const reading = { steps, lastIsSmaller: true } as const, { documents } = options;
    if (documents || options.lengths) {
      const must = `--token-lengths must name lengths with the sum ${tokens.length}`;
      const sum = documents ? tokensIn(documents) : "none";
      assertInput(sum === tokens.length, "read documents of --tokens", must, sum);
      return openDocuments(tokenizer, { tokens, lengths: documents! }, samples, reading, options);
    }
    const heldOut = tailOf(tokens, samples * seq);
    return openTokens(tokenizer, { tokens, heldOut }, reading, options);
  },
});

const tailOf = (tokens: Tokens | TokenFile, from: number) =>
  ArrayBuffer.isView(tokens) ? tokens.subarray(from) : tokens.from(from);

/** Opens documents; those after the first `samples` are held out. */
function openDocuments(
  tokenizer: AnyTokenizer | undefined,
  { tokens, lengths }: { tokens: Tokens | TokenFile; lengths: Uint32Array },
  samples: number,
  reading: Reading,
  options: DataOptions,
): OpenedData {
  const { arePairs, lengths: inEighths, groupByLength, microBatch, seed } = options;
  const at = samples * (arePairs ? 2 : 1), how = { arePairs, inEighths };
  const documents = { ...how, lengths: lengths.subarray(0, at) };
  const heldOut = tailOf(tokens, tokensIn(documents.lengths));
  const rest = { ...how, lengths: lengths.subarray(at) };
  const order = groupByLength && groupedOrder(sampleLengths(documents), microBatch, seed);
  const parts = { tokens, heldOut, documents, rest };
  return openTokens(tokenizer, parts, order ? { order } : reading, options);
}

/** Encodes the documents of a text, between which are empty lines; pairs have a tab between them. */
async function encodeDocuments(
  { encode }: AnyTokenizer,
  content: string,
  { seq, arePairs }: DataOptions,
): Promise<{ tokens: Tokens; lengths: Uint32Array }> {
  const encoded: Tokens[] = [], parts = content.split(arePairs ? /\n/ : /\n\s*\n/);
  const texts = parts.filter((one) => one.trim()).flatMap((one, i) => {
    const pair = arePairs ? one.split("\t") : [one], must = `line ${i + 1} must have one tab`;
    assertInput(pair.length === 2 || !arePairs, "train on pairs", must, pair.length - 1);
    return pair;
  });
  for (const text of texts) {
    const ids = await encode(text.trim()), most = arePairs ? ids.length : seq;
    // A longer document is several samples.
    for (let from = 0; from < ids.length; from += most) encoded.push(ids.slice(from, from + most));
  }
  const lengths = Uint32Array.from(encoded, ({ length }) => length);
  const tokens = new Uint32Array(tokensIn(lengths));
  let at = 0;
  for (const ids of encoded) tokens.set(ids, (at += ids.length) - ids.length);
  return { tokens, lengths };
}

/** Returns the component of a text that Troupe provides. */
function storedText(name: TextName): DataComponent {
  const part = textComponent(name, ({ announce }) => loadText(name, announce));
  return defineData({ ...part, sha256: TEXT_SOURCES[name].sha256 });
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
      const { tokens: all, lengths } = options.lengths
        ? await encodeDocuments(tokenizer, content, options)
        : { tokens: await tokenizer.encode(content), lengths: undefined };
      if ("close" in tokenizer) tokenizer.close();
      checkTokens(all, options.vocab ?? tokenizer.vocabularySize);
      if (lengths) {
        const samples = Math.floor(0.9 * lengths.length / (options.arePairs ? 2 : 1));
        const must = "there must be at least two";
        assertInput(samples > 0, "hold documents out", must, lengths.length);
        const order = shuffledOrder(samples, seed);
        return openDocuments(tokenizer, { tokens: all, lengths }, samples, { order }, options);
      }
      const { train: tokens, heldOut } = splitTokens(all, seq);
      const order = shuffledOrder(rowCount(tokens.length, seq), seed);
      return openTokens(tokenizer, { tokens, heldOut }, { order }, options);
    },
  });
}

type AnyTokenizer = Tokenizer | FileTokenizer;

type Reading = { order: RowOrder } | { steps: number; lastIsSmaller: true };

function openTokens(
  tokenizer: AnyTokenizer | undefined,
  { tokens, heldOut, documents, rest }:
    & Record<"tokens" | "heldOut", Tokens | TokenFile>
    & { documents?: Documents; rest?: Documents },
  reading: Reading,
  { seq, vocab = tokenizer!.vocabularySize, microBatch, microBatches, replicas }: DataOptions,
): OpenedData {
  const cut = { seq, vocabularySize: vocab, microBatches, replicas };
  return {
    sizes: { vocab },
    ...tokenizer && { tokenizer },
    batches: tokenBatches({ ...cut, microBatch, tokens, documents, ...reading }),
    heldOut: (samples) =>
      heldOutBatches({ ...cut, microBatch: samples, tokens: heldOut, documents: rest }),
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
