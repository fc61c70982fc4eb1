/** Rules of Hugging Face's tokenizers: the ids are those of its library in Rust. */

import assert from "node:assert/strict";
import { Tokenizer, Unigram } from "@huggingface/tokenizers";
import { applyRules, splittingSpaces } from "../../../kernels/data/tokenizer_rules.ts";

/** Returns a map of characters of SentencePiece; its keys differ in their first byte. */
function charsmapOf(map: Readonly<Record<string, string>>): string {
  const units = new Uint32Array(4096), utf8 = new TextEncoder();
  let blocks = 1, texts = "";
  units[0] = 256 << 10;
  for (const [key, text] of Object.entries(map)) {
    const bytes = utf8.encode(key), last = bytes.length - 1;
    let block = 256;
    for (const [i, byte] of bytes.entries()) {
      const unit = block ^ byte;
      block = 256 * ++blocks;
      units[unit] = byte | (i === last ? 256 : 0) | (unit ^ block) << 10;
    }
    units[block] = 2 ** 31 + texts.length;
    texts += `${text}\0`;
  }
  const size = Uint32Array.of(units.byteLength);
  const parts = [size, units].map(({ buffer }) => new Uint8Array(buffer));
  return new Uint8Array([...parts, utf8.encode(texts)].flatMap((part) => [...part])).toBase64();
}

const CHARACTERS = [..."abcé٣²,-σς他\u0085\ufeff\u200d"];
const WORDS = ["[UNK]", ...CHARACTERS, ...CHARACTERS.map((one) => `##${one}`)];
const MODELS = {
  words: {
    type: "WordPiece",
    unk_token: "[UNK]",
    continuing_subword_prefix: "##",
    max_input_chars_per_word: 100,
    vocab: Object.fromEntries(WORDS.map((token, id) => [token, id])),
  },
  pieces: {
    type: "Unigram",
    unk_id: 0,
    vocab: ["[UNK]", "▁▁", "▁", "a", "b", "<0xC3>", "<0x89>"].map((token, i) => [token, -1 - i]),
    byte_fallback: true,
  },
};

const metaspace = (prepend_scheme: string) => ({
  type: "Metaspace",
  replacement: "▁",
  prepend_scheme,
});
const bert = { type: "BertNormalizer", clean_text: false, handle_chinese_chars: true };
const pattern = { Regex: "," };
const charsmap = charsmapOf({ "A": "a", "\r": " ", "ﬁ": "b", "e\u0301": "c" });

/** Changes of an empty tokenizer, a text, and its ids. */
type Case = [
  model: keyof typeof MODELS,
  change: Readonly<Record<string, unknown>>,
  text: string,
  ids: readonly number[],
];

const CASES: readonly Case[] = [
  ["words", { pre_tokenizer: { type: "Whitespace" } }, "aéb,-\u0085é", [1, 18, 16, 7, 22, 4]],
  ["words", { pre_tokenizer: { type: "WhitespaceSplit" } }, "a\u0085\ufeffb", [1, 13, 16]],
  ["words", { pre_tokenizer: { type: "BertPreTokenizer" } }, "a\u0085b,,-\ufeff", [
    1,
    2,
    7,
    7,
    8,
    13,
  ]],
  ["words", { pre_tokenizer: { type: "Digits", individual_digits: true } }, "a٣٣²b", [
    1,
    5,
    5,
    6,
    2,
  ]],
  ["words", { pre_tokenizer: { type: "Digits", individual_digits: false } }, "a٣٣b", [1, 5, 19, 2]],
  ["words", { pre_tokenizer: { type: "Punctuation" } }, "a,-b", [1, 7, 8, 2]],
  ["words", { pre_tokenizer: { type: "Punctuation", behavior: "Contiguous" } }, "a,,b", [
    1,
    7,
    21,
    2,
  ]],
  ["words", { pre_tokenizer: { type: "Punctuation", behavior: "Removed" } }, "a,,b", [1, 2]],
  [
    "words",
    { pre_tokenizer: { type: "Split", pattern, behavior: "MergedWithPrevious", invert: false } },
    "a,,b",
    [1, 21, 7, 2],
  ],
  [
    "words",
    { pre_tokenizer: { type: "Split", pattern, behavior: "MergedWithNext", invert: false } },
    "a,,b",
    [1, 7, 7, 16],
  ],
  [
    "words",
    { pre_tokenizer: { type: "Split", pattern, behavior: "Isolated", invert: true } },
    "a,b",
    [1, 7, 2],
  ],
  ["words", { normalizer: { type: "Lowercase" } }, "ΣΣ", [9, 23]],
  ["words", { normalizer: { ...bert, lowercase: true } }, "ΣΣ", [9, 23]],
  [
    "words",
    { normalizer: { ...bert, lowercase: false }, pre_tokenizer: { type: "WhitespaceSplit" } },
    "a𠀀b他b",
    [1, 0, 2, 11, 2],
  ],
  [
    "words",
    {
      normalizer: { type: "Precompiled", precompiled_charsmap: charsmap },
      pre_tokenizer: { type: "WhitespaceSplit" },
    },
    "A ﬁ\r\ne\u0301 a\u200db",
    [1, 2, 3, 1, 28, 16],
  ],
  ["pieces", { pre_tokenizer: metaspace("always") }, "a  b", [2, 3, 2, 2, 4]],
  ["pieces", { pre_tokenizer: { ...metaspace("always"), split: false } }, "a  b", [2, 3, 1, 4]],
  [
    "pieces",
    { pre_tokenizer: { type: "Sequence", pretokenizers: [metaspace("first")] } },
    "a  b",
    [2, 3, 2, 2, 4],
  ],
  ["pieces", {}, "aÉa他", [3, 5, 6, 3, 0]],
];

const EMPTY = { normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null };

applyRules();

Deno.test("ids are those of Hugging Face's tokenizers", () => {
  for (const [model, { pre_tokenizer = null, ...change }, text, ids] of CASES) {
    const split = pre_tokenizer && splittingSpaces(pre_tokenizer as { type: string });
    const json = {
      ...EMPTY,
      added_tokens: [],
      ...change,
      pre_tokenizer: split,
      model: MODELS[model],
    };
    const found = new Tokenizer(json as never, {}).encode(text).ids;
    assert.deepEqual(found, ids, JSON.stringify([change, pre_tokenizer, text]));
  }
});

Deno.test("a text without spaces may have more tokens than a call has arguments", () => {
  const model = { config: {}, tokenize: () => Array(200_000).fill("a") };
  assert.equal(Unigram.prototype.encode.call(model as never, ["a…"]).length, 200_000);
});

Deno.test("a first space is decoded unless the tokenizer adds one", () => {
  const texts = ["always", "first", "never"].map((scheme) => {
    const json = { ...EMPTY, added_tokens: [], decoder: metaspace(scheme), model: MODELS.pieces };
    return new Tokenizer(json as never, {}).decode([1, 3, 2, 4]);
  });
  assert.deepEqual(texts, ["a b", "a b", "  a b"]);
});
