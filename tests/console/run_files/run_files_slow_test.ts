/** The files of a run, and the folders in which runs start, end and resume. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { readCheckpoint } from "../../../actors/checkpoints/read.ts";
import { readMetrics, type RunRecord } from "../../../actors/run_folder/metrics_file.ts";
import { readRecord } from "../../../actors/run_folder/read.ts";
import { DIGITS_SHA256 } from "../../../kernels/data/digits.ts";
import { createSchedule, formatCsv } from "../../../schedules/mod.ts";
import { HANG_LIMIT_MS } from "../../hang_limit.ts";
import { folderTest, namesIn } from "../../in_folder.ts";
import {
  jsonLines,
  type Outcome,
  readJson,
  refuses,
  ROOT,
  runHere,
  runProgram,
  runWithin,
  savedIn,
  someTokens,
  TINY,
  trainHere,
  words,
  writeTokens,
} from "../command.ts";
import { Running, TRAIN } from "../running.ts";

/** Flags of a run on tokens, without its folder and steps. */
const trainOn = async (folder: string) =>
  words`${TINY} --tokens ${await writeTokens(folder, someTokens(64_001))}`;

/** Registers a test of a run with its folder. */
const runTest = (
  name: string,
  fn: (train: readonly string[], out: string, folder: string) => Promise<void>,
) =>
  folderTest(name, async (folder) => {
    const out = join(folder, "out");
    await fn([...await trainOn(folder), "--out", out], out, folder);
  });

const metricsIn = (out: string) => Array.from(readMetrics(out), ({ metrics }) => metrics);

const stepsIn = (out: string) =>
  metricsIn(out).filter(({ type }) => type !== "evaluation").map(({ step }) => step);

const upTo = (steps: number) => Array.from({ length: steps }, (_, i) => i + 1);

runTest("run.json describes a run from its flags to its end", async (train, out, folder) => {
  const how = words`--workers 2 --schedule 1f1b --steps 2 --runtime local`;
  const { last } = await trainHere([...train, ...how]), record = readRecord(out)!;
  const { lists } = createSchedule("1f1b", { workers: 2, microBatches: 2 });
  const sha256 = (bytes: string | Uint8Array) => createHash("sha256").update(bytes).digest("hex");
  const hash = sha256(await Deno.readFile(join(folder, "tokens.bin")));
  assert.deepEqual(record.schedule, { name: "1f1b", hash: sha256(formatCsv(lists!)) });
  assert.deepEqual(record.data, { name: "tokens", hash });
  const [{ command, afterStep, environment }] = record.starts as [RunRecord["starts"][0]];
  assert.deepEqual([command, afterStep], [[...train, ...how, "--json"], 0]);
  const { deno, device, onnxruntime } = environment;
  assert.deepEqual([deno, device, onnxruntime], [Deno.version.deno, "reference", undefined]);
  assert.deepEqual([record.flags.hidden, record.flags.lr, record.flags.workers], [16, 0.002, 2]);
  assert.equal(record.plan.parameters, 11_632);
  const { reason, step, weightsHash } = record.end!;
  assert.deepEqual([reason, step, weightsHash], ["finished", 2, last.weightsHash]);
  const digits = join(folder, "digits"), mlp = words`--model mlp --hidden 8 --micro-batch-size 2`;
  await trainHere(words`${mlp} --device reference --steps 1 --out ${digits}`);
  assert.deepEqual(readRecord(digits)!.data, { name: "mnist", hash: DIGITS_SHA256 });
});

runTest("metrics.jsonl has each step once after a kill", async (train, out) => {
  const every = ["--checkpoint-every", "3"];
  const endless = words`${train} ${every} --steps 2000 --json --runtime local`;
  const run = new Running([...TRAIN, ...endless]);
  await run.printed("stdout", /"step":10,/);
  run.kill();
  const { stdout } = await run.end(HANG_LIMIT_MS);
  const printed = jsonLines(stdout.slice(0, stdout.lastIndexOf("\n") + 1));
  const before = stepsIn(out), { length } = before;
  assert.deepEqual(before, upTo(length));
  assert.ok(length >= printed.length, `${length} of ${printed.length} that were printed`);
  // As a kill amid a line would leave it.
  await Deno.writeTextFile(join(out, "metrics.jsonl"), '{"type":"step","st', { append: true });
  const more = ["--steps", `${length + 2}`, "--resume", out];
  const { lines } = await trainHere([...train, ...every, ...more]);
  assert.deepEqual(stepsIn(out), upTo(length + 2));
  const losses = new Map([...printed, ...lines].map(({ step, loss }) => [step, loss]));
  for (const { step, loss } of metricsIn(out)) {
    assert.equal(loss, losses.get(step) ?? loss, `step ${step}`);
  }
  const { starts, end } = readRecord(out)!;
  assert.deepEqual([starts.length, starts[1]!.afterStep % 3, end!.reason], [2, 0, "finished"]);
});

