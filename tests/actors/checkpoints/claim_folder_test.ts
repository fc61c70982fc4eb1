/** Whose a folder of checkpoints is, as `train()` sees it: nobody's run mixes with another's. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { readCheckpoint, train, type TrainOptions } from "../../../actors/mod.ts";
import { stepName } from "../../../actors/checkpoints/checkpoint_folders.ts";
import { lockFolder } from "../../../actors/checkpoints/checkpoint_lock.ts";
import { gpt2 } from "../../../kernels/mod.ts";
import { folderTest, namesIn } from "../../in_folder.ts";
import { batchesOf, type Sizes, SMALL } from "../runs.ts";

const SIZES: Sizes = { ...SMALL, layers: 1, microBatches: 1 };

type To = Omit<NonNullable<TrainOptions["checkpoint"]>, "config">;

/** Trains, with a checkpoint after each step. */
const run = (
  checkpoint: To,
  steps: number,
  resume?: TrainOptions["resume"],
  weights?: string,
) =>
  Array.fromAsync(train({
    model: gpt2(SIZES, SIZES.microBatch),
    data: batchesOf(SIZES, 9),
    ...{ steps, microBatches: 1, device: "reference", runtime: "local", resume, weights },
    checkpoint: { every: 1, ...checkpoint, config: {} },
  }));

const steps = (...of: number[]) => of.map(stepName);

const REFUSED =
  /^RangeError: Cannot write checkpoints to .*: it must hold none of another run, received one of step \d+; /;

folderTest(
  "a folder with checkpoints is refused, gone on with, or overwritten",
  async (directory) => {
    await run({ directory }, 2);
    await assert.rejects(run({ directory }, 1), REFUSED);
    await run({ directory }, 3, await readCheckpoint(directory));
    assert.deepEqual(await namesIn(directory), steps(1, 2, 3));

    // Who does not say where a state comes from may go on with it anywhere.
    const { path: _, ...unnamed } = (await readCheckpoint(directory))!;
    await run({ directory }, 4, unnamed);

    const second = await readCheckpoint(join(directory, stepName(2)));
    await run({ directory, overwrite: true }, 3, second);
    assert.deepEqual(await namesIn(directory), steps(1, 2, 3));
    await run({ directory, overwrite: true }, 1);
    assert.deepEqual(await namesIn(directory), steps(1));
  },
);

folderTest("no weights are removed that the run begins with", async (folder) => {
  const directory = join(folder, "run"), link = join(folder, "link");
  await run({ directory }, 1);
  await Deno.symlink(directory, link);
  for (const from of [directory, link]) {
    const weights = join(from, stepName(1), "model.safetensors");
    await assert.rejects(
      run({ directory, overwrite: true }, 1, undefined, weights),
      /^RangeError: Cannot overwrite .*: its checkpoints must not hold the weights to begin with/,
    );
  }
  assert.deepEqual(await namesIn(directory), steps(1));
  const copy = join(folder, "copy.safetensors");
  await Deno.copyFile(join(directory, stepName(1), "model.safetensors"), copy);
  await run({ directory, overwrite: true }, 2, undefined, copy);
  assert.deepEqual(await namesIn(directory), steps(1, 2));
});

folderTest("a best checkpoint that is gone is not that of the next run", async (directory) => {
  const best = { step: 1, loss: 0, checkpoint: stepName(1) };
  await Deno.writeTextFile(join(directory, "best.json"), JSON.stringify(best));
  await run({ directory, keep: 1 }, 2);
  assert.deepEqual((await namesIn(directory)).filter((name) => !name.startsWith(".")), steps(2));
});

folderTest("what goes on from elsewhere wants a fresh folder", async (folder) => {
  const [from, to] = [join(folder, "from"), join(folder, "to")];
  await run({ directory: from }, 1);
  const resume = await readCheckpoint(from);
  await run({ directory: to }, 2, resume);
  await assert.rejects(run({ directory: to }, 2, resume), REFUSED);
  await run({ directory: to, overwrite: true }, 3, resume);
  assert.deepEqual([await namesIn(from), await namesIn(to)], [steps(1), steps(2, 3)]);
});

folderTest(
  "only what has something in it counts, and only what is a run's is removed",
  async (directory) => {
    const unfinished = `.${stepName(3)}-${crypto.randomUUID()}`;
    for (const name of [stepName(7), unfinished, "step-mine"]) {
      await Deno.mkdir(
        join(directory, name),
      );
    }
    await run({ directory }, 1);
    await Deno.writeTextFile(join(directory, stepName(7), "model.safetensors"), "torn");
    await assert.rejects(run({ directory, overwrite: false }, 1), /received one of step 7;/);
    await Deno.writeTextFile(join(directory, "notes"), "mine");
    await run({ directory, overwrite: true }, 1);
    assert.deepEqual(await namesIn(directory), ["notes", ...steps(1), "step-mine"]);
  },
);

folderTest("what another run has is not overwritten", async (directory) => {
  await run({ directory }, 2);
  {
    using _lock = lockFolder(directory);
    for (const overwrite of [true, false]) {
      await assert.rejects(run({ directory, overwrite }, 1), /must not be in use by another run/);
    }
  }
  assert.deepEqual(await namesIn(directory), steps(1, 2));
});
