/** `--tokens`: files of any size, read as the run goes on, and never another file than was named. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { train } from "../../../actors/mod.ts";
import { gpt2, openTokenFile, tokenBatches } from "../../../kernels/mod.ts";
import { folderTest } from "../../in_folder.ts";
import { refusal, savedIn, someTokens, TINY, trainJson, writeTokens } from "../command.ts";

/** Tokens that a step of TINY reads: 2 micro-batches of 2 rows of 8. */
const STEP = 32;

folderTest(
  "an id that is not in the vocabulary is told at the door, wherever it is",
  async (folder) => {
    const flags = [...TINY, "--vocab", "96", "--steps", "2"];
    for (const position of [3, 4 * STEP]) {
      const ids = someTokens(5 * STEP + 1, 96);
      ids[position] = 96;
      assert.equal(
        await refusal([...flags, "--tokens", await writeTokens(folder, ids)]),
        "Cannot use these tokens: each must be from 0 to 95 " +
          `(the vocabulary has 96), received 96 at position ${position}`,
      );
    }
  },
);

folderTest(
  "a file that is cut short while a run reads it ends the run in its step; the last checkpoint stays",
  async (folder) => {
    const path = await writeTokens(folder, someTokens(5 * STEP + 1, 96)), out = join(folder, "out");
    const cut = { seq: 8, vocabularySize: 96, microBatch: 2, microBatches: 2 };
    const run = async () => {
      for await (
        const event of train({
          model: gpt2({ layers: 1, hidden: 16, heads: 2, seq: 8, vocab: 96 }, 2),
          data: tokenBatches({ ...cut, tokens: await openTokenFile(path) }),
          steps: 5,
          microBatches: 2,
          device: "reference",
          checkpoint: { directory: out, every: 1, config: {} },
        })
      ) {
        if (event.type === "step" && event.step === 2) await Deno.truncate(path, 100);
      }
    };
    await assert.rejects(run(), {
      name: "TypeError",
      message:
        `Cannot make micro-batch 0 of step 3: cannot read ${path}: it must stay as it was when ` +
        `the run began, received 100 bytes in place of ${2 * (5 * STEP + 1)}`,
    });
    assert.deepEqual(await savedIn(out), ["step-00000001", "step-00000002"]);
  },
);

folderTest(
  "ids of 32 bits train as those of 16, a link as its file, and a run goes on by the file's hash",
  async (folder) => {
    const ids = someTokens(5 * STEP + 2), tokens = await writeTokens(folder, ids);
    const wide = join(folder, "ids.u32"),
      link = join(folder, "link.bin"),
      out = join(folder, "out");
    await Deno.writeFile(wide, new Uint8Array(Uint32Array.from(ids).buffer));
    await Deno.symlink(tokens, link);
    const { last } = await trainJson([...TINY, "--tokens", tokens, "--steps", "4"]);
    for (const path of [wide, link]) {
      const same = await trainJson([...TINY, "--tokens", path, "--steps", "4"]);
      assert.equal(same.last.weightsHash, last.weightsHash, path);
    }
    await trainJson([...TINY, "--tokens", tokens, "--steps", "2", "--out", out]);
    const on = await trainJson([
      "--resume",
      out,
      "--tokens",
      link,
      "--steps",
      "4",
      "--device",
      "reference",
    ]);
    assert.equal(on.last.weightsHash, last.weightsHash);
    const renamed = join(folder, "renamed.u32");
    await Deno.copyFile(tokens, renamed);
    assert.match(
      await refusal(["--resume", out, "--tokens", renamed, "--steps", "4"]),
      /--tokens must name ids of 16 bits, .*received ".*renamed\.u32"$/,
    );
    ids[5 * STEP]!++;
    const other = await writeTokens(folder, ids, "other.bin");
    assert.match(
      await refusal(["--resume", out, "--tokens", other, "--steps", "4"]),
      /--tokens must name the file that its run read, with SHA-256 [0-9a-f]{64}, received /,
    );
  },
);

folderTest(
  "what holds too few tokens for a step is refused by how many it needs",
  async (folder) => {
    for (
      const [count, told] of [[0, /at least 17 tokens, received 0$/], [16, /received 16$/]] as const
    ) {
      const tokens = await writeTokens(folder, someTokens(count));
      assert.match(await refusal([...TINY, "--tokens", tokens, "--steps", "1"]), told);
    }
  },
);
