/** Tokenizers out of `tokenizer.json`, and those of Troupe written as one. */

import assert from "node:assert/strict";
import {
  bytesTokenizer,
  bytesTokenizerJson,
  gpt2Tokenizer,
  gpt2TokenizerJson,
  loadText,
  parseTokenizer,
  textStream,
  type Tokenizer,
} from "../../../kernels/mod.ts";
import { sha256Of } from "../../hugging_face.ts";

const parse = (json: unknown, path = "tokenizer.json") =>
  parseTokenizer(new TextEncoder().encode(JSON.stringify(json)), path);

const SAMPLES = [
  "Hello world, it's   1234 o'clock\n\n\tnaïve café 😀 日本語",
  "",
  " leading and trailing ",
  "\u0000\u001f\u007f\u00ad\u00a0",
];

async function assertSame(read: Tokenizer, own: Tokenizer): Promise<void> {
  const text = (await loadText("moby-dick")).slice(0, 50_000);
  for (const sample of [...SAMPLES, text]) {
    const ids = own.encode(sample);
    assert.deepEqual([...read.encode(sample)], [...ids]);
    assert.equal(read.decode(ids), sample);
  }
}

Deno.test("GPT-2's tokenizer as tokenizer.json has the same ids, and its special token besides", async () => {
  const read = await parse(await gpt2TokenizerJson());
  await assertSame(read, await gpt2Tokenizer());
  assert.deepEqual([read.vocabularySize, read.bos, read.eos], [50_257, 50_256, 50_256]);
  assert.deepEqual([...read.encode("a<|endoftext|>b")], [64, 50_256, 65]);
});

Deno.test("GPT-2's tokenizer is written with the merges that were published", async () => {
  const { model } = await gpt2TokenizerJson() as { model: { merges: string[] } };
  assert.deepEqual(model.merges.slice(0, 3), ["Ġ t", "Ġ a", "h e"]);
  assert.equal(model.merges.length, 50_000);
  const file = ["#version: 0.2", ...model.merges].map((line) => `${line}\n`).join("");
  // That of vocab.bpe, the file that OpenAI published.
  const published = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5";
  assert.equal(sha256Of(file), published);
});

Deno.test("bytes as tokenizer.json are the same bytes", async () => {
  const read = await parse(bytesTokenizerJson());
  await assertSame(read, bytesTokenizer());
  assert.deepEqual([read.vocabularySize, read.bos], [256, undefined]);
  assert.equal(read.decode([0xc3, 300, 72]), "\uFFFD\uFFFDH");
});

/** A small tokenizer with a template and special tokens, as those of other models have. */
const SMALL = {
  version: "1.0",
  added_tokens: [
    { id: 9, content: "<s>", special: true },
    { id: 10, content: "</s>", special: true },
  ],
  normalizer: { type: "Lowercase" },
  pre_tokenizer: { type: "Whitespace" },
  post_processor: {
    type: "TemplateProcessing",
    single: [{ SpecialToken: { id: "<s>", type_id: 0 } }, { Sequence: { id: "A", type_id: 0 } }],
    pair: [],
    special_tokens: { "<s>": { id: "<s>", ids: [9], tokens: ["<s>"] } },
  },
  decoder: null,
  model: {
    type: "BPE",
    vocab: { a: 0, b: 1, "?": 2, ab: 3 },
    merges: [["a", "b"]],
    unk_token: "?",
  },
};

Deno.test("a template, a normalizer and special tokens are those of the file", async () => {
  const read = await parse(SMALL);
  assert.deepEqual([...read.encode("AB z</s>b")], [9, 3, 2, 10, 1]);
  assert.deepEqual([read.vocabularySize, read.bos, read.eos], [11, 9, 10]);
  assert.equal(read.decode([9, 3, 1, 10]), "<s> ab b </s>");
  const { push, end } = textStream(read);
  assert.equal([9, 3, 1, 10].map((id) => push([id])).join("") + end(), read.decode([9, 3, 1, 10]));
});

Deno.test("what is no tokenizer is refused in one sentence, before its ids take memory", async () => {
  const model = (change: object) => ({ ...SMALL, model: { ...SMALL.model, ...change } });
  const cases: readonly [unknown, RegExp][] = [
    [[], /received nothing where a record must be$/],
    [{ ...SMALL, model: null }, /received null where a record must be$/],
    [model({ type: "Nope" }), /received a model of type "Nope"$/],
    [model({ vocab: { a: 2 ** 31 } }), /received the id 2147483648 of the token "a"$/],
    [model({ vocab: { a: -1 } }), /received the id -1 of the token "a"$/],
    [model({ vocab: { a: "0" } }), /received the id "0" of the token "a"$/],
    [model({ merges: "ab" }), /received config.merges.map is not a function$/],
    [{ ...SMALL, added_tokens: [{ id: 1e9, content: "x" }] }, /received the id 1000000000 of/],
    [{ ...SMALL, added_tokens: {} }, /received added_tokens that are no list$/],
    [{ ...SMALL, pre_tokenizer: { type: "Split", pattern: { Regex: "(" } } }, /regular expression/],
    [{ ...SMALL, decoder: undefined }, /received Tokenizer must contain a "decoder" property$/],
  ];
  for (const [json, message] of cases) {
    await assert.rejects(parse(json, "a.json"), (error: Error) => {
      assert.equal(error.name, "SyntaxError");
      assert.match(error.message, /^Cannot read a.json: it must be a tokenizer.json [^\n]*$/);
      assert.match(error.message, message);
      return true;
    });
  }
  const twice = new TextEncoder().encode('{"version": 1, "version": 2}');
  await assert.rejects(parseTokenizer(twice, "a.json"), /received the name "version" twice$/);
});
