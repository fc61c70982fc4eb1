/**
 * Rules of Hugging Face's tokenizers that the library applies in another way, which changes ids
 * without an error.
 *
 * @module
 */

import {
  BertNormalizer,
  BertPreTokenizer,
  DigitsPreTokenizer,
  LowercaseNormalizer,
  MetaspaceDecoder,
  PrecompiledNormalizer,
  PunctuationPreTokenizer,
  SplitPreTokenizer,
  Unigram,
  WhitespacePreTokenizer,
  WhitespaceSplitPreTokenizer,
} from "@huggingface/tokenizers";

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

/** Returns whether a part of a text joins the part before it, by whether each is a match. */
const JOINS: Readonly<Record<string, (before: boolean, isMatch: boolean) => boolean>> = {
  Contiguous: (before, isMatch) => before === isMatch,
  MergedWithPrevious: (before, isMatch) => !before && isMatch,
  MergedWithNext: (before, isMatch) => before && !isMatch,
};

/** Splits a text at the matches of a pattern. */
function split(text: string, pattern: RegExp, behavior = "Isolated", invert = false): string[] {
  const parts: string[] = [];
  let at = 0, before: boolean | undefined;
  const add = (end: number, isFound: boolean) => {
    const part = text.slice(at, end), isMatch = isFound !== invert;
    at = end;
    if (part === "" || (isMatch && behavior === "Removed")) return;
    if (before !== undefined && JOINS[behavior]?.(before, isMatch)) parts.push(parts.pop() + part);
    else parts.push(part);
    before = isMatch;
  };
  // Unlike `matchAll`, this refuses a pattern that is null.
  for (const { index, 0: { length } } of pattern[Symbol.matchAll](text)) {
    add(index, false);
    add(index + length, true);
  }
  add(text.length, false);
  return parts;
}

const WORD = /[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]+/gu;

/** Returns the parts between spaces; of JavaScript, U+FEFF is one and U+0085 none. */
const withoutSpaces = (text: string): string[] => text.match(/\P{White_Space}+/gu) ?? [];

const PUNCTUATION = /[\p{P}$+<=>^`|~]/gu;

const CHINESE =
  /[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u{20000}-\u{2a6df}\u{2a700}-\u{2b81f}\u{2b920}-\u{2ceaf}\u{2f800}-\u{2fa1f}]/gu;

/** Writes a capital sigma as it is within a word, since `toLowerCase` has another at its end. */
const withSigma = (text: string): string => text.replaceAll("Σ", "σ");

/**
 * Returns a function that replaces characters by a map of SentencePiece: a double array of the bytes
 * of keys, and then the texts that they become, each ended by a zero.
 */
function characterMap(base64: string): (text: string) => string {
  const bytes = Uint8Array.fromBase64(base64);
  const end = 4 + new DataView(bytes.buffer).getUint32(0, true), texts = bytes.subarray(end);
  const units = new Uint32Array(bytes.slice(4, end).buffer);
  const offsetOf = (unit: number) => unit >>> 10 << (unit >>> 6 & 8);
  /** Returns the text of the shortest key that a text begins with. */
  const find = (text: string) => {
    let node = offsetOf(units[0]!);
    for (const byte of utf8(text)) {
      node ^= byte;
      const unit = units[node]!;
      if ((unit & 0x8000_00ff) !== byte) return undefined;
      node ^= offsetOf(unit);
      const start = units[node]! & 0x7fff_ffff;
      if (unit >>> 8 & 1) {
        return new TextDecoder().decode(texts.subarray(start, texts.indexOf(0, start)));
      }
    }
  };
  const known = new Map<string, string>(), characters = new Intl.Segmenter("und");
  const change = (character: string) =>
    (utf8(character).length < 6 ? find(character) : undefined) ??
      Array.from(character, (point) => find(point) ?? point).join("");
  const changed = ({ segment }: Intl.SegmentData) => known.getOrInsertComputed(segment, change);
  return (text) => Array.from(characters.segment(text), changed).join("");
}

const maps = new Map<string, ReturnType<typeof characterMap>>();

/** Returns the tokens of the bytes of a text. */
const byteTokens = (text: string) =>
  Array.from(utf8(text), (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);

interface PreTokenizerConfig {
  readonly type: string;
  readonly pretokenizers?: readonly PreTokenizerConfig[];
  readonly split?: boolean;
  readonly replacement?: string;
}

/**
 * Returns a pre-tokenizer that also splits a text before each space, where it is a Metaspace.
 *
 * @param config of `tokenizer.json`.
 */
export function splittingSpaces(config: PreTokenizerConfig): PreTokenizerConfig {
  const { type, pretokenizers, replacement = "▁" } = config;
  if (pretokenizers) return { ...config, pretokenizers: pretokenizers.map(splittingSpaces) };
  if (type !== "Metaspace" || config.split === false) return config;
  const parts = { type: "Split", pattern: { String: replacement }, behavior: "MergedWithNext" };
  return { type: "Sequence", pretokenizers: [config, parts] };
}

/** Gives the classes of the library these rules. */
export function applyRules(): void {
  const { normalize } = BertNormalizer.prototype;
  WhitespacePreTokenizer.prototype.pre_tokenize_text = (text) =>
    split(text, WORD).flatMap(withoutSpaces);
  WhitespaceSplitPreTokenizer.prototype.pre_tokenize_text = withoutSpaces;
  BertPreTokenizer.prototype.pre_tokenize_text = (text) =>
    withoutSpaces(text).flatMap((part) => split(part, PUNCTUATION));
  DigitsPreTokenizer.prototype.pre_tokenize_text = function (text) {
    return split(text, this.config.individual_digits ? /\p{N}/gu : /\p{N}+/gu);
  };
  PunctuationPreTokenizer.prototype.pre_tokenize_text = function (text) {
    return split(text, PUNCTUATION, this.config.behavior);
  };
  SplitPreTokenizer.prototype.pre_tokenize_text = function (text) {
    return split(text, this.pattern!, this.config.behavior, this.config.invert);
  };
  LowercaseNormalizer.prototype.normalize = (text) => withSigma(text).toLowerCase();
  // The library declares this method as private.
  BertNormalizer.prototype["tokenize_chinese_chars"] = (text: string) =>
    text.replace(CHINESE, " $& ");
  BertNormalizer.prototype.normalize = function (text) {
    return normalize.call(this, this.config.lowercase ? withSigma(text) : text);
  };
  PrecompiledNormalizer.prototype.normalize = function (text) {
    return maps.getOrInsertComputed(this.charsmap, characterMap)(text);
  };
  MetaspaceDecoder.prototype.decode_chain = function (tokens) {
    const { prepend_scheme: scheme } = this.config as { readonly prepend_scheme?: string };
    const first = scheme === "never" ? " " : "";
    return tokens.map((token, i) => token.replaceAll(this.replacement, i > 0 ? " " : first));
  };
  Unigram.prototype.encode = function (words) {
    const { byte_fallback } = this.config as { readonly byte_fallback?: boolean };
    const tokens = words.flatMap((word) => this.tokenize(word));
    const isKnown = (token: string) => this.tokens_to_ids.has(token);
    return !byte_fallback ? tokens : tokens.flatMap((token) => {
      const bytes = isKnown(token) ? [] : byteTokens(token);
      return bytes.length > 0 && bytes.every(isKnown) ? bytes : token;
    });
  };
}
