/** Checkpoints are written while the next steps run, and old ones make room. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { openCheckpointWriter } from "../../../actors/run/checkpoint_writer.ts";
import { heldValues } from "../../../actors/checkpoints/tensors/held_state.ts";
import { readCheckpoint, train, type TrainEvent, writeCheckpoint } from "../../../actors/mod.ts";
import { gpt2 } from "../../../kernels/mod.ts";
import { batches, RINGS } from "./own_layers.ts";
import { batchesOf, type Sizes, SMALL } from "../runs.ts";
import { folderTest, namesIn } from "../../in_folder.ts";

const SIZES: Sizes = { ...SMALL, layers: 1, microBatches: 1, steps: 8 };

type To = NonNullable<Parameters<typeof train>[0]["checkpoint"]>;

const run = (checkpoint: Omit<To, "config">, options: Partial<Parameters<typeof train>[0]> = {}) =>
  train({
    model: gpt2(SIZES, SIZES.microBatch),
    data: batchesOf(SIZES, 200),
    steps: SIZES.steps,
    microBatches: SIZES.microBatches,
    device: "native",
    runtime: "local",
    checkpoint: { ...checkpoint, config: {} },
    ...options,
  });

const words = (event: TrainEvent) => "step" in event ? `${event.type} ${event.step}` : event.type;

folderTest(
  "nobody waits for a checkpoint to be written, but for the next one and the end",
  async (directory) => {
    const seen: string[] = [];
    for await (const event of run({ directory, every: 3 })) seen.push(words(event));
    for (const saved of [3, 6]) {
      const next = seen.indexOf(`step ${saved + 1}`), whole = seen.indexOf(`checkpoint ${saved}`);
      assert.ok(next < whole, `step ${saved + 1} does not wait for checkpoint ${saved}: ${seen}`);
    }
    assert.ok(seen.indexOf("checkpoint 3") < seen.indexOf("step 7"), `6 waits for 3: ${seen}`);
    assert.deepEqual(seen.slice(-2), ["checkpoint 8", "end"]);
    for (const step of [3, 6, 8]) {
      assert.equal((await readCheckpoint(join(directory, `step-0000000${step}`)))!.step, step);
    }
  },
);

folderTest(
  "a snapshot is written in the background, and told of when it is whole",
  async (directory) => {
    const state = { weights: new Map([["a", Float32Array.of(1, 2)]]), moments: new Map() };
    const shapes = new Map([["a", [2]]]), fail = () => assert.fail("nothing to tell");
    const writer = openCheckpointWriter({ directory }, fail);
    const newest = () => writer.newest?.path;
    assert.deepEqual(await writer.ended(), [], "nothing was begun");
    await writer.begin({ step: 1, state: heldValues(state, shapes), config: {} });
    assert.deepEqual(await writer.soFar(), [], "the write goes on");
    assert.equal(newest(), undefined);
    const path = join(directory, "step-00000001");
    assert.deepEqual(await writer.ended(), [{ type: "checkpoint", step: 1, path }]);
    assert.equal(newest(), path);
    assert.deepEqual(await writer.ended(), [], "told once");

    const moments = new Map([["a.m", Float32Array.of(0, NaN)]]);
    const wrong = heldValues({ ...state, moments }, shapes);
    await assert.rejects(writer.begin({ step: 2, state: wrong, config: {} }), {
      name: "NonFiniteError",
      message: /NaN in "a.m"/,
    });
    assert.deepEqual(await namesIn(directory), ["step-00000001"]);
  },
);

folderTest("messages are heard while a big checkpoint is hashed and written", async (directory) => {
  const values = new Float32Array(16 << 20), parameters = [{ name: "a", shape: [values.length] }];
  const state = { weights: new Map([["a", values]]), moments: new Map() };
  let turns = 0, isOver = false;
  const writing = writeCheckpoint(directory, { step: 1, state, parameters, config: {} })
    .finally(() => isOver = true);
  while (!isOver) {
    await new Promise((resolve) => setTimeout(resolve, 0));
    turns++;
  }
  await writing;
  assert.ok(turns > 16, `64 MiB must leave more turns to others than ${turns}`);
});

folderTest(
  "only the newest checkpoints stay, and whatever else is in the directory",
  async (directory) => {
    const others = ["notes.txt", "step-3", "best-step-00000001", ".step-00000001-mine"];
    for (const name of others) await Deno.mkdir(join(directory, name));
    const left = [".step-00000002-", ".step-00000009-"].map((name) => name + crypto.randomUUID());
    for (const name of left) await Deno.mkdir(join(directory, name));
    await Deno.mkdir(join(directory, `${left[0]}-old`));
    const later = "step-00000100";
    await Deno.mkdir(join(directory, later));
    for await (const event of run({ directory, every: 1, keep: 3 })) {
      if (event.type !== "checkpoint") continue;
      const newest = [2, 1, 0].map((ago) => event.step - ago).filter((step) => step > 0);
      assert.deepEqual(
        (await namesIn(directory)).filter((name) => name.startsWith("step-0")),
        [...newest.map((step) => `step-0000000${step}`), later],
      );
    }
    const stayed = ["step-00000006", "step-00000007", "step-00000008", later, ...others].sort();
    assert.deepEqual(await namesIn(directory), stayed);
  },
);

folderTest(
  "the checkpoint that a run goes on from stays until a newer one is whole",
  async (directory) => {
    for await (const _ of run({ directory, every: 1 }, { steps: 3 }));
    const resume = await readCheckpoint(directory);
    for await (const event of run({ directory, every: 2, keep: 1 }, { resume })) {
      if (event.type !== "step" || event.step > 4) continue;
      assert.ok((await namesIn(directory)).includes("step-00000003"), `after step ${event.step}`);
    }
    assert.deepEqual(await namesIn(directory), ["step-00000008"]);
  },
);

folderTest(
  "a write that fails ends the run before the next step, with its reason",
  async (folder) => {
    const directory = join(folder, "run"), steps: number[] = [];
    const training = async () => {
      for await (const event of run({ directory, every: 1 }, { steps: 100 })) {
        if (event.type === "step") steps.push(event.step);
        if (event.type !== "checkpoint" || event.step !== 2) continue;
        // A file in the directory's place: nothing can be written there.
        await Deno.rename(directory, join(folder, "moved"));
        await Deno.writeTextFile(directory, "");
      }
    };
    await assert.rejects(
      training,
      /^Error: Cannot write the checkpoint .*step-00000003: .*; the checkpoints before it stay$/,
    );
    assert.deepEqual(steps, [1, 2, 3]);
  },
);

folderTest("whoever leaves early finds what had begun to be written whole", async (directory) => {
  for await (const event of run({ directory, every: 2 })) {
    if (event.type === "step" && event.step === 3) break;
  }
  assert.deepEqual(await namesIn(directory), ["step-00000002"]);
  assert.equal((await readCheckpoint(directory))!.step, 2);
});

folderTest("how often and how many is checked at the door", async (directory) => {
  for (const wrong of [{ every: 0 }, { keep: 0 }, { keep: 1.5 }]) {
    const [[name, value]] = Object.entries(wrong) as [[string, number]];
    await assert.rejects(run({ directory, ...wrong }).next(), {
      name: "RangeError",
      message: `Cannot train: checkpoint.${name} must be a positive integer, received ${value}`,
    });
  }
});

const circular: Record<string, unknown> = {};
circular.self = circular;

folderTest(
  "a configuration that no checkpoint can keep is refused before the first step",
  async (folder) => {
    const bad = {
      "a bigint": { size: 1n },
      "a circle": circular,
      "a list": [1],
      "nothing": undefined,
      "a getter that throws": {
        get size() {
          throw new Error("unknown");
        },
      },
    };
    for (const [name, config] of Object.entries(bad)) {
      const directory = join(folder, "run");
      const options = { model: RINGS, data: batches(), steps: 1, device: "reference" } as const;
      const run = train({ ...options, checkpoint: { directory, config: config as never } });
      const refused =
        /^TypeError: Cannot write checkpoints: their config must be an object that JSON can say, received [^\n]+$/;
      await assert.rejects(run.next(), refused, name);
      await assert.rejects(Deno.stat(directory), Deno.errors.NotFound);
    }
  },
);

folderTest(
  "a checkpoint keeps the configuration that was given, whatever becomes of it",
  async (directory) => {
    const config: Record<string, unknown> = { sizes: { hidden: 8 } };
    const options = { model: RINGS, data: batches(), steps: 1, device: "reference" } as const;
    const events = train({ ...options, runtime: "local", checkpoint: { directory, config } });
    for await (const _ of events) config.sizes = 9n;
    assert.deepEqual((await readCheckpoint(directory))!.config.sizes, { hidden: 8 });
  },
);
