/** Folders of runs are read, listed, compared and drawn; invalid files are refused. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { lockFolder } from "../../../actors/checkpoints/lock.ts";
import type { Metrics } from "../../../actors/options/train_options.ts";
import { drawLosses, openCurve, readCurves, textChart } from "../../../console/run_files/losses.ts";
import {
  continueMetrics,
  createMetrics,
  readMetrics,
  RUN_FILES,
  type RunRecord,
} from "../../../actors/run_folder/metrics_file.ts";
import {
  makeRunFolder,
  nextRunFolder,
  readRun,
  summarizeRun,
} from "../../../actors/run_folder/read.ts";
import { folderTest, namesIn } from "../../in_folder.ts";
import { jsonLines, printedHere, refusalHere, runHere } from "../command.ts";
import { assertRefusals, assertSentences } from "../refusals.ts";
import { writeCheckpoint } from "../../actors/checkpoints/write.ts";

const PLAN = {
  ...{ schedule: "1f1b", runtime: "local", parameters: 1234, replicas: 1 },
  stages: [{ stage: 0, workers: [0], layers: ["all"], parameters: 1234, costShare: 1 }],
} as unknown as RunRecord["plan"];

/** A record with the fields that are read. */
const RECORD = {
  ...{ format: "troupe run", version: 1, model: "gpt", started: "2026-01-02T03:04:05.678Z" },
  ...{ flags: { steps: 40, lr: 0.001, out: "a" }, data: { name: "sotu" } },
  ...{ schedule: { name: "1f1b", hash: "00" }, plan: PLAN },
  starts: [],
} as const;

/** The record of a step, or of an evaluation after it. */
const measured = (step: number, loss: number, type: Metrics["type"] = "step"): Metrics => ({
  ...{ type, step, time: 0, seconds: step, tokens: 8 * step, rss: 0 },
  ...type === "evaluation" ? { evalLoss: loss } : { loss, tokensPerSecond: 100 * step },
});

/** Writes the folder of a run. */
async function writeRun(path: string, metrics: readonly Metrics[], record = {}): Promise<string> {
  await Deno.mkdir(path, { recursive: true });
  const text = JSON.stringify({ ...RECORD, ...record });
  await Deno.writeTextFile(join(path, RUN_FILES.record), text);
  const lines = metrics.map((one) => JSON.stringify(one) + "\n").join("");
  await Deno.writeTextFile(join(path, RUN_FILES.metrics), lines);
  return path;
}

const METRICS = [
  ...[measured(1, 5), measured(1, 4.5, "evaluation"), measured(2, 4)],
  ...[measured(2, 4.75, "evaluation"), measured(3, 3)],
];

const metricsIn = (path: string) => Array.from(readMetrics(path), ({ metrics }) => metrics);

folderTest("a summary has the progress, the loss and the speed of a run", async (folder) => {
  const path = await writeRun(join(folder, "gpt-1"), METRICS);
  const expected = {
    ...{ name: "gpt-1", path, state: "stopped", steps: 3, asked: 40, loss: 3, bestEvalLoss: 4.5 },
    ...{ tokensPerSecond: 200, model: "gpt", parameters: 1234, started: RECORD.started },
  };
  assert.deepEqual(summarizeRun(await readRun(path)), expected);
  {
    using _lock = lockFolder(path);
    assert.equal(summarizeRun(await readRun(path)).state, "running");
  }
  const states = { finished: "finished", "stopped early": "finished", interrupted: "stopped" };
  for (const [reason, state] of Object.entries(states)) {
    await writeRun(path, METRICS, { end: { reason, step: 7 } });
    assert.deepEqual(summarizeRun(await readRun(path)), { ...expected, state, steps: 7 });
  }
});

folderTest("reading the lock of a run does not block other runs", async (folder) => {
  const path = await writeRun(join(folder, "run"), []);
  for (let i = 0; i < 10; i++) {
    using _lock = lockFolder(path);
    assert.equal((await readRun(path)).isRunning, true);
  }
  await Deno.writeTextFile(join(path, ".lock"), "pid 1 on nowhere\n"); // of a run that was killed
  assert.equal((await readRun(path)).isRunning, false);
});

folderTest("an incomplete line is read when it is complete", async (folder) => {
  const path = await writeRun(folder, METRICS), file = join(path, RUN_FILES.metrics);
  const line = JSON.stringify(measured(4, 2)) + "\n";
  await Deno.writeTextFile(file, line.slice(0, 20), { append: true });
  const lines = [...readMetrics(path)];
  assert.deepEqual(lines.map(({ metrics: { step } }) => step), [1, 1, 2, 2, 3]);
  await Deno.writeTextFile(file, line.slice(20), { append: true });
  const more = [...readMetrics(path, lines.at(-1)!.end)];
  assert.deepEqual(more.map(({ metrics }) => metrics), [measured(4, 2)]);
});

