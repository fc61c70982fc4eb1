/** Checkpoints of a run: written during the next steps, the best kept, and resumed from. */

import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import type { Disk } from "../../../actors/checkpoints/format.ts";
import { CheckpointWriter } from "../../../actors/run/checkpoint_writer.ts";
import { heldValues } from "../../../actors/checkpoints/tensors.ts";
import { readBest } from "../../../actors/checkpoints/markers.ts";
import { readCheckpoint } from "../../../actors/checkpoints/read.ts";
import { train } from "../../../actors/run/train.ts";
import type { TrainOptions } from "../../../actors/options/train_options.ts";
import type { Batch } from "../../../kernels/mod.ts";
import { folderTest, namesIn } from "../../in_folder.ts";
import { assertRefused } from "../../kernels/graph/refused.ts";
import { eventsOf, type Outcome } from "../runs.ts";
import { batch, batches, RINGS, trainRings } from "./own_layers.ts";
import { writeCheckpoint } from "../checkpoints/write.ts";

const ALL = { recursive: true };

type To = NonNullable<TrainOptions["checkpoint"]>;

const OPTIONS = { model: RINGS, microBatches: 1, device: "reference", runtime: "local" } as const;

/** A run of eight steps, event by event. */
const run = (checkpoint: Partial<To>, options: Partial<TrainOptions> = {}) =>
  train({
    ...{ ...OPTIONS, data: batches(), steps: 8, ...options },
    checkpoint: { config: {}, ...checkpoint } as To,
  });

const stepIn = async (directory: string) => (await readCheckpoint(directory))!.step;

/** The folder of a step below ten. */
const stepAt = (step: number) => `step-0000000${step}`;

folderTest("only the next checkpoint and the end wait for one to be written", async (directory) => {
  const seen: string[] = [];
  for await (const event of run({ directory, every: 3 })) {
    seen.push("step" in event ? `${event.type} ${event.step}` : event.type);
  }
  const order = ["step 4", "checkpoint 3", "step 7", "checkpoint 6"];
  assert.deepEqual(seen.filter((one) => order.includes(one)), order);
  assert.deepEqual(seen.slice(-2), ["checkpoint 8", "end"]);
  for (const step of [3, 6, 8]) assert.equal(await stepIn(join(directory, stepAt(step))), step);
});

folderTest("a snapshot is reported when it is whole, and refused with NaN", async (directory) => {
  const state = { weights: new Map([["a", Float32Array.of(1, 2)]]), moments: new Map() };
  const shapes = new Map([["a", [2]]]), path = join(directory, stepAt(1));
  const writer = new CheckpointWriter({ directory }, () => assert.fail("nothing to say"));
  assert.deepEqual(await writer.ended(), []);
  await writer.begin({ step: 1, state: heldValues(state, shapes), config: {} });
  assert.deepEqual(await writer.soFar(), [], "the write goes on");
  assert.equal(writer.newest, undefined);
  assert.deepEqual(await writer.ended(), [{ type: "checkpoint", step: 1, path }]);
  assert.equal(writer.newest!.path, path);
  assert.deepEqual(await writer.ended(), [], "reported once");
  const moments = new Map([["a.m", Float32Array.of(0, NaN)]]);
  const wrong = heldValues({ ...state, moments }, shapes);
  const begun = writer.begin({ step: 2, state: wrong, config: {} });
  await assert.rejects(begun, /^NonFiniteError: .*NaN in "a.m"/);
  assert.deepEqual(await namesIn(directory), [stepAt(1)]);
});

folderTest("messages are heard while a big checkpoint is hashed and written", async (directory) => {
  const values = new Float32Array(16 << 20), parameters = [{ name: "a", shape: [values.length] }];
  const state = { weights: new Map([["a", values]]), moments: new Map() };
  let turns = 0;
  const timer = setInterval(() => turns++, 0);
  await writeCheckpoint(directory, { step: 1, state, parameters, config: {} });
  clearInterval(timer);
  assert.ok(turns > 16, `64 MiB must leave more turns to others than ${turns}`);
});

folderTest("only the newest checkpoints stay, and all else in the directory", async (directory) => {
  const others = ["notes.txt", "step-3", "best-step-00000001", ".step-00000001-mine"];
  const left = [".step-00000002-", ".step-00000009-"].map((name) => name + crypto.randomUUID());
  const later = "step-00000100", all = [...others, ...left, `${left[0]}-old`, later];
  for (const name of all) await Deno.mkdir(join(directory, name));
  for await (const event of run({ directory, every: 1, keep: 3 })) {
    if (event.type !== "checkpoint") continue;
    const newest = [2, 1, 0].map((ago) => event.step - ago).filter((step) => step > 0);
    const kept = (await namesIn(directory)).filter((name) => name.startsWith("step-0"));
    assert.deepEqual(kept, [...newest.map(stepAt), later]);
  }
  assert.deepEqual(await namesIn(directory), [...[6, 7, 8].map(stepAt), later, ...others].sort());
});

