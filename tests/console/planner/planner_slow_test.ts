/** `troupe profile` and `troupe plan`. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { readProfile } from "../../../actors/planner/profile.ts";
import { troupe } from "../../../console/mod.ts";
import { describeChecked, describeProfile } from "../../../console/commands/profile.ts";
import { readTrainFlags } from "../../../console/train/request.ts";
import { statedProfile, withDearHead } from "../../actors/planner/stated_profile.ts";
import { folderTest } from "../../in_folder.ts";
import {
  printedHere,
  refusalHere,
  refusedHere,
  runHere,
  runProgram,
  TINY,
  trainHere,
  words,
} from "../command.ts";
import { HANG_LIMIT_MS } from "../../hang_limit.ts";
import { assertRefusals } from "../refusals.ts";
import { Running } from "../running.ts";

const SIZES = { layers: 2, hidden: 16, heads: 2, seq: 8, vocab: 256 };

const MODEL = Object.entries(SIZES).flatMap(([name, value]) => [`--${name}`, `${value}`]);

/** The flags of a small run of one step. */
const SMALL = "--steps 1 --device reference --runtime local --json".split(" ");

/** Writes a profile of the model; returns the command that plans with it. */
async function planIn(folder: string, change: object = {}): Promise<string[]> {
  const path = join(folder, "profile.json");
  await Deno.writeTextFile(path, JSON.stringify({ ...statedProfile(SIZES, 2), ...change }));
  return ["plan", ...MODEL, "--batch", "8", "--profile", path];
}

folderTest("plans are printed and written as JSON, with reasons", async (folder) => {
  const args = await planIn(folder), few = ["--schedules", "1f1b,zb-h1"];
  const table = await printedHere(...args, ...few);
  assert.match(table, /^8 samples a step on 2 devices of a made-up cluster \(stated\):$/m);
  assert.match(table, /^ 1 {2}\S.*%\s+[\d.–]+$/m);
  assert.match(table, /^ 2 {2}\S.* more/m);
  const text = await printedHere(...args, ...few, "--format", "json");
  const { format, version, devices, batch, plans, searched } = JSON.parse(text);
  assert.deepEqual([format, version, devices, batch], ["troupe-plan", 1, 2, 8]);
  const { candidates, unserved, tooLarge, tooLong, simulated, untried } = searched;
  assert.equal(unserved + tooLarge + tooLong + simulated + untried, candidates);
  assert.equal(plans[0].reason, null);
  for (const { workers, replicas, microBatch, microBatches, reason } of plans.slice(1)) {
    assert.ok(workers * replicas <= 2);
    assert.equal(replicas * microBatch * microBatches, 8);
    assert.match(reason, /more|long/);
  }
  const emitted = await printedHere(...args, ...few, "--emit", "3");
  const [, words] = /^deno task train (.*)\n$/.exec(emitted)!;
  const ran = await printedHere("train", ...words!.split(" "), ...SMALL);
  assert.equal(JSON.parse(ran.split("\n")[0]!).step, 1);
});

folderTest("trials of schedules show the costs of their profile", async (folder) => {
  const profile = (await planIn(folder)).at(-1)!, out = join(folder, "trials.json");
  const args = "schedule jitter --workers 2 --micro-batches 2 --candidates bfw --draws 1".split(
    " ",
  );
  const { stderr } = await runHere([...args, "--profile", profile, "--out", out]);
  assert.equal(stderr, `Wrote ${out}\n`);
  const [{ costs }] = JSON.parse(await Deno.readTextFile(out));
  assert.deepEqual([costs.forward, costs.input > 0, costs.weight > 0], [1, true, true]);
});

folderTest("a plan with jitter has the mean of steps whose actions take longer", async (folder) => {
  const args = [...await planIn(folder), "--schedules", "1f1b", "--workers", "2", "--json"];
  const plans = (jitter: string) => printedHere(...args, "--jitter", jitter).then(JSON.parse);
  const [even, varied] = [await plans("0"), await plans("0.5")];
  assert.deepEqual([even.jitter, varied.jitter], [0, 0.5]);
  const [a, b] = [even.plans[0], varied.plans[0]], work = ({ parts }: typeof a) => parts.busyMs;
  assert.ok(Math.abs(work(b) / work(a) - 1.25) < 1e-6, `${work(b)} for ${work(a)} ms of work`);
  assert.ok(b.parts.bubbleMs > 1.25 * a.parts.bubbleMs); // the later of two inputs is awaited
  await refusedHere([...args, "--jitter", "-1"], /--jitter: it must be a number from 0, received/);
});

