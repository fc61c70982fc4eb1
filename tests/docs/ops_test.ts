import assert from "node:assert/strict";
import { opsPage } from "../../docs/ops.ts";

Deno.test("the page of operations is what `deno task docs` writes of the tables", async () => {
  const page = await Deno.readTextFile(new URL("../../docs/ops.md", import.meta.url));
  assert.equal(page, await opsPage(), "run: deno task docs");
});
