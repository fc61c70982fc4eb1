/** The folder of a run is read as data: what is torn is passed over, what is strange is refused. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { writeCheckpoint } from "../../../actors/mod.ts";
import { lockFolder } from "../../../actors/checkpoints/checkpoint_lock.ts";
import { readMetrics } from "../../../console/run_files/read_metrics.ts";
import { readRun } from "../../../console/run_files/read_run.ts";
import { summarizeRun } from "../../../console/run_files/summarize_run.ts";
import { folderTest } from "../../in_folder.ts";
import { measured, RECORD, writeRun } from "./runs_helper.ts";

const METRICS = [
  measured(1, 5),
  measured(1, 4.5, "evaluation"),
  measured(2, 4),
  measured(2, 4.75, "evaluation"),
  measured(3, 3),
];

folderTest(
  "a run in a few numbers: how far, how well, how fast, and whether it goes on",
  async (folder) => {
    const path = await writeRun(join(folder, "gpt-1"), METRICS);
    const expected = {
      name: "gpt-1",
      path,
      state: "stopped",
      steps: 3,
      asked: 40,
      loss: 3,
      bestEvalLoss: 4.5,
      tokensPerSecond: 200,
      model: "gpt",
      parameters: 1234,
      started: RECORD.started,
    };
    assert.deepEqual(summarizeRun(await readRun(path)), expected);
    {
      using _lock = lockFolder(path);
      assert.equal(summarizeRun(await readRun(path)).state, "running");
    }
    for (
      const [reason, state] of [
        ["finished", "finished"],
        ["stopped early", "finished"],
        ["interrupted", "stopped"],
      ] as const
    ) {
      await writeRun(path, METRICS, { end: { reason, step: 7 } });
      assert.deepEqual(summarizeRun(await readRun(path)), { ...expected, state, steps: 7 });
    }
  },
);

folderTest("who looks whether a run goes on keeps none from beginning", async (folder) => {
  const path = await writeRun(join(folder, "run"), []);
  for (let i = 0; i < 50; i++) {
    using _lock = lockFolder(path);
    assert.equal((await readRun(path)).isRunning, true);
  }
  await Deno.writeTextFile(join(path, ".lock"), "pid 1 on nowhere\n"); // of a run that was killed
  assert.equal((await readRun(path)).isRunning, false);
});

folderTest(
  "a line that is being written is not told, and later from where it begins",
  async (folder) => {
    const path = await writeRun(folder, METRICS), file = join(path, "metrics.jsonl");
    const line = JSON.stringify(measured(4, 2)) + "\n";
    await Deno.writeTextFile(file, line.slice(0, 20), { append: true });
    const lines = [...readMetrics(path)];
    assert.deepEqual(lines.map(({ metrics: { step } }) => step), [1, 1, 2, 2, 3]);
    await Deno.writeTextFile(file, line.slice(20), { append: true });
    const more = [...readMetrics(path, lines.at(-1)!.end)];
    assert.deepEqual(more.map(({ metrics }) => metrics), [measured(4, 2)]);
  },
);

folderTest(
  "lines of any length are read across pieces; what is no number is left out",
  async (folder) => {
    const memory = Array.from({ length: 9000 }, (_, worker) => worker);
    const long = { ...measured(1, 5), memory }, path = await writeRun(folder, [long, long, long]);
    const lines = [...readMetrics(path)].map(({ metrics }) => metrics);
    assert.deepEqual(lines, [long, long, long]);
    const strange = { ...measured(2, 0), loss: null, gradNorm: "x", memory: ["x"], more: {} };
    await writeRun(path, [strange as never]);
    const { loss: _, ...numbers } = measured(2, 0);
    assert.deepEqual([...readMetrics(path)].map(({ metrics }) => metrics), [numbers]);
  },
);

folderTest("a run of Troupe 0.1 has its checkpoints and their config", async (folder) => {
  const config = { flags: { model: "mlp" }, run: { steps: 7 } };
  const state = { weights: new Map(), moments: new Map() };
  const step = await writeCheckpoint(folder, { step: 7, state, parameters: [], config });
  for (const path of [folder, step]) {
    const run = await readRun(path), { model, steps, asked, state } = summarizeRun(run);
    assert.deepEqual({ model, steps, asked, state, record: run.record }, {
      ...{ model: "mlp", steps: 7, asked: 7, state: "finished", record: undefined },
    });
  }
});

const refused = async (path: string, message: RegExp) => {
  const error = await readRun(path).then(
    (run) => summarizeRun(run),
    (error: Error) => error,
  ).catch((error: Error) => error);
  assert.ok(error instanceof Error, `${path} must be refused`);
  assert.match(error.message, message);
  assert.doesNotMatch(error.message, /\n/);
};

folderTest("what is no run, or of another version, is refused in one sentence", async (folder) => {
  const run = async (name: string, record = {}) =>
    await writeRun(join(folder, name), METRICS, record);
  await refused(join(folder, "none"), /^Cannot read the run ".*none": .* none, or an empty one$/);
  await refused(folder, /^Cannot read the run .* received none, or an empty one$/);
  await Deno.writeTextFile(join(folder, "file"), "");
  await refused(join(folder, "file"), /: it must be a folder, received Not a directory/);
  await refused(folder, /with run.json or checkpoints, received one without$/);
  for (
    const [record, reason] of [
      [{ version: 2 }, /run.json: its version must be 1, received "2"$/],
      [{ version: "\n" }, /its version must be 1, received "\\n"$/],
      [{ flags: [] }, /its flags must be a record/],
      [{ starts: [1] }, /its starts must be a list of records/],
      [{ model: 7 }, /its model must be a text/],
      [{ format: "other" }, /it must be a file that a run of Troupe has written/],
    ] as const
  ) await refused(await run("strange", record), reason);

  const path = await run("lines"), metrics = join(path, "metrics.jsonl");
  for (
    const [line, reason] of [
      ["\u001b[31m\n", /each line must be a JSON object, received \P{Cc}+ at byte 0$/u],
      ["[1]\n", /each line must be a JSON object, received "\[1\]"/],
      [`{"step":1,"type":"other"}\n`, /each line must have a type \(step, skip, evaluation\)/],
      [`{"step":-1,"type":"step"}\n`, /and a step, received/],
      ["x".repeat(3 << 20), /received one of more than 1048576 bytes/],
    ] as const
  ) {
    await Deno.writeTextFile(metrics, line);
    await refused(path, reason);
  }
});

folderTest(
  "links in a run lead nowhere, and what is larger than a record is none",
  async (folder) => {
    const secret = join(folder, "secret"), path = await writeRun(join(folder, "run"), METRICS);
    await Deno.writeTextFile(secret, JSON.stringify(RECORD));
    await Deno.remove(join(path, "run.json"));
    await Deno.symlink(secret, join(path, "run.json"));
    await refused(path, /run.json": it must be a file that a run of Troupe has written/);
    await Deno.remove(join(path, "run.json"));
    using file = await Deno.open(join(path, "run.json"), { write: true, createNew: true });
    await file.truncate(2 ** 34);
    await refused(path, /run.json": it must be a file that a run of Troupe has written/);

    await writeRun(path, []);
    await Deno.remove(join(path, "metrics.jsonl"));
    await Deno.writeTextFile(secret, JSON.stringify(measured(1, 1)) + "\n");
    await Deno.symlink(secret, join(path, "metrics.jsonl"));
    assert.deepEqual([...readMetrics(path)], []);
  },
);