folderTest("a profile that varies too much does not rank plans, and says so", async (folder) => {
  const one = { microBatch: 1, recompute: "none", atOnce: 1, p10Ms: 1, medianMs: 2, p90Ms: 3 };
  const args = await planIn(folder, { spread: [one] });
  const table = await printedHere(...args, "--schedules", "1f1b,zb-h1");
  assert.match(table, /^note: the times of the profile vary by ±50 %, too much to rank plans: /m);
  await refusedHere(await planIn(folder, { spread: "x" }), /: spread must be [^,]*, received /);
});

folderTest("a plan uses the profile's model, and its best so far is reported", async (folder) => {
  const kept = { model: "gpt", ...SIZES, vocab: 40, tie: true };
  const [plan, ...args] = await planIn(folder, { model: kept });
  const own = args.slice(MODEL.length), few = ["--schedules", "1f1b,gpipe,zb-h1", "--json"];
  const results: string[] = [], signal = new AbortController().signal;
  const soFar = ({ text }: { text: string }) => Promise.resolve(void results.push(text));
  assert.equal(await troupe([plan!, ...own, ...few], { begin: () => {}, signal, soFar }), 0);
  const bestMs = results.map((text) => JSON.parse(text).plans[0].stepMs);
  assert.ok(bestMs.length > 0);
  assert.deepEqual(bestMs, bestMs.toSorted((a, b) => b - a));
  const { model } = JSON.parse(results[0]!), sizes = Object.entries({ ...SIZES, vocab: 40 });
  assert.deepEqual(model, ["--model=gpt", ...sizes.map((one) => `--${one.join("=")}`), "--tie"]);

  const other = await runHere([plan!, ...own, ...few, "--seq", "16", "--no-tie"]);
  assert.ok(JSON.parse(other.stdout).model.includes("--seq=16"));
  const note = (flag: string, own: string) =>
    `note: the profile is of --${flag} ${own}: costs are scaled, or missing\n`;
  const notes = note("seq", "8, the plan of 16") + note("tie", "true, the plan of false");
  assert.equal(other.stderr, notes);
  const stranger = await planIn(folder, { model: { model: "./mine.ts", layers: 2 ** 40 } });
  const refusal = /^Cannot use --model of .*profile.json: it must be one of/;
  await refusedHere([plan!, ...stranger.slice(1 + MODEL.length)], refusal);
});

folderTest("what remains after losses is printed and written as JSON", async (folder) => {
  const args = [...await planIn(folder), "--workers", "1", "--lose", "1"];
  const table = await printedHere(...args);
  assert.match(table, /^lost +workers +pipelines +depth .*\n +0 +2 +2 +1 /m);
  assert.match(table, /^ +1 +1 +1 +1 +2 .* restart$/m);
  const { afterLosses: [full, one] } = JSON.parse(await printedHere(...args, "--json"));
  assert.deepEqual([full.speed, full.nextLoss], [1, "resize"]);
  const { losses, pipelines, depth, copies, speed, samplesPerSecond } = one;
  assert.deepEqual([losses, pipelines, depth, copies], [1, 1, 1, 2]);
  assert.equal(speed, samplesPerSecond / full.samplesPerSecond);
});

folderTest("a chosen layout is shown, emitted, and trained", async (folder) => {
  const { layers } = withDearHead(statedProfile(SIZES, 2), 8);
  const args = [...await planIn(folder, { layers }), "--workers", "2", "--schedules", "1f1b"];
  const said = JSON.parse(await printedHere(...args, "--json"));
  const { plans: [{ layout, train, command }], notes } = said;
  assert.deepEqual(notes, []);
  assert.match(layout, /^E,.*\|/);
  assert.equal((await readTrainFlags(train)).flags.layout, layout);
  assert.ok(command.includes(` --layout '${layout}'`), command);
  assert.ok((await printedHere(...args)).includes(`1f1b, layout ${layout}`));
  await printedHere("train", ...train, ...SMALL);
});