folderTest("a disk that is full for metrics does not stop the run", async (folder) => {
  if (Deno.build.os === "windows") return;
  const out = join(folder, "out"), steps = 90;
  const tokens = await writeTokens(folder, someTokens(4000, 16));
  const small = words`${TINY} --hidden 8 --vocab 16 --tokens ${tokens} --steps ${steps}`;
  // 16 KiB: enough for a checkpoint, and too few for the lines of all steps.
  const args = words`train ${small} --out ${out} --runtime local --json`;
  const { code, stderr } = await runWithin(32, args);
  assert.equal(code, 0, stderr);
  assert.match(stderr, /^Cannot write \S+metrics.jsonl: .*; training continues without it\n$/);
  const left = stepsIn(out);
  assert.ok(left.length > 30 && left.length < steps, `${left.length}`);
  assert.deepEqual(left, upTo(left.length));
  assert.ok((await Deno.readTextFile(join(out, "metrics.jsonl"))).endsWith("}\n"));
  assert.deepEqual(await savedIn(out), ["step-00000090"]);
  assert.equal(readRecord(out)!.end!.reason, "finished");
});

runTest("files removed during a run are reported once and created again", async (train, out) => {
  const metrics = join(out, "metrics.jsonl"), recursive = true, steps = 20;
  for (const [path, ...said] of [[metrics, metrics], [out, metrics, `${out} or its lock`]]) {
    await Deno.mkdir(out, { recursive });
    await Deno.remove(out, { recursive });
    const watch = setInterval(() => {
      if (!existsSync(metrics) || stepsIn(out).length < 3) return;
      clearInterval(watch);
      Deno.removeSync(path!, { recursive });
    }, 0);
    const how = words`--steps ${steps} --runtime local --json --log tensorboard`;
    const { code, stderr } = await runHere(["train", ...train, ...how]);
    assert.equal(code, 0, stderr);
    const lines = stderr.trimEnd().split("\n");
    assert.deepEqual(lines.map((line) => line.split(" was removed during the run: ")[0]), said);
    const left = stepsIn(out), first = left[0]!;
    assert.ok(first > 3, `step ${first}`);
    assert.ok(lines[0]!.endsWith(`it continues from step ${first}`), lines[0]);
    assert.deepEqual(left, upTo(steps).slice(first - 1));
    assert.deepEqual([readRecord(out)!.end!.step, existsSync(join(out, ".lock"))], [steps, false]);
    assert.equal((await savedIn(out)).filter((name) => name.startsWith("events.out")).length, 1);
  }
  await trainHere([...train, "--resume", out, "--steps", `${steps + 1}`]);
  assert.equal(stepsIn(out).at(-1), steps + 1);
});

runTest("a disk that is full for run.json is refused, and all files stay", async (train, out) => {
  if (Deno.build.os === "windows") return;
  await trainHere([...train, "--steps", "2"]);
  const before = await Deno.readTextFile(join(out, "run.json")), names = await namesIn(out);
  const resume = [...train, "--resume", out, "--steps", "4", "--json", "--runtime", "local"];
  const { code, stdout, stderr } = await runWithin(2, ["train", ...resume]);
  assert.deepEqual([code, stdout], [2, ""], stderr);
  const said = /^Cannot begin the run in \S+: its disk must be writable and have room, [^\n]+\n$/;
  assert.match(stderr, said);
  assert.equal(await Deno.readTextFile(join(out, "run.json")), before);
  assert.deepEqual(await namesIn(out), names);
});

runTest("files of other programs are neither written nor removed", async (train, out, folder) => {
  const victim = join(folder, "victim"), one = [...train, "--steps", "1"];
  const ways: readonly (readonly [name: string, make: (path: string) => Promise<void>])[] = [
    ["run.json", (path) => Deno.writeTextFile(path, `{"scripts":{}}`)],
    ["run.json", (path) => Deno.writeTextFile(path, `{"format":"troupe ru`)],
    ["metrics.jsonl", (path) => Deno.writeTextFile(path, "mine")],
    ["metrics.jsonl", (path) => Deno.symlink(victim, path)],
    ["timeline.jsonl", (path) => Deno.mkdir(path)],
    ["run.json", (path) => Deno.symlink(victim, path)],
  ];
  for (const [name, make] of ways) {
    await Deno.mkdir(out);
    await Deno.writeTextFile(victim, "mine");
    await make(join(out, name));
    const must = RegExp(
      `^Cannot begin a run in \\S+: ${name} in it must be written by a run, received `,
    );
    for (const more of [[], ["--overwrite"], ["--resume", out]]) {
      await refuses([...one, ...more], must);
    }
    assert.deepEqual(await namesIn(out), [name]);
    assert.equal(await Deno.readTextFile(victim), "mine");
    await Deno.remove(out, { recursive: true });
  }
  // A link in the place of a file that a run has left.
  await trainHere(one);
  await Deno.remove(join(out, "metrics.jsonl"));
  await Deno.symlink(victim, join(out, "metrics.jsonl"));
  const resume = [...train, "--resume", out, "--steps", "2"];
  await refuses(resume, /received no regular file/);
  assert.equal(await Deno.readTextFile(victim), "mine");
});