folderTest("a resumed checkpoint stays until a newer one is complete", async (directory) => {
  for await (const _ of run({ directory, every: 1 }, { steps: 3 }));
  const resume = await readCheckpoint(directory);
  for await (const event of run({ directory, every: 2, keep: 1 }, { resume })) {
    if (event.type !== "step" || event.step > 4) continue;
    assert.ok((await namesIn(directory)).includes(stepAt(3)), `after step ${event.step}`);
  }
  assert.deepEqual(await namesIn(directory), [stepAt(8)]);
});

folderTest("a write that fails ends the run before the next step", async (folder) => {
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
  const reason = /^Error: Cannot write the checkpoint .*step-00000003: .*before it stay$/;
  await assert.rejects(training, reason);
  assert.deepEqual(steps, [1, 2, 3]);
});

folderTest("a folder that is removed is made again, and that is said once", async (folder) => {
  const directory = join(folder, "a", "run"), lines: string[] = [], written: number[] = [];
  const announce = (line: string) => void lines.push(line);
  for await (const event of run({ directory, every: 2 }, { announce })) {
    if (event.type !== "checkpoint" || written.push(event.step) > 1) continue;
    Deno.removeSync(dirname(directory), ALL);
  }
  assert.deepEqual([written, await namesIn(directory)], [[2, 4, 6, 8], [4, 6, 8].map(stepAt)]);
  const again = `${directory} or its lock was removed during the run: it is made again`;
  assert.deepEqual(lines.splice(0), [again]);

  const { open, readFile, readDir, mkdir, rename, remove } = Deno;
  let left = 2;
  const removing = async (path: string, how: object) => {
    if (String(path).endsWith("config.json") && left-- > 0) await remove(directory, ALL);
    return await open(path, how);
  };
  const disk = { open: removing, readFile, readDir, mkdir, rename, remove } as Disk;
  const writer = new CheckpointWriter({ directory }, announce, disk);
  const state = { weights: new Map([["a", Float32Array.of(1)]]), moments: new Map() };
  const snapshot = { step: 9, state: heldValues(state, new Map([["a", [1]]])), config: {} };
  await writer.begin(snapshot);
  assert.deepEqual(await writer.ended(), []);
  assert.match(lines.join(), /^Cannot write the checkpoint .*, and training continues without it$/);
  await writer.begin(snapshot);
  await assert.rejects(writer.ended(), /^Error: Cannot write the checkpoint /, "a second time");
  await writer.begin(snapshot);
  assert.deepEqual((await writer.ended()).map(({ type }) => type), ["checkpoint"]);
});

folderTest("workers restart from a snapshot if their checkpoint was removed", async (folder) => {
  const from = join(folder, "from"), losses: number[] = [];
  for await (const event of run({ directory: from })) {
    if (event.type === "step") losses.push(event.loss);
  }
  await Array.fromAsync(run({ directory: from, overwrite: true }, { steps: 3 }));
  // Five actions a step: the fault is in the third one.
  const faults = [{ kind: "throw", worker: 0, afterActions: 12 }] as const;
  const again: number[] = [], failures: string[] = [];
  const options = { faults, resume: from };
  for await (const event of run({ directory: join(folder, "to") }, options)) {
    if (event.type === "failure") failures.push(event.reason);
    if (event.type !== "step") continue;
    again.push(event.loss);
    if (event.step === 4) Deno.removeSync(from, ALL);
  }
  assert.deepEqual([again, failures.length], [losses.slice(3), 1]);
});

folderTest("a checkpoint that was begun is whole when the loop is left", async (directory) => {
  for await (const event of run({ directory, every: 2 })) {
    if (event.type === "step" && event.step === 3) break;
  }
  assert.deepEqual(await namesIn(directory), [stepAt(2)]);
  assert.equal(await stepIn(directory), 2);
});

folderTest("a configuration is kept unchanged, or refused immediately", async (folder) => {
  const circular: Record<string, unknown> = {};
  circular.self = circular;
  const throwing = Object.defineProperty({}, "size", { get: assert.fail, enumerable: true });
  const runTo = (config: unknown) => run({ directory: folder, config } as never, { steps: 1 });
  await assertRefused("configurations", [
    () => runTo({ size: 1n }).next(),
    () => runTo(circular).next(),
    () => runTo([1]).next(),
    () => runTo(undefined).next(),
    () => runTo(throwing).next(),
  ]);
  assert.deepEqual(await namesIn(folder), []);
  const { end } = await trainRings({ checkpoint: { directory: join(folder, "none") } });
  const kept = Object.keys((await readCheckpoint(end.checkpoint!))!.config);
  assert.deepEqual(kept, ["progress", "computedOn"], "none is needed");
  const config: Record<string, unknown> = { sizes: { hidden: 8 } };
  for await (const _ of runTo(config)) config.sizes = 9n;
  assert.deepEqual((await readCheckpoint(folder))!.config.sizes, { hidden: 8 });
});

