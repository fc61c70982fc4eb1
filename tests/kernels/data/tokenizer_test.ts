import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import { bytesTokenizer, gpt2Tokenizer } from "../../../kernels/data/tokenizer.ts";

const text = fc.string({ unit: "binary", maxLength: 60 });

for (const make of [bytesTokenizer, gpt2Tokenizer]) {
  const name = make === bytesTokenizer ? "bytes" : "gpt2";

  Deno.test(`${name}: every text comes back, and every id is in the vocabulary`, async () => {
    const tokenizer = await make();
    assert.equal(tokenizer.name, name);
    fc.assert(
      fc.property(text, (text) => {
        const ids = tokenizer.encode(text);
        assert.ok(ids.every((id) => id < tokenizer.vocabularySize));
        assert.equal(tokenizer.decode(ids), text);
      }),
    );
  });

  Deno.test(`${name}: ids cut anywhere, or never learned, still read as text`, async () => {
    const { encode, decode } = await make();
    fc.assert(
      fc.property(text, fc.nat(), fc.nat(), (text, from, to) => {
        const ids = encode(text);
        assert.equal(typeof decode(ids.subarray(from % (ids.length + 1))), "string");
        assert.equal(typeof decode(ids.subarray(0, to % (ids.length + 1))), "string");
      }),
    );
    assert.equal(decode([...encode("a"), 65000, ...encode("b")]), "a\uFFFDb");
    assert.equal(decode([]), "");
    const cut = encode("😀").subarray(0, -1), first = decode(cut);
    assert.match(first, /\uFFFD$/);
    assert.equal(decode(cut), first, "nothing is kept for the next call");
  });

  Deno.test(`${name}: text that looks like a special token is text`, async () => {
    const { encode, decode } = await make();
    const ids = encode("a<|endoftext|>b");
    assert.ok(ids.length >= 7 && !ids.includes(50256 as never));
    assert.equal(decode(ids), "a<|endoftext|>b");
  });
}

Deno.test("bytes: a character that is cut reads as U+FFFD", () => {
  const { encode, decode } = bytesTokenizer();
  assert.equal(decode(encode("a😀b").subarray(0, 3)), "a\uFFFD");
  assert.equal(decode(encode("😀b").subarray(2)), "\uFFFD\uFFFDb");
  assert.equal(decode(encode("\uFEFFb")), "\uFEFFb");
});

Deno.test("gpt2: ids are those of GPT-2", async () => {
  const { encode, vocabularySize } = await gpt2Tokenizer();
  assert.equal(vocabularySize, 50257);
  assert.deepEqual([...encode("Hello, world!\n")], [15496, 11, 995, 0, 198]);
});
