/** Folders of Hugging Face's: PyTorch's logits, and what transformers writes. */

import assert from "node:assert/strict";
import { distance, EXPECTED, FOLDERS, hfPath, logitsOf } from "../../../hugging_face.ts";

for (const folder of FOLDERS) {
  Deno.test(`the GPT-2 in ${folder} has PyTorch's logits within 1e-4`, async () => {
    const received = await logitsOf(hfPath(folder));
    const worst = distance(received, EXPECTED.logits[folder]!);
    assert.ok(worst < 1e-4, `${worst} off`);
  });
}
