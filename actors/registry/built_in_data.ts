/**
 * `--data sotu` and `moby-dick`, `--text FILE` and `--tokens FILE`: rows of tokens, each of which
 * predicts the next.
 *
 * @module
 */

import {
  bytesTokenizer,
  checkTokens,
  decodeText,
  decodeTokens,
  DIGIT_PIXELS,
  digitBatches,
  DIGITS_SHA256,
  type FileTokenizer,
  gpt2Tokenizer,
  heldOutBatches,
  loadDigits,
  loadText,
  noisyDigitBatches,
  openTokenFile,
  rowCount,
  type RowOrder,
  shuffledOrder,
  splitTokens,
  STRING_VOCABULARY,
  stringBatches,
  type StringTask,
  TEXT_SHA256,
  type TextName,
  tokenBatches,
  type TokenFile,
  type Tokenizer,
  type Tokens,
} from "../../kernels/mod.ts";
import { type DataComponent, type DataOptions, defineData, type OpenedData } from "./component.ts";

/** What models may want to know of a digit: its pixels are a picture, row by row. */
const SIZES = { inputs: DIGIT_PIXELS, channels: 1, height: 28, width: 28 };

/** Of the noise; ink is 1, paper 0. */
const DEVIATION = 0.5;

/** The same in all runs, so that they can be compared. No run has that seed. */
const HELD_OUT_NOISE = { deviation: DEVIATION, seed: -1 };

/** Digits of MNIST, and which they are. */
export const mnist: DataComponent = defineData({
  name: "mnist",
  version: "1",
  sha256: DIGITS_SHA256,
  async open({ microBatch, microBatches, replicas, seed, announce }) {
    const { train, heldOut } = await loadDigits(announce);
    const order = shuffledOrder(train.labels.length, seed);
    return {
      sizes: { ...SIZES, classes: 10 },
      batches: digitBatches(train, { microBatch, microBatches, replicas, order }),
      heldOut: (samples) => [...digitBatches(heldOut, { microBatch: samples, microBatches: 1 })],
    };
  },
});

/** Digits of MNIST with noise, and without. */
export const noisy: DataComponent = defineData({
  name: "noisy-mnist",
  version: "1",
  sha256: DIGITS_SHA256,
  async open({ microBatch, microBatches, replicas, seed, announce }) {
    const { train, heldOut } = await loadDigits(announce);
    const order = shuffledOrder(train.labels.length, seed), noise = { deviation: DEVIATION, seed };
    const plan = { microBatch, microBatches, replicas, order };
    return {
      sizes: SIZES,
      batches: noisyDigitBatches(train, plan, noise),
      heldOut: (samples) => [
        ...noisyDigitBatches(heldOut, { microBatch: samples, microBatches: 1 }, HELD_OUT_NOISE),
      ],
    };
  },
});

/** Strings of digits to be sorted. */
export const sort: DataComponent = stringComponent("sort");

/** Strings of digits to be reversed. */
export const reverse: DataComponent = stringComponent("reverse");

/** Strings that are held out. */
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
        heldOut: (samples) => {
          const plan = {
            microBatch: samples,
            microBatches: 1,
            steps: Math.ceil(HELD_OUT / samples),
          };
          return [...stringBatches({ ...options, isHeldOut: true }, plan)];
        },
      };
    },
  });
}

/** The State of the Union addresses. */
export const sotu: DataComponent = storedText("sotu");

/** Moby Dick. */
export const mobyDick: DataComponent = storedText("moby-dick");

/** A text of one's own, in UTF-8. */
export const text: DataComponent = textComponent("text", (options) => {
  const { content, path } = fileOf(options, "text");
  return decodeText(content, path);
});

/** Token ids of one's own, read in order; what the run does not reach is held out. */
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
    // Ids of a vocabulary that was given are whatever they are, unless somebody says what made them.
    const isUnsaid = options.tokenizer === undefined && options.vocab !== undefined;
    const tokenizer = isUnsaid ? undefined : await tokenizerOf(options);
    return openTokens(tokenizer, cut, { steps, lastIsSmaller: true }, options);
  },
});

const cutTokens = <T extends Tokens | TokenFile>(tokens: T, heldOut: (tokens: T) => T) => ({
  tokens,
  heldOut: heldOut(tokens),
});

/** A text that comes with Troupe. */
function storedText(name: TextName): DataComponent {
  const part = textComponent(name, ({ announce }) => loadText(name, announce));
  return defineData({ ...part, sha256: TEXT_SHA256[name] });
}

/** Text that is read row by row, in another order in each epoch. */
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
