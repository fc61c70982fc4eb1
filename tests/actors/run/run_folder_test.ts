/** The folder of a run that a script trains: its files, its readers, and resuming by name. */

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { TrainOptions } from "../../../actors/options/train_options.ts";
import { readMetrics } from "../../../actors/run_folder/metrics_file.ts";
import { readRecord, readRun, summarizeRun } from "../../../actors/run_folder/read.ts";
import { train } from "../../../actors/run/train.ts";
import { parseCsv, scheduleFromLists } from "../../../schedules/mod.ts";
import { recordedSchedule } from "../../../console/dashboard/view.ts";
import { followRun } from "../../../console/dashboard/follow.ts";
import { folderTest, namesIn } from "../../in_folder.ts";
import { printedHere } from "../../console/command.ts";
import { trained } from "../runs.ts";
import { batches, RINGS } from "./own_layers.ts";

const run = (options: Partial<TrainOptions>) => {
  const how = { microBatches: 2, device: "reference", runtime: "local", steps: 4 } as const;
  return { model: RINGS, data: batches(), ...how, ...options };
};

/** Trains until a step has ended. */
const interrupted = async (step: number, options: Partial<TrainOptions>) => {
  const controller = new AbortController(), { signal } = controller;
  for await (const event of train(run({ ...options, signal }))) {
    if (event.type === "step" && event.step === step) controller.abort();
  }
};

const stepsIn = (out: string) => Array.from(readMetrics(out), ({ metrics: { step } }) => step);

folderTest("a script's run has the files of a command's", async (folder) => {
  const out = join(folder, "mine"), schedule = "1f1b";
  const options = { out, workers: 2, schedule, learningRate: 0.01, stallMs: 9000 };
  const { end } = await trained(run({ ...options, optimizer: { kind: "sgd" } }));
  assert.deepEqual(await namesIn(out), ["metrics.jsonl", "run.json", "step-00000004"]);
  const record = readRecord(out)!, { lr, workers, steps, "stall-timeout": stall } = record.flags;
  assert.deepEqual([lr, workers, steps, stall, record.flags.optimizer], [0.01, 2, 4, 9, "sgd"]);
  assert.equal(record.flags.out, undefined, "paths are not recorded");
  assert.equal(record.end!.weightsHash, end.weightsHash);
  assert.equal(recordedSchedule(record)!.name, "1f1b", "the dashboard can draw it");
  const summary = summarizeRun(await readRun(out));
  assert.deepEqual([summary.state, summary.steps, summary.asked], ["finished", 4, 4]);
  assert.match(await printedHere("plot", out), /optimizer step/);
  const page = JSON.stringify((await followRun(out)).all());
  assert.match(page, /"status":"finished"/);
  assert.match(page, /\["script","[^"]*"\]/, "a script has no command that repeats it");
  const other = join(folder, "other");
  await trained(run({ out: other, steps: 3 }));
  assert.match(await printedHere("compare", out, other), /^steps +4\/4 +3\/3$/m);
});

folderTest("your own schedule is not drawn as the one with its name", async (folder) => {
  const schedule = scheduleFromLists("gpipe", parseCsv("0F0,0B0,0F1,0B1"));
  await trained(run({ out: folder, schedule }));
  const record = readRecord(folder)!;
  assert.deepEqual([record.flags.schedule, recordedSchedule(record)], ["gpipe", undefined]);
});

folderTest("an interrupted run resumes by its folder with the same bits", async (folder) => {
  const out = join(folder, "mine"), whole = await trained(run({ steps: 6 }));
  await interrupted(2, { out, steps: 6 });
  assert.equal(readRecord(out)!.end!.reason, "interrupted");
  const { end } = await trained(run({ resume: out, steps: 6 }));
  assert.equal(end.weightsHash, whole.end.weightsHash);
  assert.deepEqual(stepsIn(out), [1, 2, 3, 4, 5, 6], "each step once");
  const { starts } = readRecord(out)!;
  assert.deepEqual(starts.map(({ afterStep }) => afterStep), [0, 2]);
  assert.equal(starts[1]!.from, join(out, "step-00000002"));
});

Deno.test("a run in this isolate waits for signals a few times a second, not in each step", async () => {
  const { setTimeout } = globalThis, { signal } = new AbortController();
  let timers = 0;
  const counted = (...[handler, ms, ...values]: Parameters<typeof setTimeout>) => {
    timers += ms ? 0 : 1;
    return setTimeout(handler, ms, ...values);
  };
  const began = performance.now();
  globalThis.setTimeout = Object.assign(counted, setTimeout);
  try {
    await trained(run({ signal, steps: 60 }));
  } finally {
    globalThis.setTimeout = setTimeout;
  }
  assert.ok(timers <= 1 + (performance.now() - began) / 200, `${timers}`);
});

folderTest("a script that resumes its own folder starts where there is none", async (folder) => {
  const out = join(folder, "mine");
  const { bits } = await trained(run({ out, resume: out }));
  assert.equal(bits.losses.length, 4);
  await assert.rejects(trained(run({ out, resume: join(folder, "nine") })), {
    name: "RangeError",
    message: /^Cannot resume from ".*nine": .* received none; did you mean .*mine\?$/,
  });
});

folderTest("a folder of something else, or two folders, are refused", async (folder) => {
  const out = join(folder, "mine");
  const refused = (options: Partial<TrainOptions>, message: RegExp) =>
    assert.rejects(trained(run(options)), { message });
  const both = /^Cannot train: checkpoint.directory must be left out beside out, received both$/;
  await refused({ out, checkpoint: { directory: folder } }, both);
  await refused({ checkpoint: { every: 1 } }, /^Cannot train: checkpoint.directory must be given/);
  assert.ok(!existsSync(out), "nothing was written");
  await Deno.writeTextFile(join(folder, "metrics.jsonl"), "{}\n");
  await refused({ out: folder }, /metrics.jsonl in it must be written by a run/);
  await interrupted(1, { out, checkpoint: { every: 1 } });
  await refused({ out }, /must have no checkpoints of another run/);
  await trained(run({ out, checkpoint: { overwrite: true, every: 1 } }));
  assert.deepEqual(stepsIn(out), [1, 2, 3, 4]);
  const early = join(out, "step-00000001");
  await refused({ resume: early }, /^Cannot resume from .* newest checkpoint of its folder/);
  await refused({ resume: early, out }, /received one before step 4/);
});