folderTest("long lines are read completely, without invalid numbers", async (folder) => {
  const memory = Array.from({ length: 9000 }, (_, worker) => worker);
  const long = { ...measured(1, 5), memory }, path = await writeRun(folder, [long, long, long]);
  assert.deepEqual(metricsIn(path), [long, long, long]);
  const strange = { ...measured(2, 0), loss: null, gradNorm: "x", memory: ["x"], more: {} };
  await writeRun(path, [strange as never]);
  const { loss: _, ...numbers } = measured(2, 0);
  assert.deepEqual(metricsIn(path), [numbers]);
});

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

folderTest("metrics continue after a step, and an evaluation is written once", async (folder) => {
  const path = join(folder, "metrics.jsonl"), fail = (line: string) => assert.fail(line);
  const goOn = (after: number, ...more: Metrics[]) => {
    using file = continueMetrics(path, after, fail);
    more.forEach((one) => file.add(one));
  };
  const all = [
    ...[measured(0, 6, "evaluation"), measured(1, 5), measured(2, 4)],
    ...[measured(2, 4.5, "evaluation"), measured(3, 3), measured(4, 2)],
  ];
  {
    using file = createMetrics(path, fail);
    all.forEach((one) => file.add(one));
  }
  assert.throws(() => createMetrics(path, fail), Deno.errors.AlreadyExists);
  const third = [measured(3, 3), measured(3, 3.5, "evaluation")];
  goOn(2, measured(2, 4.5, "evaluation"), ...third); // as a run that goes on begins
  assert.deepEqual(metricsIn(folder), [...all.slice(0, 4), ...third]);
  goOn(1, measured(1, 4, "evaluation")); // of a step that was not evaluated before
  assert.deepEqual(metricsIn(folder), [...all.slice(0, 2), measured(1, 4, "evaluation")]);
  goOn(2, measured(2, 3, "evaluation")); // the last line is of an earlier step
  assert.deepEqual(metricsIn(folder).at(-1), measured(2, 3, "evaluation"));
  await Deno.writeTextFile(path, "no line\n");
  assert.throws(() => continueMetrics(path, 2, fail), /^SyntaxError: .*each line must be a JSON/);
  assert.equal(await Deno.readTextFile(path), "no line\n");
});

folderTest("a refused run leaves no folder, and no number is used twice", async (folder) => {
  const runs = join(folder, "runs");
  {
    using first = makeRunFolder("gpt", runs);
    assert.equal(first.path, join(runs, "gpt-1"));
    await Deno.writeTextFile(join(first.path, "mine"), "");
    using _second = makeRunFolder("gpt", runs);
    await Deno.mkdir(join(runs, "gpt-41"));
  }
  assert.deepEqual(await namesIn(runs), ["gpt-1", "gpt-41"]);
  const next = ["gpt", "../../etc", "/"].map((model) => nextRunFolder(model, runs));
  assert.deepEqual(next, ["gpt-42", "etc-1", "run-1"].map((name) => join(runs, name)));
  await Deno.writeTextFile(join(folder, "file"), "");
  const noFolder = /^RangeError: Cannot begin a run: .*file must be a writable folder, .*Not a dir/;
  assert.throws(() => makeRunFolder("gpt", join(folder, "file")), noFolder);
  // Another refused run removes the empty folder at the worst moment, once.
  const { mkdirSync } = Deno, others = join(folder, "others");
  Deno.mkdirSync = (path, options) => {
    if (!options) {
      Deno.mkdirSync = mkdirSync;
      Deno.removeSync(others);
    }
    mkdirSync(path, options);
  };
  assert.equal(makeRunFolder("gpt", others).path, join(others, "gpt-1"));
});

/** Reads what a run has left, and expects a refusal in one sentence. */
async function refused(path: string): Promise<string> {
  const error = await readRun(path).then(summarizeRun).catch((error: Error) => error);
  assert.ok(error instanceof Error, `${path} must be refused`);
  assert.match(error.message, /^Cannot [^\n]+$/);
  return error.message;
}

/** Invalid fields of records. */
const STRANGE_RECORDS = [
  ...[{ version: 2 }, { version: "\n" }, { flags: [] }, { plan: null }, { end: 7 }],
  ...[{ starts: [1] }, { model: 7 }, { format: "other" }, { started: "today" }],
  ...[{ data: { name: "sotu", hash: 7 } }, { end: { reason: "finished", step: -1 } }],
  { starts: [{ afterStep: 0, command: ["train", 7], environment: {} }] },
  ...[{ plan: { ...PLAN, replicas: 0 } }, { plan: { ...PLAN, stages: Array(2 ** 16).fill({}) } }],
  { flags: JSON.parse(`{"lr": ${"[".repeat(5000)}${"]".repeat(5000)}}`) },
];

