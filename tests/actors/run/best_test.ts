/** The best checkpoint is kept, and a run that no longer gets better ends. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { readBest, readCheckpoint, train, type TrainOptions } from "../../../actors/mod.ts";
import type { Batch } from "../../../kernels/mod.ts";
import { folderTest, namesIn } from "../../in_folder.ts";
import { batch, RINGS } from "./own_layers.ts";

const STEPS = 12;

/** Learns a batch by heart up to step 6; then the weights stay as they are, and no evaluation is better. */
const learningRate = (step: number) => step <= 6 ? 0.01 : 0;
const data = Array<Batch>(20).fill(batch(0));

const run = (options: Partial<TrainOptions>) =>
  Array.fromAsync(train({
    ...{ model: RINGS, data, steps: STEPS, device: "reference", runtime: "local" },
    ...{ microBatches: 1, learningRate },
    ...options,
  } as TrainOptions));

type Events = Awaited<ReturnType<typeof run>>;

const endOf = (events: Events) => {
  const last = events.at(-1)!;
  assert.ok(last.type === "end");
  const { steps, isStoppedEarly, isInterrupted, best, weightsHash } = last;
  return { steps, isStoppedEarly, isInterrupted, best, weightsHash };
};

const evaluationsOf = (events: Events) => events.filter((event) => event.type === "evaluation");

const evaluation = { every: 2, batches: [batch(0)] };

Deno.test("a run ends when as many evaluations as it waits for were no better than the best", async () => {
  const all = await run({ evaluation });
  assert.ok(evaluationsOf(all).every(({ best }) => best === undefined), "nobody asked");
  const losses = evaluationsOf(all).map(({ loss }) => loss);
  assert.ok(losses[1]! < losses[0]! && losses[2]! < losses[1]!, `${losses}`);
  for (const patience of [1, 2, 3]) {
    const events = await run({ evaluation: { ...evaluation, atStart: true, patience } });
    const [first, ...evaluations] = evaluationsOf(events);
    assert.equal(first!.best, undefined, "the weights before the first step are not the run's own");
    assert.deepEqual(evaluations.map(({ best }) => best!.since), [
      ...[0, 0, 0],
      ...Array.from({ length: patience }, (_, i) => i + 1),
    ]);
    const { steps, isStoppedEarly, isInterrupted, best } = endOf(events);
    assert.deepEqual([steps, isStoppedEarly, isInterrupted], [
      6 + 2 * patience,
      patience < 3,
      false,
    ]);
    assert.deepEqual(best, { step: 6, loss: losses[2], checkpoint: null });
  }
});

folderTest("the best checkpoint is kept beside the newest, and named", async (directory) => {
  const checkpoint = { directory, config: {}, keep: 1, keepBest: true };
  const events = await run({ evaluation, checkpoint });
  const written = events.filter((event) => event.type === "checkpoint");
  assert.deepEqual(written.map(({ step, isBest = false }) => [step, isBest]), [
    ...[[2, true], [4, true], [6, true]],
    [12, false],
  ]);
  assert.deepEqual(await namesIn(directory), ["best.json", "step-00000006", "step-00000012"]);
  const { best } = endOf(events), loss = evaluationsOf(events)[2]!.loss;
  const path = join(directory, "step-00000006");
  assert.deepEqual(best, { step: 6, loss, checkpoint: path });
  assert.deepEqual(await readBest(directory), { step: 6, loss, checkpoint: "step-00000006" });
  assert.equal((await readCheckpoint(path))!.step, 6);
  assert.equal(
    (await readCheckpoint(directory))!.step,
    12,
    "the newest is taken unless it is named",
  );
});

folderTest(
  "a run that goes on from any step remembers the best, and ends as one that was not cut",
  async (folder) => {
    const patient = { ...evaluation, patience: 2 };
    const place = (name: string) => ({
      directory: join(folder, name),
      config: {},
      keepBest: true,
      keep: 1,
    });
    const whole = await run({ evaluation: patient, checkpoint: place("whole") });
    const { best: { checkpoint: _, ...best }, ...ended } = {
      ...endOf(whole),
      best: endOf(whole).best!,
    };
    for (let cut = 1; cut <= 10; cut++) {
      const checkpoint = place(`cut-${cut}`);
      await run({ evaluation: patient, checkpoint, steps: cut });
      const resume = await readCheckpoint(checkpoint.directory);
      const again = endOf(await run({ evaluation: patient, checkpoint, resume }));
      const path = join(checkpoint.directory, "step-00000006");
      assert.deepEqual(
        again,
        { ...ended, best: { ...best, checkpoint: path } },
        `from step ${cut}`,
      );
      assert.deepEqual(await namesIn(checkpoint.directory), await namesIn(join(folder, "whole")));
    }
  },
);

folderTest(
  "elsewhere only a better one is kept, and a run without patience left takes no step",
  async (folder) => {
    const to = (name: string) => ({ directory: join(folder, name), config: {}, keepBest: true });
    await run({ evaluation, checkpoint: to("first"), steps: 6 });
    const resume = await readCheckpoint(join(folder, "first"));
    const { best } = endOf(await run({ evaluation, checkpoint: to("second"), resume }));
    assert.deepEqual([best!.step, best!.checkpoint], [6, null]);
    assert.deepEqual(await namesIn(join(folder, "second")), ["step-00000012"]);
    const last = await readCheckpoint(join(folder, "second"));
    const over = await run({ evaluation: { ...evaluation, patience: 3 }, resume: last, steps: 20 });
    assert.deepEqual(over.map(({ type }) => type), ["plan", "end"]);
    assert.equal(endOf(over).isStoppedEarly, true);
  },
);

folderTest(
  "what is overwritten is no longer the best, and what is no best is not taken for one",
  async (directory) => {
    const checkpoint = { directory, config: {}, keepBest: true };
    await run({ evaluation, checkpoint, steps: 6 });
    await run({ checkpoint: { directory, config: {}, overwrite: true }, steps: 1 });
    assert.deepEqual(await namesIn(directory), ["step-00000001"]);
    for (
      const wrong of [
        "",
        "[]",
        '{"step":1,"loss":1,"checkpoint":"../elsewhere"}',
        '{"step":"1","loss":1,"checkpoint":"step-00000001"}',
        '{"step":1,"checkpoint":"step-00000001"}',
        '{"step":-1,"loss":1,"checkpoint":"step-000000-1"}',
        " ".repeat(2 ** 17),
      ]
    ) {
      await Deno.writeTextFile(join(directory, "best.json"), wrong);
      assert.equal(await readBest(directory), undefined, wrong.slice(0, 80));
    }
  },
);

folderTest("a checkpoint's best that is none is refused", async (directory) => {
  await run({ evaluation, checkpoint: { directory, config: {}, keepBest: true }, steps: 2 });
  const resume = (await readCheckpoint(directory))!, progress = resume.config.progress as object;
  for (
    const best of [null, {}, 3, { step: 3, loss: 1, since: 0 }, { step: 2, loss: "1", since: 0 }, {
      step: 2,
      loss: 1,
      since: -1,
    }]
  ) {
    const config = { ...resume.config, progress: { ...progress, best } };
    await assert.rejects(run({ resume: { ...resume, config } }), {
      name: "RangeError",
      message: /^Cannot resume: the progress of step 2 must be that of a run, received /,
    });
  }
});
