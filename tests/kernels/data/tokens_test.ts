import assert from "node:assert/strict";
import { checkTokens, readTokens } from "../../../kernels/data/tokens.ts";

Deno.test("a file of 16-bit tokens is read in little-endian order", async () => {
  const path = new URL("../../fixtures/gpt2/tokens.bin", import.meta.url).pathname;
  const tokens = await readTokens(path);
  const bytes = await Deno.readFile(path);
  assert.equal(tokens.length, bytes.length / 2);
  assert.ok(tokens.every((token, i) => token === bytes[2 * i]! + 256 * bytes[2 * i + 1]!));
  checkTokens(tokens, 96);
});

Deno.test("a file of an odd size is refused", async () => {
  const path = await Deno.makeTempFile();
  try {
    await Deno.writeFile(path, new Uint8Array(5));
    await assert.rejects(readTokens(path), (error: Error) => {
      assert.ok(error instanceof RangeError);
      assert.ok(error.message.includes(path));
      return /size must be even .* received 5 bytes$/.test(error.message);
    });
  } finally {
    await Deno.remove(path);
  }
});

Deno.test("an empty file holds no tokens", async () => {
  const path = await Deno.makeTempFile();
  try {
    assert.deepEqual(await readTokens(path), new Uint16Array(0));
  } finally {
    await Deno.remove(path);
  }
});
