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
  STRING_VOCABULARY,
  TEXT_SHA256,
  type TextName,
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
    const used = steps * replicas * microBatches * microBatch * seq;
    const cut = file.known
      ? cutTokens(await openTokenFile(file.known), (all) => all.from(used))
      : cutTokens(decodeTokens(file.content, file.path), (all) => all.subarray(used));
    // With a vocabulary but without a tokenizer, ids have no text.
    const hasText = options.tokenizer !== undefined || options.vocab === undefined;
    const tokenizer = hasText ? await tokenizerOf(options) : undefined;
    return openTokens(tokenizer, cut, { steps, lastIsSmaller: true }, options);
  },
});

const cutTokens = <T extends Tokens | TokenFile>(tokens: T, heldOut: (tokens: T) => T) => ({
  tokens,
  heldOut: heldOut(tokens),
});

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
      const encoded = await tokenizer.encode(await load(options));
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
