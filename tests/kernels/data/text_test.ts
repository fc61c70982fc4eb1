import assert from "node:assert/strict";
import { loadText, TEXT_NAMES, type TextName } from "../../../kernels/data/text.ts";

Deno.test("the built-in texts are whole and in order", async () => {
  const sotu = await loadText("sotu");
  assert.equal(sotu.length, 10_760_506);
  assert.ok(sotu.startsWith("Fellow-Citizens of the Senate and House of Representatives: In meet"));
  assert.ok(sotu.indexOf("four score") < sotu.lastIndexOf("pandemic"), "1790 before 2021");
  const mobyDick = await loadText("moby-dick");
  assert.equal(mobyDick.length, 1_190_317);
  assert.ok(mobyDick.indexOf("CHAPTER 99.") < mobyDick.indexOf("CHAPTER 100."));
});

Deno.test("a text of an unknown name is refused with the names there are", async () => {
  assert.deepEqual(TEXT_NAMES, ["sotu", "moby-dick"]);
  for (const name of ["shakespeare", "toString", ""]) {
    await assert.rejects(
      loadText(name as TextName),
      new RegExp(`^TypeError: .* one of sotu, moby-dick, received "${name}"$`),
    );
  }
});
