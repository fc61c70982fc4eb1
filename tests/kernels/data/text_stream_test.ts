import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import {
  bytesTokenizer,
  bytesTokenizerJson,
  gpt2Tokenizer,
  parseTokenizer,
  textStream,
} from "../../../kernels/mod.ts";

const own = () =>
  parseTokenizer(new TextEncoder().encode(JSON.stringify(bytesTokenizerJson())), "its file");

for (const make of [bytesTokenizer, gpt2Tokenizer, own]) {
  const name = make === bytesTokenizer ? "bytes" : make === own ? "tokenizer.json" : "gpt2";

  Deno.test(`${name}: pieces of any ids are together their text`, async () => {
    const tokenizer = await make();
    const { vocabularySize, encode, decode } = tokenizer;
    const text = fc.string({ unit: "binary", maxLength: 20 }).map((text) => [...encode(text)]);
    const any = fc.array(fc.nat(vocabularySize + 10), { maxLength: 20 });
    fc.assert(fc.property(text, any, text, (...parts) => {
      const ids = parts.flat(), { push, end } = textStream(tokenizer);
      assert.equal(ids.map((id) => push([id])).join("") + end(), decode(ids));
    }));
  });

  Deno.test(`${name}: a character appears when its last byte has come, and not before`, async () => {
    const tokenizer = await make(), { push, end } = textStream(tokenizer);
    const [first, ...rest] = [...tokenizer.encode("a😀b")];
    const pieces = [push([first!]), ...rest.map((id) => push([id]))];
    assert.deepEqual(pieces.filter((piece) => piece !== ""), ["a", "😀", "b"]);
    assert.equal(end(), "");
  });
}

Deno.test("ids are read behind those before them, as some tokenizers drop a text's first space", () => {
  const { push, end } = textStream({
    decode: (ids) => [...ids].map((id) => ` ${id}`).join("").slice(1),
  });
  assert.deepEqual([push([1, 2]), push([3]), push([4]), end()], ["1 2", " 3", " 4", ""]);
});