runTest("a record of another version can only be overwritten", async (train, out) => {
  const path = join(out, "run.json"), one = [...train, "--steps", "1"];
  await trainHere(one);
  await Deno.writeTextFile(path, JSON.stringify({ ...await readJson(path), version: 2 }));
  const version = /^Cannot read \S+run.json: version must be 1, received 2$/;
  await refuses([...train, "--resume", out, "--steps", "2"], version);
  await trainHere([...one, "--overwrite"]);
  assert.equal(readRecord(out)!.version, 1);
});

runTest("a run of Troupe 0.1 resumes, and then has the files of a run", async (train, out) => {
  await trainHere([...train, "--steps", "2"]);
  for (const name of ["run.json", "metrics.jsonl"]) await Deno.remove(join(out, name));
  await trainHere([...train, "--steps", "4", "--resume", out]);
  assert.deepEqual(stepsIn(out), [3, 4]);
  assert.deepEqual(readRecord(out)!.starts.map(({ afterStep }) => afterStep), [2]);
});

runTest("run.json does not record an overwrite", async (train, out) => {
  for (const more of [[], ["--overwrite"]]) await trainHere([...train, "--steps", "1", ...more]);
  const path = join(out, "step-00000001", "config.json"), config = await readJson(path);
  assert.equal(config.run.overwrite, undefined);
  await Deno.writeTextFile(path, JSON.stringify({ ...config, run: { overwrite: true } }));
  const unknown = /every name in it must be one of the flags, received "overwrite"/;
  await refuses([...train, "--config", path], unknown);
});

folderTest("runs without --out get separate folders, also at the same time", async (folder) => {
  const train = words`train ${await trainOn(folder)} --steps 1 --runtime local`;
  const start = async (args: readonly string[]) => {
    const run = words`run -A ${join(ROOT, "cli.ts")} ${args}`;
    const { code, stderr } = await runProgram(Deno.execPath(), run, { cwd: folder });
    assert.equal(code, 0, stderr);
  };
  await Promise.all([start(train), start(train)]);
  assert.deepEqual(await namesIn(join(folder, "runs")), ["gpt-1", "gpt-2"]);
  for (const name of ["gpt-1", "gpt-2"]) {
    const run = join(folder, "runs", name);
    assert.equal((await readCheckpoint(run))!.step, 1);
    assert.equal(readRecord(run)!.end!.reason, "finished");
  }

  await Deno.mkdir(join(folder, "gpt-1")); // another folder of that name, such as one of data
  await Deno.mkdir(join(folder, "empty"));
  const data = words`${train.slice(1)} --steps 2 --trace t.json`.join(" ");
  const lines = [
    ...["plot gpt-1", "compare gpt-1 gpt-2", "runs gpt-1", `train --resume gpt-1 ${data}`],
    ...["trace summary gpt-1", "generate --from gpt-1 --tokens 1 --device reference"],
    ...["export gpt-1 --format onnx --out x.onnx", "trace summary gpt-2"],
    ...[`train --resume gtp-1 ${data}`, `${train.join(" ")} --json`, "runs empty"],
  ];
  const entry = join(ROOT, "tests", "console", "run_files", "commands_entry.ts");
  const run = ["run", "-A", entry, ...lines];
  const { stdout, stderr } = await runProgram(Deno.execPath(), run, { cwd: folder });
  assert.equal(stderr, "");
  const outcomes: Outcome[] = JSON.parse(stdout);
  assert.deepEqual(outcomes.map(({ code }) => code), [0, 0, 0, 0, 0, 0, 0, 2, 2, 0, 0], stdout);
  assert.match(outcomes[3]!.stderr, /Resuming from runs\/gpt-1\/step-00000001, after step 1\./);
  assert.match(outcomes[4]!.stdout, /^gpt, .*: step 2,/);
  assert.match(outcomes[7]!.stderr, /its run must have --trace or --dashboard/);
  assert.match(outcomes[8]!.stderr, /^Cannot resume from "gtp-1": .*; did you mean gpt-1\?$/m);
  const begin = `begin one with: deno run -A ${pathToFileURL(join(ROOT, "cli.ts"))} train\n`;
  assert.ok(outcomes[10]!.stdout.endsWith(begin), "here are no tasks of the repository");
  const limits = pathToFileURL(join(ROOT, "actors", "options", "limits.ts"));
  const removed = `import { commandLine } from "${limits}";
    Deno.removeSync(Deno.cwd());
    console.log(commandLine("runs"));`;
  const cwd = join(folder, "removed"), config = join(ROOT, "deno.json");
  await Deno.mkdir(cwd);
  const said = await runProgram(Deno.execPath(), ["eval", "-c", config, removed], { cwd });
  assert.match(said.stdout, /^deno run -A file:.* runs$/m, said.stderr);
  assert.deepEqual(await namesIn(join(folder, "runs")), ["gpt-1", "gpt-2"], "none with --json");
});

