import { atDepth } from "../../depth.ts";
import assert from "node:assert/strict";
import { join } from "node:path";
import { train } from "../../../actors/run/train.ts";
import { EVENT_FILE } from "../../../actors/run_folder/metrics_file.ts";
import { nativeLibraryPath } from "../../../kernels/devices/cpu/ort_library.ts";
import { gpt2, heldOutBatches, tokenBatches } from "../../../kernels/mod.ts";
import { folderTest, namesIn } from "../../in_folder.ts";
import { testNeeding } from "../../needs.ts";
import { denoFolder } from "../../kernels/files/edited_cache_helper.ts";
import {
  inFolder,
  jsonLines,
  printedHere,
  readJson,
  refusal,
  runHere,
  runTrain,
  someTokens,
  TINY,
  trainHere,
  words,
  writeTokens,
} from "../command.ts";
import { CLEAR, hasTerminals, inTerminal, type Shown } from "../terminal.ts";

/** Output of `deno task train`: lines of JSON for programs, text for people. */

const STEP = ["step", "loss", "gradNorm", "tokensPerSecond"];
const EVALUATION = ["step", "evalLoss"];
const DONE = [
  ...["done", "device", "runtime", "schedule", "workers", "steps", "seconds", "peakActivations"],
  ...["weightsHash", "checkpoint"],
];

folderTest("--json prints steps, evaluations and a last line, in full", async (folder) => {
  const tokens = await writeTokens(folder, someTokens(300)), out = join(folder, "out");
  const flags = words`--json --tokens ${tokens} --steps 4 --eval-every 2 --out ${out} --order fifo`;
  const run = await runHere(["train", ...TINY, ...flags]);
  assert.deepEqual([run.code, run.stderr], [0, ""]);
  const lines = jsonLines(run.stdout), keys = lines.map((line) => Object.keys(line));
  assert.deepEqual(keys, [STEP, STEP, EVALUATION, STEP, STEP, EVALUATION, DONE]);
  assert.deepEqual(lines.map(({ step }) => step), [1, 2, 2, 3, 4, 4, undefined]);

  const library = await libraryRun();
  assert.deepEqual(lines.flatMap(({ loss, evalLoss }) => loss ?? evalLoss ?? []), library.losses);
  for (const { tokensPerSecond } of lines.slice(0, 2)) assert.ok(tokensPerSecond as number > 0);
  const { seconds, ...done } = lines.at(-1)!;
  assert.ok(seconds as number > 0);
  assert.deepEqual(done, {
    ...{ done: true, device: "reference", runtime: "workers", schedule: "message-driven" },
    ...{ workers: 2, steps: 4, peakActivations: [2, 1], weightsHash: library.weightsHash },
    checkpoint: join(out, "step-00000004"),
  });
});

folderTest("a run that stops improving ends well and names its best checkpoint", async (folder) => {
  const tokens = await writeTokens(folder, someTokens(1000)), out = join(folder, "out");
  // The learning rate is 0, so no evaluation is better than the first.
  const train = words`train ${TINY} --tokens ${tokens} --steps 9 --lr 0 --runtime local
    --eval-every 1 --keep-best --patience 2 --keep 1`;
  const lines = jsonLines(await printedHere(...train, "--json", "--out", out));
  const { steps, stoppedEarly, best, checkpoint } = lines.at(-1)!;
  const loss = lines.find(({ evalLoss }) => evalLoss !== undefined)!.evalLoss as number;
  const [first, third] = [1, 3].map((step) => join(out, `step-0000000${step}`));
  assert.deepEqual([steps, stoppedEarly, checkpoint], [3, true, third]);
  assert.deepEqual(best, { step: 1, loss, checkpoint: first });
  const noted = { step: 1, loss, checkpoint: "step-00000001" };
  assert.deepEqual(await readJson(out, "best.json"), noted);
  const said = await printedHere(...train, "--out", join(folder, "words"));
  const shown = loss.toFixed(3), path = join(folder, "words", "step-00000001");
  const told = [
    `after step 3: held-out loss ${shown}; ${shown} after step 1 stays best`,
    `checkpoint ${path}, the best so far`,
    "ended early, because no evaluation after step 1 was better",
    `best held-out loss ${shown} after step 1: ${path}`,
  ];
  for (const line of told) assert.ok(said.includes(`${line}\n`), `${line}: ${said}`);
});