/** Learns a batch by heart up to step 6; then the weights, and so the evaluations, stay the same. */
const learning = (options: Partial<TrainOptions>) =>
  trainRings({
    ...{ data: Array<Batch>(20).fill(batch(0)), steps: 12, microBatches: 1, workers: 1 },
    learningRate: (step) => step <= 6 ? 0.01 : 0,
    ...options,
  });

const endOf = ({ end: { steps, isStoppedEarly, isInterrupted, best, weightsHash } }: Outcome) => ({
  ...{ steps, isStoppedEarly, isInterrupted, best, weightsHash },
});

const evaluationsOf = ({ events }: Outcome) => eventsOf(events, "evaluation");

const evaluation = { every: 2, batches: [batch(0)] };

Deno.test("a run ends when as many evaluations as its patience have not improved on the best", async () => {
  const all = evaluationsOf(await learning({ evaluation }));
  assert.ok(all.every(({ best }) => best === undefined), "the best was not asked for");
  const losses = all.map(({ loss }) => loss);
  for (const patience of [1, 2, 3]) {
    const run = await learning({ evaluation: { ...evaluation, atStart: true, patience } });
    const [first, ...evaluations] = evaluationsOf(run), { weightsHash: _, ...end } = endOf(run);
    assert.equal(first!.best, undefined, "the first weights are not the run's own");
    const since = evaluations.map(({ best }) => best!.since);
    assert.deepEqual(since, [0, 0, 0, ...[1, 2, 3].slice(0, patience)]);
    const best = { step: 6, loss: losses[2], checkpoint: null }, isStoppedEarly = patience < 3;
    assert.deepEqual(end, { steps: 6 + 2 * patience, isStoppedEarly, isInterrupted: false, best });
  }
});

folderTest("the best checkpoint is kept beside the newest, and named", async (directory) => {
  const checkpoint = { directory, config: {}, keep: 1, keepBest: true };
  const run = await learning({ evaluation, checkpoint });
  const written = eventsOf(run.events, "checkpoint")
    .map(({ step, isBest }) => `${step}${isBest ? " best" : ""}`);
  assert.deepEqual(written, ["2 best", "4 best", "6 best", "12"]);
  assert.deepEqual(await namesIn(directory), ["best.json", stepAt(6), "step-00000012"]);
  const best = { step: 6, loss: evaluationsOf(run)[2]!.loss };
  const path = join(directory, stepAt(6));
  assert.deepEqual(run.end.best, { ...best, checkpoint: path });
  assert.deepEqual(await readBest(directory), { ...best, checkpoint: stepAt(6) });
  assert.equal(await stepIn(path), 6);
  assert.equal(await stepIn(directory), 12, "the newest unless it is named");
});

folderTest("a run resumed from any step remembers the best", async (folder) => {
  const patient = { evaluation: { ...evaluation, patience: 2 } };
  const place = (name: string | number) => ({
    checkpoint: { directory: join(folder, `${name}`), config: {}, keepBest: true, keep: 1 },
  });
  const ended = endOf(await learning({ ...patient, ...place("whole") }));
  for (const cut of [1, 2, 5, 6, 9]) {
    const { checkpoint, checkpoint: { directory } } = place(cut);
    await learning({ ...patient, checkpoint, steps: cut });
    const resume = await readCheckpoint(directory);
    const again = endOf(await learning({ ...patient, checkpoint, resume }));
    const best = { ...ended.best!, checkpoint: join(directory, stepAt(6)) };
    assert.deepEqual(again, { ...ended, best }, `from step ${cut}`);
    assert.deepEqual(await namesIn(directory), await namesIn(join(folder, "whole")));
  }
});

folderTest("elsewhere only a better one is kept, and patience stays used up", async (folder) => {
  const to = (name: string) => ({ directory: join(folder, name), config: {}, keepBest: true });
  await learning({ evaluation, checkpoint: to("first"), steps: 6 });
  const resume = await readCheckpoint(join(folder, "first"));
  const { end } = await learning({ evaluation, checkpoint: to("second"), resume });
  assert.deepEqual([end.best!.step, end.best!.checkpoint], [6, null]);
  assert.deepEqual(await namesIn(join(folder, "second")), ["step-00000012"]);
  const last = await readCheckpoint(join(folder, "second"));
  const patient = { ...evaluation, patience: 3 };
  const over = await learning({ evaluation: patient, resume: last, steps: 20 });
  assert.deepEqual(over.events.map(({ type }) => type), ["plan", "end"]);
  assert.equal(over.end.isStoppedEarly, true);
});