folderTest("plans for more devices than train supports have a note", async (folder) => {
  const more = "--devices 512 --batch 512 --schedules 1f1b --workers 2".split(" ");
  const [plan, ...args] = await planIn(folder),
    flags = args.filter((one, i) => one !== "--batch" && args[i - 1] !== "--batch");
  const { stdout, stderr } = await runHere([plan!, ...flags, ...more, "--emit"]);
  assert.match(stdout, /^deno task train [^\n]*--replicas 256[^\n]*\n$/);
  assert.match(stderr, /troupe train takes at most 256 workers/);
});

folderTest("an impossible plan is refused in one sentence", async (folder) => {
  const places = { FOLDER: folder, PLAN: (await planIn(folder)).join(" ") };
  await assertRefusals("plan", refusalHere, places);
  await refusedHere(await planIn(folder, { version: 2 }), /its version must be 1, received 2/);
});

folderTest("layers, sizes, transports and policies are measured", async (folder) => {
  const out = join(folder, "machine.json");
  const model = "--layers 1 --hidden 16 --heads 2 --seq 8 --vocab 32 --device reference";
  const how = "--rounds 1 --micro-batch-size 2 --workers 1 --recompute none,full";
  const said = await printedHere("profile", "--out", out, ...`${model} ${how}`.split(" "));
  const { source, layers, links, closing, model: kept, spread = [] } = readProfile(out);
  assert.equal(source, "measured");
  const sizes = { layers: 1, hidden: 16, heads: 2, seq: 8, vocab: 32 };
  assert.deepEqual(kept, { model: "gpt", ...sizes });
  const ways = spread.map(({ recompute, atOnce }) => [recompute, atOnce]);
  assert.deepEqual(ways, [["none", 1], ["full", 1]]);
  for (const { p10Ms, medianMs, p90Ms, cpuShare } of spread) {
    assert.ok(0 < p10Ms && p10Ms <= medianMs && medianMs <= p90Ms);
    assert.ok(0 < cpuShare! && cpuShare! <= 1);
  }
  const names = new Set(layers.map((one) => `${one.kind} ${one.microBatch} ${one.recompute}`));
  const all = ["embedding 2 none", "attention 2 none", "mlp 2 none", "head 2 none"];
  for (const one of [...all, "attention 2 full"]) assert.ok(names.has(one), one);
  assert.ok(layers.every(({ forwardMs, backwardMs }) => forwardMs > 0 && backwardMs > 0));
  assert.deepEqual(Object.keys(links), ["local", "worker", "process"]);
  assert.ok(closing.vote.msPerMillion > 0);
  assert.match(said, /^layer +device +B /m);
});

folderTest("after a signal, a profile has the rounds before it", async (folder) => {
  const out = join(folder, "machine.json");
  const small = words`--layers 1 --hidden 16 --heads 2 --seq 8 --device reference --workers 1`;
  const args = words`--micro-batch-size 1 --out ${out} ${small} --rounds 99`;
  const profile = new Running(["run", "-A", "cli.ts", "profile", ...args]);
  await profile.printed("stderr", /^round 2 of 99$/m);
  profile.interrupt("process", "SIGTERM");
  assert.equal((await profile.end(HANG_LIMIT_MS)).code, 130);
  assert.equal(readProfile(out).source, "measured");
});