/** Invalid lines of metrics. */
const STRANGE_LINES = [
  ...["\u001b[31m\n", "[1]\n", `{"step":1,"type":"other"}\n`, `{"step":-1,"type":"step"}\n`],
  ...["x".repeat(3 << 20), `{"step":${"[".repeat(1e5)}${"]".repeat(1e5)}}\n`],
];

folderTest("other folders and invalid files of runs are refused", async (folder) => {
  const found: [string, string][] = [];
  const refuse = async (about: string, path: string) => found.push([about, await refused(path)]);
  await refuse("nothing", join(folder, "none"));
  await refuse("an empty folder", folder);
  await Deno.writeTextFile(join(folder, "file"), "");
  await refuse("a file", join(folder, "file"));
  await refuse("a folder of something else", folder);
  for (const record of STRANGE_RECORDS) {
    await refuse(
      JSON.stringify(record).slice(0, 200),
      await writeRun(join(folder, "strange"), METRICS, record),
    );
  }
  const path = await writeRun(join(folder, "lines"), METRICS);
  for (const line of STRANGE_LINES) {
    await Deno.writeTextFile(join(path, RUN_FILES.metrics), line);
    await refuse(JSON.stringify(line.slice(0, 40)), path);
  }
  await assertSentences("strange_runs", found, { FOLDER: folder });
});

folderTest("links in a run and records of any size are not read", async (folder) => {
  const secret = join(folder, "secret"), path = await writeRun(join(folder, "run"), METRICS);
  const record = join(path, RUN_FILES.record), metrics = join(path, RUN_FILES.metrics);
  const noRecord = /run.json": it must be written by a run of Troupe/;
  await Deno.writeTextFile(secret, JSON.stringify(RECORD));
  await Deno.remove(record);
  await Deno.symlink(secret, record);
  assert.match(await refused(path), noRecord);
  await Deno.remove(record);
  using file = await Deno.open(record, { write: true, createNew: true });
  await file.truncate(2 ** 34);
  assert.match(await refused(path), noRecord);

  await writeRun(path, []);
  await Deno.remove(metrics);
  await Deno.writeTextFile(secret, JSON.stringify(measured(1, 1)) + "\n");
  await Deno.symlink(secret, metrics);
  assert.deepEqual(metricsIn(path), []);
});

const falling = (count: number) =>
  Array.from({ length: count }, (_, i) => [
    measured(i + 1, 5 - i / count),
    ...i % 10 === 0 ? [measured(i + 1, 5.5 - i / count, "evaluation")] : [],
  ]).flat();

Deno.test("a curve has a bounded number of points, each the mean of its steps", () => {
  for (const count of [1, 7, 8, 9, 1000, 12_345]) {
    const curve = openCurve(8);
    for (let step = 1; step <= count; step++) curve.add({ step, loss: 3 * step });
    const points = curve.points();
    assert.ok(points.length >= Math.min(count, 8) && points.length <= 16, `${points.length}`);
    assert.ok(points.every(({ step, loss }) => Math.abs(loss - 3 * step) < 1e-6));
    const gaps = points.slice(1).map(({ step }, i) => step - points[i]!.step);
    const [each = 1] = gaps, last = points.at(-1)!.step;
    assert.ok(gaps.slice(0, -1).every((gap) => gap === each), `${gaps}`);
    assert.equal(points[0]!.step, (1 + each) / 2);
    assert.ok(last <= count && last > count - each, `the last of ${count} is at ${last}`);
  }
});

folderTest("runs are listed, with errors of others", async (folder) => {
  for (const n of [1, 2, 10]) await writeRun(join(folder, `gpt-${n}`), falling(n));
  await writeRun(join(folder, "new"), [], { version: 9 });
  await Deno.mkdir(join(folder, "other"));
  const { code, stdout, stderr } = await runHere(["runs", folder]);
  assert.equal(code, 0, stderr);
  assert.match(stderr, /^Cannot read \S+run.json: version must be 1, received 9\n$/);
  const started = "gpt  1,234  2026-01-02 03:04";
  assert.deepEqual(stdout.trimEnd().split("\n").map((line) => line.replaceAll(/  +/g, "  ")), [
    "run  state  steps  loss  best held-out  tokens/s  model  parameters  started (UTC)",
    `gpt-1  stopped  1/40  5.000  5.500  100  ${started}`,
    `gpt-2  stopped  2/40  4.500  5.500  200  ${started}`,
    `gpt-10  stopped  10/40  4.100  5.500  600  ${started}`,
  ]);
  const [json] = jsonLines(await printedHere("runs", join(folder, "gpt-10"), "--json"));
  assert.equal(json!.steps, 10);
  const none = await printedHere("runs", join(folder, "other"));
  assert.match(none, /^No runs in \S+; begin one with: /);
});