folderTest("progress that is none is refused, and a wrong best overwritten", async (directory) => {
  const to = { directory, config: {} };
  await learning({ evaluation, checkpoint: { ...to, keepBest: true }, steps: 2 });
  const resume = (await readCheckpoint(directory))!, progress = resume.config.progress as object;
  const right = { step: 2, loss: 1, since: 0 };
  const wrongs = [{ step: 3 }, { loss: "1" }, { since: -1 }].map((one) => ({ ...right, ...one }));
  const bests = [null, {}, 3, ...wrongs].map((best) => ({ best }));
  const datas = [7, null, {}, { microBatches: -1, state: 1 }, { microBatches: 2 ** 60, state: 1 }];
  for (const forged of [...bests, ...datas.map((data) => ({ data }))]) {
    const config = { ...resume.config, progress: { ...progress, ...forged } };
    const refusal =
      /^RangeError: Cannot resume: the progress of step 2 must be that of a run, received /;
    await assert.rejects(learning({ resume: { ...resume, config } }), refusal);
  }
  await learning({ checkpoint: { ...to, overwrite: true }, steps: 1 });
  assert.deepEqual(await namesIn(directory), [stepAt(1)]);
  const place = `"checkpoint":"${stepAt(1)}"`;
  const numbers = ['"step":"1","loss":1', '"step":1', '"step":-1,"loss":1'].map((one) =>
    `{${one},${place}}`
  );
  const elsewhere = '{"step":1,"loss":1,"checkpoint":"../elsewhere"}';
  for (const wrong of ["", "[]", ...numbers, elsewhere, " ".repeat(2 ** 17)]) {
    await Deno.writeTextFile(join(directory, "best.json"), wrong);
    assert.equal(await readBest(directory), undefined, wrong.slice(0, 80));
  }
});

const hashOf = async (options: Partial<TrainOptions>) =>
  (await trainRings({ steps: 6, ...options })).bits.hash;

Deno.test("a learning rate that a function gives has the bits of the schedule that it follows", async () => {
  const linear = { rate: 0.1, schedule: "linear", warmup: 2, minRate: 0.02 } as const;
  const own = (step: number) => step <= 2 ? 0.05 * step : 0.02 + 0.08 * (1 - (step - 3) / 4);
  const hash = await hashOf({ learningRate: own });
  assert.equal(hash, await hashOf({ learningRate: linear }));
  assert.notEqual(hash, await hashOf({ learningRate: 0.1 }));
});

folderTest("a resumed run continues its learning rate, of any kind", async (folder) => {
  const linear = { rate: 0.1, schedule: "linear", warmup: 2, minRate: 0.01 } as const;
  for (const [i, learningRate] of [linear, (step: number) => 0.1 / step].entries()) {
    const directory = join(folder, `${i}`);
    const hash = await hashOf({ learningRate, checkpoint: { directory, every: 2, config: {} } });
    for (const step of [2, 4]) {
      const resume = await readCheckpoint(join(directory, stepAt(step)));
      assert.equal(await hashOf({ learningRate, resume }), hash, `from step ${step}`);
    }
  }
});

folderTest(
  "a run resumed with other threads or precision says that bits change",
  async (directory) => {
    const short = { device: "native", steps: 1 } as const, checkpoint = { directory, config: {} };
    const { end } = await trainRings({ ...short, threads: 2, checkpoint });
    assert.deepEqual([end.threads, end.choice.threads], [2, 2]);
    const resume = (await readCheckpoint(directory))!;
    assert.deepEqual(resume.config["computedOn"], { device: "native", threads: 2 });
    // A checkpoint from before threads were configurable.
    const old = { ...resume, config: { ...resume.config, computedOn: { device: "native" } } };
    const CASES = [
      [resume, 2],
      [resume, 1, "native with 2 threads", "native"],
      [old, 1],
      [old, 3, "native", "native with 3 threads"],
    ] as const;
    for (const [from, threads, before, now] of CASES) {
      const lines: string[] = [], announce = (line: string) => void lines.push(line);
      await trainRings({ ...short, threads, steps: 2, resume: from, announce });
      const change =
        `The checkpoint was computed on ${before}: the bits of a run that continues on ${now} differ.`;
      assert.deepEqual(lines, now ? [change] : []);
    }
    const lines: string[] = [], announce = (line: string) => void lines.push(line);
    await trainRings({
      ...short,
      precision: "fp16",
      checkpoint: { ...checkpoint, overwrite: true },
    });
    for (const precision of ["fp16", "fp32"] as const) {
      const from = (await readCheckpoint(directory))!;
      await trainRings({ ...short, precision, steps: 2, resume: from, announce });
    }
    const on = "native with fp16: the bits of a run that continues on native differ.";
    assert.deepEqual(lines, [`The checkpoint was computed on ${on}`]);
  },
);
