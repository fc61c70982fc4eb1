/** Folders of Hugging Face's: PyTorch's logits, and what transformers writes. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { inFolder } from "../../../in_folder.ts";
import { distance, EXPECTED, FOLDERS, hfPath, logitsOf } from "../../../hugging_face.ts";

for (const folder of FOLDERS) {
  Deno.test(`the GPT-2 in ${folder} has PyTorch's logits within 1e-4`, async () => {
    const received = await logitsOf(hfPath(folder));
    const worst = distance(received, EXPECTED.logits[folder]!);
    assert.ok(worst < 1e-4, `${worst} off`);
  });
}

Deno.test("of a whole file and shards beside it the file is read, as transformers does", () =>
  inFolder(async (folder) => {
    for (const name of ["sharded_bf16", "tied"]) {
      for (const file of Deno.readDirSync(hfPath(name))) {
        await Deno.copyFile(join(hfPath(name), file.name), join(folder, file.name));
      }
    }
    const worst = distance(await logitsOf(folder), EXPECTED.logits.tied!);
    assert.ok(worst < 1e-4, `${worst} off`);
  }));