folderTest("threads that create folders at the same time never share one", async (folder) => {
  const count = 50, parent = join(folder, "runs");
  const made = await Promise.all(Array.from({ length: 3 }, async () => {
    const worker = new Worker(new URL("./folders_entry.ts", import.meta.url), { type: "module" });
    const { promise, resolve, reject } = Promise.withResolvers<string[]>();
    worker.onmessage = ({ data }) => resolve(data);
    worker.onerror = ({ message }) => reject(new Error(message));
    worker.postMessage({ parent, count });
    return await promise.finally(() => worker.terminate());
  }));
  assert.equal(new Set(made.flat()).size, 3 * count);
});

runTest("a folder with checkpoints is refused, resumed or overwritten", async (train, out) => {
  const every = ["--checkpoint-every", "1"], notes = join(out, "notes.txt");
  const steps = (count: number, ...more: string[]) => words`${train} --steps ${count} ${more}`;
  const saved = async () => (await savedIn(out)).join().replaceAll("step-0000000", "");
  const first = await trainHere(steps(2, ...every));
  await Deno.writeTextFile(notes, "mine");
  const taken =
    /^Cannot write checkpoints to \S+: the folder must have no checkpoints of another run, received one of step 2; resume it with --resume \S+, remove what is there with --overwrite \(.*\), or name another folder$/;
  await refuses(steps(3), taken);

  await trainHere(steps(3, "--resume", out, ...every));
  assert.equal(await saved(), "notes.txt,1,2,3");
  assert.equal(readRecord(out)!.starts.length, 2);

  // From an earlier step there would be two runs side by side.
  const back = ["--resume", join(out, "step-00000001")];
  const refusal =
    /^Cannot resume from \S+: it must be the newest checkpoint of its folder, received one before step 3; name another folder with --out, or remove the later ones with --overwrite$/;
  await refuses(steps(3, ...back), refusal);
  await trainHere(steps(2, ...back, "--overwrite"));
  assert.equal(await saved(), "notes.txt,1,2");

  const again = await trainHere(steps(2, "--overwrite"));
  assert.equal(again.last.weightsHash, first.last.weightsHash);
  assert.equal(await saved(), "notes.txt,2");
  assert.equal(readRecord(out)!.starts.length, 1);
  assert.equal(await Deno.readTextFile(notes), "mine");
});

folderTest("a run that resumes from another folder writes a new record", async (folder) => {
  const [from, to] = [join(folder, "from"), join(folder, "to")], train = await trainOn(folder);
  await trainHere([...train, "--steps", "1", "--out", from]);
  const on = [...train, "--steps", "2", "--resume", from, "--out", to];
  await trainHere(on);
  const [start] = readRecord(to)!.starts;
  assert.deepEqual([start!.afterStep, start!.from], [1, join(from, "step-00000001")]);
  assert.deepEqual(await savedIn(from), ["step-00000001"]);
  await refuses(on, /^Cannot write checkpoints to \S+to: the folder must have no checkpoints/);
  // The same folder by another name is the same folder.
  const link = join(folder, "link");
  await Deno.symlink(to, link);
  const { last } = await trainHere([...train, "--steps", "3", "--resume", link, "--out", to]);
  assert.equal(last.steps, 3);
  assert.equal(readRecord(to)!.starts.length, 2);
  await trainHere([...on, "--overwrite"]);
  assert.equal(readRecord(to)!.starts.length, 1, "a fresh run in place of the other");
});

runTest("a run without a checkpoint starts again", async (train, out) => {
  await Deno.mkdir(out);
  const one = [...train, "--steps", "1"];
  const failed = await runHere(["train", ...one, "--lr", "1e300", "--runtime", "local"]);
  assert.equal(failed.code, 1, failed.stderr);
  assert.deepEqual(await savedIn(out), []);
  assert.equal(readRecord(out)!.end, undefined);
  await trainHere(one);
  assert.deepEqual(await savedIn(out), ["step-00000001"]);
});
