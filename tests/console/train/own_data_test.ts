/** Data of one's own in a module: it is begun where a run goes on, with the state that it had. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { readCheckpoint } from "../../../actors/mod.ts";
import { folderTest } from "../../in_folder.ts";
import { bitsOf, runTrain, TINY, trainJson } from "../command.ts";

/** Tokens that each follow from the one before; what was begun and how much was made is written down. */
const WALK = `
const log = new URL("./log.txt", import.meta.url);
export const data = {
  name: "walk",
  version: "1",
  open: ({ microBatch, seq }) => {
    let at = 1;
    const draw = () => Int32Array.from({ length: microBatch * seq }, () => (at = at * 48271 % 0x7fffffff) % 64);
    return {
      sizes: { vocab: 64 },
      batches: {
        *from(microBatch, state = 1) {
          at = state;
          Deno.writeTextFileSync(log, "from " + microBatch + "\\n", { append: true });
          for (;;) {
            Deno.writeTextFileSync(log, "made\\n", { append: true });
            yield { ids: draw(), targets: draw() };
          }
        },
        state: () => at,
      },
    };
  },
};
`;

folderTest(
  "a module's data with a state goes on from a checkpoint with the same bits, and makes nothing again",
  async (folder) => {
    const path = join(folder, "walk.ts"), out = join(folder, "out"), log = join(folder, "log.txt");
    await Deno.writeTextFile(path, WALK);
    const train = [...TINY, "--data", path];
    const whole = await trainJson([...train, "--steps", "4"]);
    await trainJson([...train, "--steps", "2", "--out", out]);
    const { config } = (await readCheckpoint(out))!;
    assert.equal((config["progress"] as { data: { microBatches: number } }).data.microBatches, 4);
    await Deno.remove(log);
    const on = await trainJson([...train, "--resume", out, "--steps", "4"]);
    assert.deepEqual(bitsOf(on.lines), bitsOf(whole.lines, 3));
    // A look at the first one says whether data and model fit.
    assert.equal(await Deno.readTextFile(log), "from 0\nmade\nfrom 4\n" + "made\n".repeat(4));
  },
);

folderTest("a state that no checkpoint can keep is refused at the door", async (folder) => {
  const path = join(folder, "walk.ts");
  await Deno.writeTextFile(path, WALK.replace("state: () => at", "state: () => draw"));
  const { code, stdout, stderr } = await runTrain([
    ...TINY,
    "--data",
    path,
    "--steps",
    "1",
    "--json",
  ]);
  assert.deepEqual([code, stdout], [2, ""], stderr);
  assert.match(
    stderr,
    /\nCannot keep the state of the data: it must be something that JSON can say, received function\n$/,
  );
});