/** A small run without a command line. */
const CUT = { seq: 8, vocabularySize: 256, microBatch: 2, microBatches: 2 };
const library = (count: number) => ({
  model: gpt2({ layers: 1, hidden: 16, heads: 2, seq: 8, vocab: 256 }, 2),
  data: tokenBatches({ ...CUT, tokens: Int32Array.from(someTokens(count)), steps: 4 }),
  ...{ steps: 4, microBatches: 2, device: "reference" as const },
});

/** The run of the first test with the defaults of the library. */
async function libraryRun() {
  const tokens = Int32Array.from(someTokens(300)).subarray(4 * 2 * 2 * 8), losses: number[] = [];
  const evaluation = { every: 2, batches: heldOutBatches({ ...CUT, tokens }) };
  const options = { ...library(300), runtime: "serial", learningRate: 0.002, evaluation } as const;
  for await (const event of train(options)) {
    if (event.type === "step" || event.type === "evaluation") losses.push(event.loss);
    if (event.type === "end") return { losses, weightsHash: event.weightsHash };
  }
  throw new Error("a run must end with an end event");
}

folderTest("the text has the plan, the loss, the checkpoint, and a sample", async (folder) => {
  const text = join(folder, "fox.txt"), out = join(folder, "out");
  await Deno.writeTextFile(text, "The quick brown fox jumps over the lazy dog. ".repeat(20));
  const flags = words`--text ${text} --steps 2 --out ${out} --runtime local`;
  const run = await runHere(["train", ...TINY, ...flags]);
  assert.deepEqual([run.code, run.stderr], [0, ""]);
  const inOrder = [
    /^gpt: 11,632 parameters, 2 stages$/m,
    /^ {2}stage 0 on worker 0: embedding, block 0 \(7,504 parameters, \d+ % of the work\)$/m,
    /^ {2}stage 1 on worker 1: head \(4,128 parameters, \d+ % of the work\)$/m,
    /^schedule message-driven, 2 micro-batches a step, device reference, runtime local$/m,
    /^after step 0: held-out loss 5\.\d\d\d$/m,
    /^step 1\/2 {2}loss 5\.\d\d\d {2}\d+ tokens\/s$/m,
    /^step 2\/2 /m,
    /^2 steps in \d+\.\d s on reference$/m,
    new RegExp(`^checkpoint ${RegExp.escape(join(out, "step-00000002"))}$`, "m"),
    /^A sample:\nThe /m,
  ];
  const places = inOrder.map((pattern) => run.stdout.search(pattern));
  assert.ok(places.every((place) => place >= 0), run.stdout);
  assert.deepEqual(places, places.toSorted((a, b) => a - b));
  const on = words`--resume ${out} --text ${text} --steps 5 --device reference --runtime local`;
  assert.match(await printedHere("train", ...on), /^3 steps in \d+\.\d s on reference$/m);
});

/** Output of a run on terminals of any width, after Ctrl-C, without colours and in pipes. */

/** A run on a text, with messages between its steps and a sample at the end. */
async function args(folder: string, steps: number): Promise<string[]> {
  const text = join(folder, "text.txt");
  await Deno.writeTextFile(text, "To be, or not to be, that is the question. ".repeat(2000));
  const paths = ["--text", text, "--out", join(folder, "out"), "--overwrite"];
  return ["train", ...TINY, ...paths, "--steps", String(steps), "--eval-every", "4"];
}

/** Control characters except line feeds and tabs, which a text may have. */
const CONTROLS = /(?![\n\t])\p{Cc}/u;

function test(name: string, fn: (folder: string) => Promise<void>): void {
  testNeeding({ isThere: hasTerminals, reason: "script of util-linux" }, name, () => inFolder(fn));
}

