/** Tokenizers: bytes, GPT-2's, and those out of `tokenizer.json`. */

import assert from "node:assert/strict";
import {
  bytesTokenizer,
  gpt2Tokenizer,
  loadText,
  parseTokenizer,
  textStream,
} from "../../../kernels/mod.ts";
import { bytesTokenizerJson, gpt2TokenizerJson } from "../../../kernels/data/tokenizer.ts";
import fc from "../../fast_check.ts";
import { sha256Of } from "../../hugging_face.ts";
import { assertRefused } from "../graph/refused.ts";
/** With a template and special tokens, as those of other models have. */
import SMALL from "./small_tokenizer.json" with { type: "json" };

const parse = (json: unknown, path = "tokenizer.json") =>
  parseTokenizer(new TextEncoder().encode(JSON.stringify(json)), path);

/** The text of ids, one by one. */
async function streamed(tokenizer: Parameters<typeof textStream>[0], ids: readonly number[]) {
  const { push, end } = textStream(tokenizer);
  return (await Array.fromAsync(ids, (id) => push([id]))).join("") + await end();
}

const GPT2 = gpt2Tokenizer(), GPT2_JSON = gpt2TokenizerJson();

const TOKENIZERS = {
  bytes: Promise.resolve(bytesTokenizer()),
  gpt2: GPT2,
  "tokenizer.json": parse(bytesTokenizerJson()),
};

const text = fc.string({ unit: "binary", maxLength: 60 });

for (const [name, made] of Object.entries(TOKENIZERS)) {
  Deno.test(`${name}: every text comes back, and pieces of any ids are together their text`, async () => {
    const tokenizer = await made, { encode, decode, vocabularySize } = tokenizer;
    const any = fc.array(fc.nat(vocabularySize + 10), { maxLength: 20 });
    await fc.assert(fc.asyncProperty(text, text, any, text, async (text, before, any, after) => {
      const own = await encode(text);
      const ids = [...await encode(before), ...any, ...await encode(after)];
      assert.ok(own.every((id) => id < vocabularySize));
      assert.equal(await decode(own), text);
      assert.equal(await streamed(tokenizer, ids), await decode(ids));
      assert.equal(typeof await decode(own.subarray(1, -1)), "string");
    }));
  });

  Deno.test(`${name}: a character appears after its last byte, and an incomplete one is U+FFFD`, async () => {
    const tokenizer = await made, { encode, decode } = tokenizer;
    const { push, end } = textStream(tokenizer);
    const pieces = await Array.fromAsync(await encode("a😀b"), (id) => push([id]));
    const seen = pieces.filter((piece) => piece !== "");
    assert.deepEqual([...seen, await end()], ["a", "😀", "b", ""]);
    assert.equal(await decode([...await encode("a"), 65000, ...await encode("b")]), "a\uFFFDb");
    assert.equal(await decode([]), "");
    const cut = (await encode("😀")).subarray(0, -1), first = await decode(cut);
    assert.match(first, /\uFFFD$/);
    assert.equal(await decode(cut), first, "nothing is kept for the next call");
    if (name === "gpt2") return;
    assert.equal(await decode((await encode("a😀b")).subarray(0, 3)), "a\uFFFD");
    assert.equal(await decode((await encode("😀b")).subarray(2)), "\uFFFD\uFFFDb");
    assert.equal(await decode(await encode("\uFEFFb")), "\uFEFFb");
  });

  Deno.test(`${name}: text that looks like a special token is text`, async () => {
    const { encode, decode } = await made, ids = await encode("a<|endoftext|>b");
    assert.ok(ids.length >= 7 && !ids.includes(50256 as never));
    assert.equal(await decode(ids), "a<|endoftext|>b");
  });
}

Deno.test("the ids of gpt2 are GPT-2's", async () => {
  const { name, encode, vocabularySize } = await GPT2;
  assert.deepEqual([name, vocabularySize], ["gpt2", 50257]);
  assert.deepEqual([...encode("Hello, world!\n")], [15496, 11, 995, 0, 198]);
});

Deno.test("ids are decoded after earlier ids, because some tokenizers drop the first space of a text", async () => {
  const decode = (ids: Iterable<number>) => Array.from(ids, (id) => ` ${id}`).join("").slice(1);
  const { push, end } = textStream({ decode });
  const pieces = await Array.fromAsync([[1, 2], [3], [4]], push);
  assert.deepEqual([...pieces, await end()], ["1 2", " 3", " 4", ""]);
});