folderTest("losses are drawn for light and dark pages, with a description", async (folder) => {
  const run = await readRun(await writeRun(join(folder, "a<b>&c"), falling(2000)));
  const svg = drawLosses(readCurves(run));
  assert.match(svg, /^<svg [^>]*role="img"><title>Loss of a&lt;b&gt;&amp;c<\/title>/);
  assert.match(svg, /<desc>[^<]*: loss from 5.000 at step \d+ to 4.00\d at step \d+;/);
  assert.match(svg, /@media \(prefers-color-scheme:dark\)/);
  for (const text of ["optimizer step", "loss (nats a prediction)", "held-out loss"]) {
    assert.ok(svg.includes(`>${text}<`), text);
  }
  assert.doesNotMatch(svg, /<b>|<script|href="http|url\(/);
  assert.ok(svg.length < 100_000, "however long a run was");
  const paths = [...svg.matchAll(/<path [^>]*stroke="(#\w+)"/g)].map(([, colour]) => colour);
  assert.ok(paths.includes("#0072b2") && paths.includes("#d55e00"), `${paths}`);
});

folderTest("runs are compared by results, configuration and losses", async (folder) => {
  const [one, two] = [join(folder, "one"), join(folder, "two")], out = join(folder, "both.svg");
  await writeRun(one, falling(30));
  await writeRun(two, falling(20), { flags: { steps: 40, lr: 0.01, out: "b" } });
  const said = await printedHere("compare", one, two, "--out", out);
  assert.match(said, /\nloss +4.0333 +4.0500\n/);
  assert.match(said, /\nWhat differs in how they were made:\nlr +0.001 +0.01\n\n$/);
  assert.match(await Deno.readTextFile(out), />1: one<[^]*>2: two</);
  const same = await printedHere("compare", one, one);
  assert.match(same, /\nThey were made in the same way\.\n\nloss \(nats a prediction\)\n/);
  for (const record of [{ model: "own" }, { model: "gpt", flags: { loss: "mse" } }]) {
    await writeRun(two, falling(20), record);
    assert.match(await printedHere("plot", two), /^loss\n/, "of any kind");
    assert.match(await printedHere("compare", one, two), /\n\nloss\n/, "not all are nats");
  }

  const [first, second] = [await readRun(one), await readRun(two)].map((run) => readCurves(run));
  const chart = textChart([...first!, ...second!], 40);
  assert.ok(chart.every((line) => [...line].length <= 40), chart.join("\n"));
  assert.deepEqual(chart.slice(-2), ["  · one, o held-out", "  + two, x held-out"]);
  assert.ok("·o+x".split("").every((mark) => chart.slice(0, 13).join("").includes(mark)));
  assert.match(chart[1]!, /^ *5\.500 ┤/);
  assert.match(chart[12]!, /^ *4\.033 ┤ {10,}\+[ ·+]*·$/, "each run ends at its lowest loss");
});

folderTest("extreme numbers of an untrusted run do not break charts", async (folder) => {
  const losses = [1e308, -1e308, 1e99, -1e99, 1, 1e-320].map((loss, i) => measured(i + 1, loss));
  const far = measured(Number.MAX_SAFE_INTEGER, 1);
  const run = await readRun(await writeRun(folder, [...losses, far]));
  const curves = readCurves(run);
  assert.equal(curves[0]!.training.length, 5);
  assert.ok(textChart(curves, 30).every((line) => [...line].length <= 40));
  assert.match(drawLosses(curves), /^<svg [^]*<\/svg>\n$/);
  assert.equal(summarizeRun(run).steps, Number.MAX_SAFE_INTEGER);
});

folderTest("a picture that cannot be drawn or written is refused", async (folder) => {
  await writeRun(join(folder, "empty"), []);
  await writeRun(join(folder, "run"), falling(3));
  await assertRefusals("pictures", refusalHere, { FOLDER: folder });
});

folderTest("a metric of the model is drawn in place of the loss", async (folder) => {
  const metrics = falling(4).map((one) => ({ ...one, metrics: { accuracy: 1 / one.step } }));
  const run = await readRun(await writeRun(join(folder, "run"), metrics));
  const svg = drawLosses(readCurves(run, "accuracy"));
  assert.match(svg, /<title>Accuracy of run<.*: accuracy from 1.000 at step 1 to 0.250 at step 4/);
  assert.match(await printedHere("plot", run.path, "--metric", "accuracy"), /^accuracy\n 1.000 ┤/);
  assert.throws(() => readCurves(run, "f1"), /must have the metric "f1", received none/);
});