/** Returns the progress line at a width. */
const LINES: Record<number, RegExp> = {
  24: /^\d+\/\d+ {2}loss \d\.\d+$/,
  60: /^step .* tokens\/s/,
  80: /░ {2}loss .* tokens\/s/,
  120: /░{8}.* {2}loss .* tokens\/s {2}[\dhms]+$/,
};

/** Checks all output of a terminal: the progress line, and the final rows. */
function assertReadable({ text, rows }: Shown, columns: number): void {
  const whole = text.replaceAll(CLEAR, "").replaceAll("^C", "").replaceAll("\r\n", "\n");
  assert.equal(whole.match(CONTROLS), null, text);
  const lines = text.split(CLEAR).slice(1).map((line) => line.split("\r\n")[0]!)
    .filter((line) => /\d\/\d+ /.test(line));
  assert.ok(lines.length > 1 && lines.every((line) => [...line].length <= columns - 3), text);
  assert.ok(lines.some((line) => LINES[columns]!.test(line)), `${columns}: ${lines.join("\n")}`);
  // Messages of the run remain, and the progress line is gone.
  const said = rows.join("\n");
  assert.match(said, /^after step 4: held-out\s+loss [\d.]+$/m);
  assert.doesNotMatch(said, /[█░]|\d\/\d+ |tokens\/s|\^C/);
}

for (const columns of atDepth([120], [60, 80, 120])) {
  test(`a run in ${columns} columns leaves no trace of the progress line`, async (folder) => {
    const shown = await inTerminal(await args(folder, 12), { columns });
    assert.equal(shown.code, 0, shown.text);
    assertReadable(shown, columns);
    assert.match(shown.rows.join("\n"), /^A sample:$/m);
  });
}

test("Ctrl-C during the progress line leaves complete rows of 24 columns, and no ^C", async (folder) => {
  const how = { columns: 24, interruptAt: /after step 4[^]*\d+\/5000/ };
  const shown = await inTerminal(await args(folder, 5000), how);
  assert.equal(shown.code, 130, shown.text);
  assertReadable(shown, 24);
  const { rows } = shown;
  assert.match(rows.join(" ").replace(/ +/g, " "), /Finishing the step under way; press Ctrl-C/);
  const said = rows.join("");
  assert.match(said, /Interrupted after step \d+; resume with: /);
  assert.equal(said.match(/checkpoint/g)!.length, 1);
  assert.equal(rows.at(-1), "", "the cursor is at the start of a row");
});

test("with NO_COLOR and on a dumb terminal there are no control characters", async (folder) => {
  for (const env of atDepth([{ NO_COLOR: "1" }], [{ NO_COLOR: "1" }, { TERM: "dumb" }])) {
    const { code, text } = await inTerminal(await args(folder, 2), { columns: 60, env });
    assert.equal(code, 0, text);
    assert.equal(text.replaceAll("\r\n", "\n").match(CONTROLS), null, JSON.stringify(text));
    assert.match(text, /step 2\/2 {2}loss [\d.]+ {2}\d+ tokens\/s/);
  }
});

/** Metrics for other programs: a collector of OpenTelemetry, and TensorBoard. */

const trainOn = async (folder: string, steps: number) =>
  words`${TINY} --tokens ${await writeTokens(folder, someTokens(1000))} --runtime local
    --steps ${steps} --eval-every 2 --lr-schedule linear`;