const SAMPLES = [
  "Hello world, it's   1234 o'clock\n\n\tnaïve café 😀 日本語",
  "",
  " leading and trailing ",
  "\u0000\u001f\u007f\u00ad\u00a0",
];

Deno.test("tokenizers written as tokenizer.json have the same ids, and GPT-2's special token", async () => {
  const bytes = await TOKENIZERS["tokenizer.json"], gpt2 = await parse(await GPT2_JSON);
  const moby = (await loadText("moby-dick")).slice(0, 10_000);
  for (const [read, own] of [[bytes, bytesTokenizer()], [gpt2, await GPT2]] as const) {
    for (const sample of [...SAMPLES, moby]) {
      const ids = own.encode(sample);
      assert.deepEqual([...await read.encode(sample)], [...ids]);
      assert.equal(await read.decode(ids), sample);
    }
  }
  assert.deepEqual([gpt2.vocabularySize, gpt2.bos, gpt2.eos], [50_257, 50_256, 50_256]);
  assert.deepEqual([...await gpt2.encode("a<|endoftext|>b")], [64, 50_256, 65]);
  assert.deepEqual([bytes.vocabularySize, bytes.bos], [256, undefined]);
  assert.equal(await bytes.decode([0xc3, 300, 72]), "\uFFFD\uFFFDH");
});

Deno.test("GPT-2's tokenizer.json has the published merges", async () => {
  const { model: { merges } } = await GPT2_JSON as { model: { merges: string[] } };
  assert.equal(merges.length, 50_000);
  const file = ["#version: 0.2", ...merges].map((line) => `${line}\n`).join("");
  // That of vocab.bpe, the file that OpenAI published.
  const published = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5";
  assert.equal(sha256Of(file), published);
});

Deno.test("the template, normalizer and special tokens of the file are used", async () => {
  const read = await parse(SMALL), ids = [9, 3, 1, 10];
  assert.deepEqual([...await read.encode("AB z</s>b")], [9, 3, 2, 10, 1]);
  const spaced = { type: "Metaspace", replacement: "b", prepend_scheme: "never" };
  const split = await parse({ ...SMALL, pre_tokenizer: spaced });
  assert.deepEqual([...await split.encode("a a")], [9, 0, 1, 0], "split before each b");
  const none = await parse({ ...SMALL, model: { ...SMALL.model, unk_token: "none" } });
  await assert.rejects(none.encode("ac"), /received no token for "none", and no unknown one$/);
  assert.deepEqual([read.vocabularySize, read.bos, read.eos], [11, 9, 10]);
  assert.equal(await read.decode(ids), "<s> ab b </s>");
  assert.equal(await streamed(read, ids), await read.decode(ids));
});

Deno.test("a text that takes exponential time is refused, and the next text is encoded", async () => {
  const pattern = { Regex: "^(a+)+$" };
  const json = { ...SMALL, pre_tokenizer: { type: "Split", pattern, behavior: "Isolated" } };
  const read = await parseTokenizer(new TextEncoder().encode(JSON.stringify(json)), "a.json", 500);
  await assert.rejects(read.encode(`${"a".repeat(60)}?`), {
    name: "RangeError",
    message: "Cannot use a.json: it must take at most 1 s for a text of 61 characters, received " +
      "more; a regular expression of it may take exponential time",
  });
  const again = [read.encode("ab"), read.decode([3])];
  read.close();
  const found = await Promise.all([...again, read.decode([1])]);
  assert.deepEqual(found, [Uint16Array.of(9, 3), "ab", "b"]);
});

Deno.test("files that are not tokenizers are refused in one sentence, before their ids take memory", async () => {
  const model = (change: object) => ({ model: { ...SMALL.model, ...change } });
  const twice = new TextEncoder().encode('{"version": 1, "version": 2}');
  const changes = [
    ...[null, { ...SMALL.model, type: "Nope" }].map((model) => ({ model })),
    ...[2 ** 31, -1, "0"].map((id) => model({ vocab: { a: id } })),
    model({ merges: "ab" }),
    model({ continuing_subword_prefix: "##" }),
    ...[[{ id: 1e9, content: "x" }], {}].map((added_tokens) => ({ added_tokens })),
    ...[{ Regex: "(" }, {}].map((pattern) => ({ pre_tokenizer: { type: "Split", pattern } })),
    { decoder: undefined },
  ];
  await assertRefused("tokenizer_json", [
    ["[]", () => parse([], "a.json")],
    ...changes.map((change) => [change, () => parse({ ...SMALL, ...change }, "a.json")] as const),
    ["a name twice", () => parseTokenizer(twice, "a.json")],
  ]);
});
