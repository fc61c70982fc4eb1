/** Any checkpoint loads into any schedule, depth, replica count and precision. */

import assert from "node:assert/strict";
import { join } from "node:path";
import type { Checkpoint } from "../../../actors/checkpoints/format.ts";
import { readCheckpoint } from "../../../actors/checkpoints/read.ts";
import { atDepth } from "../../depth.ts";
import { folderTest } from "../../in_folder.ts";
import { type Options, TINY, trained } from "../pipeline/trained.ts";
import { batchesOf, sideBySide, type Sizes } from "../runs.ts";

/** Eight layers, one for each stage of two waves over two workers. Steps have 4 micro-batches. */
const SIZES: Sizes = { ...TINY, steps: 4 };

const HOW: Readonly<Record<string, Options>> = {
  "1f1b on 4 workers": { schedule: "1f1b", workers: 4 },
  "chimera on 4 workers": { schedule: "chimera", workers: 4 },
  "hanayo, 2 waves over 2 workers": {
    ...{ schedule: "hanayo", workers: 2, scheduleOptions: { waves: 2 } },
  },
  "2 replicas": { schedule: "1f1b", workers: 2, replicas: 2, microBatches: 2 },
  "fp16": { schedule: "1f1b", workers: 2, precision: "fp16" },
  "pipedream-2bw on 3 workers": { schedule: "pipedream-2bw", workers: 3 },
};

/** Trains up to step `steps`. */
async function part(steps: number, options: Options) {
  const { bits } = await trained(SIZES, { data: batchesOf(SIZES), ...options, steps });
  return bits;
}

/** Trains two steps and returns the checkpoint after them. */
async function saved(folder: string, options: Options): Promise<Checkpoint> {
  await part(2, { ...options, checkpoint: { directory: folder, config: {} } });
  return (await readCheckpoint(folder))!;
}

/** Asserts that a resumed run has the bits of the serial oracle resumed from the same checkpoint. */
async function assertGoesOn(from: string, to: string, oracle: Checkpoint, actors: Checkpoint) {
  const after = HOW[to]!;
  const [expected, run] = await Promise.all([
    part(4, { ...after, runtime: "serial", resume: oracle }),
    part(4, { ...after, runtime: "local", resume: actors }),
  ]);
  assert.deepEqual(run, expected, `${from}, then ${to}`);
  assert.deepEqual(run.numbers.map(([step]) => step!), [3, 4]);
  // Without flushes, a resumed run has the bits of a run that paused at the checkpoint.
  if (from !== to || to.startsWith("pipedream")) return;
  const whole = await part(4, { ...after, runtime: "serial" });
  assert.deepEqual({ ...whole, numbers: whole.numbers.slice(2) }, run, `${to} in one piece`);
}

folderTest("any run resumes any checkpoint with the bits of the oracle", async (folder) => {
  for (const [from, before] of Object.entries(HOW)) {
    const [oracle, actors] = await Promise.all(
      (["serial", "local"] as const).map((runtime) =>
        saved(join(folder, from, runtime), { ...before, runtime })
      ),
    );
    for (const file of ["model.safetensors", "optimizer.safetensors", "config.json"]) {
      const read = ({ path }: Checkpoint) => Deno.readFile(join(path, file));
      assert.deepEqual(await read(oracle!), await read(actors!), `${file} of ${from}`);
    }
    // Each resumes under the next entry, exact and FP16 under themselves; in the deep tier under all.
    const names = Object.keys(HOW), at = names.indexOf(from);
    const after = atDepth([names[(at + 1) % names.length]!, ...at % 4 === 0 ? [from] : []], names);
    await sideBySide(after.map((to) => assertGoesOn(from, to, oracle!, actors!)));
  }
});

folderTest("a checkpoint loads into Deno workers of another schedule", async (folder) => {
  const resume = await saved(folder, { schedule: "chimera", workers: 2, runtime: "workers" });
  const options = { schedule: "1f1b", workers: 2, resume };
  const expected = await part(4, { ...options, runtime: "serial" });
  assert.deepEqual(await part(4, { ...options, runtime: "workers" }), expected);
});

folderTest("a dynamic loss scale continues, or starts after a run without one", async (folder) => {
  const scaleOf = ({ config }: Checkpoint) =>
    (config.progress as { lossScale?: { scale: number; goodSteps: number } }).lossScale;
  const exact = await saved(join(folder, "fp32"), { runtime: "serial" });
  assert.equal(scaleOf(exact), undefined);
  const directory = join(folder, "fp16"), checkpoint = { directory, config: {} };
  const options: Options = { ...HOW["fp16"]!, runtime: "local", checkpoint };
  await part(3, { ...options, resume: exact });
  const half = (await readCheckpoint(directory))!;
  assert.deepEqual(scaleOf(half), { scale: 65_536, goodSteps: 1, skipped: 0 });
  await part(4, { ...options, resume: half });
  assert.equal(scaleOf((await readCheckpoint(directory))!)!.goodSteps, 2);
});