folderTest("a profile is made from a trace of train", async (folder) => {
  const trace = join(folder, "trace.json"), out = join(folder, "profile.json");
  await trainHere([...TINY, "--steps", "3", "--workers", "2", "--trace", trace]);
  const args = ["profile", "--from-trace", trace, "--out", out];
  await printedHere(...args);
  await refusedHere([...args, "--micro-batch", "3"], /must be that of its run, 2, received 3$/);
  const pipe = join(folder, "pipe"); // opening one waits for its other end
  await runProgram("mkfifo", [pipe]);
  const ofPipe = ["profile", "--from-trace", trace, "--out", pipe];
  await refusedHere(ofPipe, /: it must be a file that can be written, received a pipe$/);
  const { source, layers, machine, links } = readProfile(out);
  assert.equal(source, "trace");
  const kinds = layers.map(({ kind, sizes }) => `${kind} ${sizes.stage}`);
  assert.deepEqual(kinds, ["stage 0", "stage 1"]);
  assert.deepEqual([layers[0]!.device, layers[0]!.microBatch], ["reference", 2]);
  assert.equal(machine.cores, 2);
  assert.deepEqual(Object.keys(links), ["local"]);
  // The first traces do not describe their stages, so they have no costs.
  const text = await Deno.readTextFile(trace);
  await Deno.writeTextFile(trace, text.replace(',"microBatch":2', ""));
  const refusal = /--micro-batch-size must be .*, which the file does not say, received none$/;
  await refusedHere(args, refusal);
  await printedHere(...args, "--micro-batch-size", "2");
  await Deno.writeTextFile(trace, text.replace(/"shares":\[[^\]]*\],/, ""));
  await refusedHere(args, /the trace must have stages/);
});

Deno.test("an impossible profile is refused before any measurement", () =>
  assertRefusals("profile", (words) => refusalHere(["profile", ...words])));

Deno.test("a large error is explained by the parts of the step", () => {
  const times = { busyMs: 80, dispatchMs: 1, messageMs: 2, bubbleMs: 10, closingMs: 7 };
  const parts = { ...times, actions: { "0F": 10 } };
  const step = {
    ...{ configuration: "1f1b D=2 B=4", measured: 100, spread: 2, predicted: 120, error: 0.2 },
    parts: { measured: parts, predicted: { ...parts, busyMs: 100 } },
    notes: ["scaled: mlp"],
  };
  const [first, ...lines] = describeChecked(step, false);
  assert.equal(first, "1f1b D=2 B=4: measured 100.0 ± 2.0 ms, predicted 120.0 (+20.0 %): missed");
  assert.match(lines.join("\n"), /busy +80\.00 +100\.00/);
  assert.match(lines.join("\n"), /0F +10\.00 +10\.00/);
  assert.equal(describeChecked({ ...step, predicted: 99, error: 0.01 }, true).length, 2);
});

Deno.test("a link has a bandwidth if messages are copied", () => {
  const profile = statedProfile(SIZES, 2), worker = { latencyMs: 0.1 };
  const links = { worker, process: { latencyMs: 0.2, bytesPerMs: 2e6 } };
  const text = describeProfile({ ...profile, links }).join("\n");
  assert.match(text, /worker +0\.100 +moved/);
  assert.match(text, /process +0\.200 +2\.00/);
});

folderTest("SIGTERM and --time-limit end a long plan with the best so far", async (folder) => {
  const many = "--layers 192 --devices 1024 --batch 8192".split(" ");
  const [, , , ...args] = await planIn(folder),
    profile = ["--profile", join(folder, "profile.json")];
  const plan = ["plan", ...many, ...args.slice(0, -4), ...profile, "--time-limit"];
  const long = new Running(["run", "-A", "cli.ts", ...plan, "300"]);
  await long.printed("stderr", /^bounds: \d+ of \d+$/m);
  long.interrupt("process", "SIGTERM");
  await long.end(HANG_LIMIT_MS);
  assert.match(long.stdout, /^The best:\n {2}deno task train /m);
  const { stdout } = await runHere([...plan, "1"]);
  assert.match(stdout, /[1-9]\d* not tried within the time limit\.$/m);
});

Deno.test("a check says that it is not calibrated while other programs compute", async () => {
  const busy = [...Array(navigator.hardwareConcurrency)].map(() =>
    new Deno.Command(Deno.execPath(), { args: ["eval", "for (;;);"] }).spawn()
  );
  try {
    const { code, stderr } = await runHere(["profile", "check", "--seed", "1"]);
    assert.equal(code, 1);
    assert.match(stderr, /^not calibrated: other programs use \d+\.\d % of this machine$/m);
  } finally {
    for (const one of busy) one.kill();
    await Promise.all(busy.map(({ status }) => status));
  }
});