folderTest("a collector of OpenTelemetry gets the last metrics as gauges", async (folder) => {
  const gauges = new Map<string, number>(), units = new Map<string, string>();
  const collect = async (request: Request) => {
    const { resourceMetrics = [] }: Values = await request.json();
    const scopes: Values[] = resourceMetrics.flatMap((one: Values) => one.scopeMetrics);
    const own = scopes.filter(({ scope }) => scope.name === "troupe");
    for (const { name, unit, gauge } of own.flatMap(({ metrics }) => metrics)) {
      for (const { asDouble } of gauge?.dataPoints ?? []) gauges.set(name, asDouble);
      if (unit) units.set(name, unit);
    }
    return Response.json({});
  };
  const where = { hostname: "127.0.0.1", port: 0, onListen: () => {} };
  await using collector = Deno.serve(where, collect);
  const { code, stdout, stderr } = await runTrain([...await trainOn(folder, 3), "--json"], {
    ...{ OTEL_DENO: "true", OTEL_EXPORTER_OTLP_PROTOCOL: "http/json" },
    OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${collector.addr.port}`,
  });
  assert.equal(code, 0, stderr);
  const lines = jsonLines(stdout), last = lines.findLast(({ loss }) => loss !== undefined)!;
  const { evalLoss } = lines.findLast(({ evalLoss }) => evalLoss !== undefined)!;
  const expected = {
    ...{ step: 3, loss: last.loss, grad_norm: last.gradNorm, tokens: 3 * 2 * 2 * 8 },
    ...{ "eval.loss": evalLoss, "eval.perplexity": Math.exp(evalLoss as number) },
    ...{ learning_rate: 0.002 * (1 - 2 / 3), loss_scale: 1 },
    tokens_per_second: last.tokensPerSecond,
  };
  for (const [name, value] of Object.entries(expected)) {
    assert.equal(gauges.get(`troupe.train.${name}`), value, name);
  }
  assert.equal(units.get("troupe.train.memory.program"), "By");
});

// deno-lint-ignore no-explicit-any -- A request of another program.
type Values = any;

folderTest("--log tensorboard writes to the folder of a run, which must be", async (folder) => {
  const train = await trainOn(folder, 2), out = join(folder, "out");
  const events = async () => (await namesIn(out)).filter((name) => EVENT_FILE.test(name)).length;
  await trainHere([...train, "--out", out, "--log", "tensorboard"]);
  assert.equal(await events(), 1);
  const resume = ["--resume", out, ...train.slice(train.indexOf("--tokens"))];
  await trainHere(words`${resume} --steps 3 --device reference --report_to tensorboard`);
  assert.equal(await events(), 2, "a resumed run has one more");
  await trainHere([...train, "--out", out, "--overwrite"]);
  assert.equal(await events(), 0, "those of a removed run are removed");
  const nowhere = "Cannot use --log tensorboard: --out must say where its files go, received none";
  assert.equal(await refusal([...train, "--json", "--log", "tensorboard"]), nowhere);
  const { stderr } = await runHere(["train", ...train, "--json", "--checkpoint-every", "1"]);
  assert.match(stderr, /^--checkpoint-every has no effect: with --json, --out names /);
});

/** Environment variables with the folders for files of a program. */
const homeIn = (home: string, temporary: string) => ({
  ...{ HOME: home, USERPROFILE: home, LOCALAPPDATA: join(home, "local") },
  ...{ XDG_CACHE_HOME: join(home, "cache"), XDG_CONFIG_HOME: join(home, "config") },
  ...{ XDG_DATA_HOME: join(home, "data"), TMPDIR: temporary, TMP: temporary, TEMP: temporary },
  // The environment of the tests may have disabled it.
  ORT_DISABLE_TELEMETRY: "0",
});

for (const how of ["native --isolation process", "wasm --runtime local"]) {
  folderTest(`a run on ${how} leaves no file at home or among temporary files`, async (folder) => {
    await nativeLibraryPath(); // what is fetched, is fetched from the home that knows how
    const out = join(folder, "out"), home = join(folder, "home"), temporary = join(folder, "tmp");
    for (const path of [home, temporary]) await Deno.mkdir(path);
    const train = words`${TINY} --tokens ${await writeTokens(folder, someTokens(600))} --out ${out}
      --steps 2 --device ${how.split(" ")}`;
    const env = { ...homeIn(home, temporary), DENO_DIR: await denoFolder() };
    const { code, stdout, stderr } = await runTrain(train, env);
    assert.equal(code, 0, stderr);
    assert.equal((stdout + stderr).match(CONTROLS), null, "in a pipe");
    assert.deepEqual([await namesIn(home), await namesIn(temporary)], [[], []]);
    assert.deepEqual(await namesIn(out), ["metrics.jsonl", "run.json", "step-00000002"]);
  });
}
