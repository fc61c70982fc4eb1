import { atDepth, IS_DEEP } from "../../depth.ts";
import assert from "node:assert/strict";
import { join } from "node:path";
import { train } from "../../../actors/mod.ts";
import { EVENT_FILE } from "../../../actors/run/metrics/tensorboard.ts";
import { TRAIN_FLAGS } from "../../../console/train/train_flags.ts";
import { nativeLibraryPath } from "../../../kernels/devices/onnx_runtime/native_library.ts";
import { gpt2, heldOutBatches, tokenBatches } from "../../../kernels/mod.ts";
import { folderTest, namesIn } from "../../in_folder.ts";
import { denoFolder } from "../../kernels/files/edited_cache_helper.ts";
import {
  ENVIRONMENT,
  inFolder,
  jsonLines,
  refusal,
  ROOT,
  runHere,
  runTrain,
  someTokens,
  TINY,
  trainHere,
  writeTokens,
} from "../command.ts";
import { CLEAR, hasTerminals, inTerminal } from "../terminal.ts";

/** What `deno task train` prints: lines of JSON for a program, words for a person. */

const STEP = ["step", "loss", "gradNorm", "tokensPerSecond"];
const EVALUATION = ["step", "evalLoss"];
const DONE = [
  ...["done", "device", "runtime", "schedule", "workers", "steps", "seconds", "peakActivations"],
  ...["weightsHash", "checkpoint"],
];

Deno.test("--json prints steps, the evaluations asked for and one last line, with every digit", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(300)), out = join(folder, "out");
    const run = await runTrain([
      ...TINY,
      ...["--json", "--tokens", tokens, "--steps", "4", "--eval-every", "2", "--out", out],
    ]);
    assert.equal(run.code, 0, run.stderr);
    assert.equal(run.stderr, "");
    const lines = jsonLines(run.stdout);
    const keys = lines.map((line) => Object.keys(line));
    assert.deepEqual(keys, [STEP, STEP, EVALUATION, STEP, STEP, EVALUATION, DONE]);
    assert.deepEqual(lines.map(({ step }) => step), [1, 2, 2, 3, 4, 4, undefined]);

    const library = await libraryRun();
    const numbers = lines.flatMap(({ loss, evalLoss }) => loss ?? evalLoss ?? []);
    assert.deepEqual(numbers, library.losses);
    for (const { tokensPerSecond } of lines.slice(0, 2)) assert.ok(tokensPerSecond as number > 0);
    const { seconds, weightsHash, ...done } = lines.at(-1)!;
    assert.ok(seconds as number > 0);
    assert.equal(weightsHash, library.weightsHash);
    assert.deepEqual(done, {
      done: true,
      device: "reference",
      runtime: "workers",
      schedule: "message-driven",
      workers: 2,
      steps: 4,
      peakActivations: [2, 1],
      checkpoint: join(out, "step-00000004"),
    });
  }));

Deno.test("a run that no longer gets better ends well, and says which checkpoint is the best", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(1000)), out = join(folder, "out");
    // Nothing is learnt, so no evaluation is better than the first.
    const train = [...TINY, "--tokens", tokens, "--steps", "9", "--lr", "0", "--runtime", "local"];
    const best = ["--eval-every", "1", "--keep-best", "--patience", "2", "--keep", "1"];
    const { code, stdout, stderr } = await runHere([
      "train",
      ...train,
      ...best,
      "--json",
      "--out",
      out,
    ]);
    assert.equal(code, 0, stderr);
    const lines = jsonLines(stdout), { steps, stoppedEarly, best: kept, ...done } = lines.at(-1)!;
    const [{ loss }] = lines.flatMap(({ evalLoss }) =>
      evalLoss === undefined ? [] : { loss: evalLoss }
    ) as [{ loss: number }];
    const path = join(out, "step-00000001");
    assert.deepEqual([steps, stoppedEarly, done.checkpoint], [3, true, join(out, "step-00000003")]);
    assert.deepEqual(kept, { step: 1, loss, checkpoint: path });
    assert.deepEqual(JSON.parse(await Deno.readTextFile(join(out, "best.json"))), {
      ...{ step: 1, loss },
      checkpoint: "step-00000001",
    });
    const words = await runHere(["train", ...train, ...best, "--out", join(folder, "words")]);
    assert.equal(words.code, 0, words.stderr);
    const shown = loss.toFixed(3);
    for (
      const line of [
        `after step 3: held-out loss ${shown}; ${shown} after step 1 stays best`,
        `checkpoint ${join(folder, "words", "step-00000001")}, the best so far`,
        "ended early, as no evaluation after step 1 was better",
        `best held-out loss ${shown} after step 1: ${join(folder, "words", "step-00000001")}`,
      ]
    ) assert.ok(words.stdout.includes(`${line}\n`), `${line}: ${words.stdout}`);
  }));

/** The run of the test above, without a command line: with the defaults of both. */
async function libraryRun() {
  const config = { layers: 1, hidden: 16, heads: 2, seq: 8, vocab: 256 };
  const tokens = Int32Array.from(someTokens(300));
  const cut = { seq: 8, vocabularySize: 256, microBatch: 2, microBatches: 2 };
  const losses: number[] = [];
  for await (
    const event of train({
      model: gpt2(config, 2),
      data: tokenBatches({ ...cut, tokens, steps: 4 }),
      steps: 4,
      microBatches: 2,
      device: "reference",
      runtime: "serial",
      learningRate: 0.002,
      evaluation: {
        every: 2,
        batches: heldOutBatches({ ...cut, tokens: tokens.subarray(4 * 2 * 2 * 8) }),
      },
    })
  ) {
    if (event.type === "step" || event.type === "evaluation") losses.push(event.loss);
    if (event.type === "end") return { losses, weightsHash: event.weightsHash };
  }
  throw new Error("a run must end with an end event");
}

Deno.test("a step's line is written before that step's checkpoint commits, and an event tells when it has", () =>
  inFolder(async (folder) => {
    const cut = { seq: 8, vocabularySize: 256, microBatch: 2, microBatches: 2, steps: 4 };
    const seen: string[] = [];
    for await (
      const event of train({
        model: gpt2({ layers: 1, hidden: 16, heads: 2, seq: 8, vocab: 256 }, 2),
        data: tokenBatches({ ...cut, tokens: Int32Array.from(someTokens(200)) }),
        steps: 4,
        microBatches: 2,
        device: "reference",
        runtime: "local",
        checkpoint: { directory: folder, every: 1, config: {} },
      })
    ) {
      if (event.type !== "step" && event.type !== "checkpoint") continue;
      seen.push(`${event.type} ${event.step}`);
      const name = `step-0000000${event.step}`;
      const names = await Array.fromAsync(Deno.readDir(folder), ({ name }) => name);
      assert.equal(names.includes(name), event.type === "checkpoint", seen.at(-1));
    }
    for (const type of ["step", "checkpoint"]) {
      const events = seen.filter((one) => one.startsWith(type));
      assert.deepEqual(events, [1, 2, 3, 4].map((step) => `${type} ${step}`));
    }
  }));

Deno.test("a person reads what will run, the loss, where the checkpoint is, and a sample", () =>
  inFolder(async (folder) => {
    const text = join(folder, "fox.txt"), out = join(folder, "out");
    await Deno.writeTextFile(text, "The quick brown fox jumps over the lazy dog. ".repeat(20));
    const run = await runTrain([...TINY, "--text", text, "--steps", "2", "--out", out]);
    assert.equal(run.code, 0, run.stderr);
    assert.equal(run.stderr, "");
    const inOrder = [
      /^gpt: 11,632 parameters, 2 stages$/m,
      /^ {2}stage 0 on worker 0: embedding, block 0 \(7,504 parameters, \d+ % of the work\)$/m,
      /^ {2}stage 1 on worker 1: head \(4,128 parameters, \d+ % of the work\)$/m,
      /^schedule message-driven, 2 micro-batches a step, device reference, runtime workers$/m,
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

    const on = ["--resume", out, "--text", text, "--steps", "5", "--device", "reference"];
    const { stdout } = await runHere(["train", ...on, "--runtime", "local"]);
    assert.match(stdout, /^3 steps in \d+\.\d s on reference$/m, "those of the time that is told");
  }));

Deno.test("--help lists every flag", async () => {
  const { code, stdout } = await runHere(["train", "--help"]);
  assert.equal(code, 0);
  for (const [name, { help }] of Object.entries(TRAIN_FLAGS)) {
    const line = new RegExp(`^ +--${name}\\b[^\\n]*(\\n +)?${RegExp.escape(help)}`, "m");
    assert.match(stdout, line, name);
  }
});

/** What a run looks like on terminals of any width, after Ctrl-C, without colours and in pipes. */

/** A run on a text, so that it ends with a sample, with something to say between its steps. */
async function args(folder: string, steps: number): Promise<string[]> {
  const text = join(folder, "text.txt");
  await Deno.writeTextFile(text, "To be, or not to be, that is the question. ".repeat(2000));
  const paths = ["--text", text, "--out", join(folder, "out"), "--overwrite"];
  return ["train", ...TINY, ...paths, "--steps", String(steps), "--eval-every", "4"];
}

/** Control characters but line ends, and tabs, which a text may hold. */
const CONTROLS = /(?![\n\t])\p{Cc}/u;

/** All but line ends, as a terminal has them, and what takes the line back that changes. */
const strangeIn = (text: string) =>
  text.replaceAll(CLEAR, "").replaceAll("\r\n", "\n").match(CONTROLS);

/** The same in 24 columns. */
const WRAPPED = /^after step 4: held-out\n {2}loss [\d.]+$/m;

function test(name: string, fn: (folder: string) => Promise<void>): void {
  Deno.test({ name, ignore: !hasTerminals, fn: () => inFolder(fn) });
}

test("the line that changes never fills a row of 24, 60, 80 or 120 columns, and leaves nothing", async (folder) => {
  const least: Record<number, RegExp> = {
    24: /^\d+\/\d+ {2}loss \d\.\d+$/,
    60: /^step .* tokens\/s/,
    80: /░ {2}loss .* tokens\/s/,
    120: /░{8}.* {2}loss .* tokens\/s {2}[\dhms]+$/,
  };
  const widths = Object.keys(least).filter((width) => IS_DEEP || width === "24" || width === "120");
  const shown = widths.map(async (width) => {
    const columns = Number(width), out = join(folder, width);
    await Deno.mkdir(out);
    return { columns, ...await inTerminal(await args(out, 12), { columns }) };
  });
  for (const { columns, code, text, rows } of await Promise.all(shown)) {
    const pattern = least[columns]!;
    assert.equal(code, 0, text);
    assert.equal(strangeIn(text), null, text);
    const lines = text.split(CLEAR).slice(1).map((line) => line.split("\r\n")[0]!)
      .filter((line) => /\d\/12/.test(line));
    assert.ok(lines.length > 1 && lines.every((line) => [...line].length <= columns - 3), text);
    assert.ok(lines.some((line) => pattern.test(line)), `${columns}: ${lines.join("\n")}`);
    // What was said meanwhile stands there in words, and nothing of the line does.
    const said = rows.join("\n");
    assert.match(said, columns >= 60 ? /^after step 4: held-out loss [\d.]+$/m : WRAPPED);
    assert.doesNotMatch(said, /[█░]|\d\/12\b|tokens\/s/);
    assert.match(said, /^A sample:$/m);
  }
});

test("Ctrl-C amid the line that changes leaves whole rows, and no ^C", async (folder) => {
  for (const columns of atDepth([24], [24, 80])) {
    const interruptAt = /\d+\/5000/;
    const { code, text, rows } = await inTerminal(await args(folder, 5000), {
      columns,
      interruptAt,
    });
    assert.equal(code, 130, text);
    assert.equal(strangeIn(text.replaceAll("^C", "")), null, text);
    const said = rows.join("\n");
    assert.doesNotMatch(said, /[█░]|\d\/5000|\^C/);
    assert.match(
      rows.join(" ").replace(/ +/g, " "),
      /Finishing the step under way; press Ctrl-C again/,
    );
    assert.match(said.replaceAll("\n", ""), /Interrupted after step \d+; go on with: /);
    assert.equal(said.replaceAll("\n", "").match(/checkpoint/g)!.length, 1);
    assert.equal(rows.at(-1), "", "the cursor is at the begin of a row");
  }
});

test("with NO_COLOR, on a dumb terminal and in a pipe there is no control character", async (folder) => {
  for (const env of [{ NO_COLOR: "1" }, { TERM: "dumb" }].slice(0, atDepth(1, 2))) {
    const { code, text } = await inTerminal(await args(folder, 2), { columns: 60, env });
    assert.equal(code, 0, text);
    assert.equal(text.replaceAll("\r\n", "\n").match(CONTROLS), null, JSON.stringify(text));
    assert.match(text, /step 2\/2 {2}loss [\d.]+ {2}\d+ tokens\/s/);
  }
  const { code, stdout, stderr } = await runTrain((await args(folder, 2)).slice(1));
  assert.equal(code, 0, stderr);
  assert.equal((stdout + stderr).match(CONTROLS), null);
});

/** What a run tells other programs: a collector of OpenTelemetry's, and TensorBoard. */

const trainOn = async (folder: string, steps: number) => [
  ...[...TINY, "--tokens", await writeTokens(folder, someTokens(1000)), "--runtime", "local"],
  ...["--steps", `${steps}`, "--eval-every", "2", "--lr-schedule", "linear"],
];

/** As much as is read of what OTLP calls an export request, in JSON. */
interface Exported {
  readonly resourceMetrics?: readonly {
    readonly scopeMetrics: readonly {
      readonly scope: { readonly name: string };
      readonly metrics: readonly {
        readonly name: string;
        readonly unit?: string;
        readonly gauge?: { readonly dataPoints: readonly { readonly asDouble: number }[] };
      }[];
    }[];
  }[];
}

folderTest(
  "a collector of OpenTelemetry's gets what a run measured last, as gauges",
  async (folder) => {
    const gauges = new Map<string, number>(), units = new Map<string, string>();
    await using collector = Deno.serve(
      { hostname: "127.0.0.1", port: 0, onListen: () => {} },
      async (request) => {
        const { resourceMetrics = [] }: Exported = await request.json();
        const scopes = resourceMetrics.flatMap(({ scopeMetrics }) => scopeMetrics);
        for (const { metrics } of scopes.filter(({ scope }) => scope.name === "troupe")) {
          for (const { name, unit, gauge } of metrics) {
            for (const { asDouble } of gauge?.dataPoints ?? []) gauges.set(name, asDouble);
            if (unit) units.set(name, unit);
          }
        }
        return Response.json({});
      },
    );
    const { code, stdout, stderr } = await runTrain(
      [...await trainOn(folder, 3), "--json"],
      [],
      {
        OTEL_DENO: "true",
        OTEL_EXPORTER_OTLP_PROTOCOL: "http/json",
        OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${collector.addr.port}`,
      },
    );
    assert.equal(code, 0, stderr);
    const lines = jsonLines(stdout), last = lines.findLast(({ loss }) => loss !== undefined)!;
    const { evalLoss } = lines.findLast(({ evalLoss }) => evalLoss !== undefined)!;
    const of = (name: string) => gauges.get(`troupe.train.${name}`);
    assert.deepEqual([of("step"), of("loss"), of("grad_norm")], [3, last.loss, last.gradNorm]);
    assert.deepEqual([of("eval.loss"), of("eval.perplexity")], [
      evalLoss,
      Math.exp(evalLoss as number),
    ]);
    assert.deepEqual([of("learning_rate"), of("loss_scale"), of("tokens")], [
      0.002 * (1 - 2 / 3),
      1,
      3 * 2 * 2 * 8,
    ]);
    assert.equal(of("tokens_per_second"), last.tokensPerSecond);
    assert.equal(units.get("troupe.train.memory.program"), "By");
  },
);

folderTest(
  "--log tensorboard writes to the folder of the run, and is told where there is none",
  async (folder) => {
    const train = await trainOn(folder, 2), out = join(folder, "out");
    const events = async () => (await namesIn(out)).filter((name) => EVENT_FILE.test(name)).length;
    await trainHere([...train, "--out", out, "--log", "tensorboard"]);
    assert.equal(await events(), 1);
    const resume = ["--resume", out, ...train.slice(train.indexOf("--tokens"))];
    await trainHere([
      ...resume,
      "--steps",
      "3",
      "--device",
      "reference",
      "--report_to",
      "tensorboard",
    ]);
    assert.equal(await events(), 2, "a run that goes on has one more");
    await trainHere([...train, "--out", out, "--overwrite"]);
    assert.equal(await events(), 0, "those of a run that is gone are gone");
    assert.equal(
      await refusal([...train, "--json", "--log", "tensorboard"]),
      "Cannot use --log tensorboard: --out must say where its files go, received none",
    );
  },
);

/** All that is anywhere in a folder. */
async function allIn(folder: string): Promise<string[]> {
  const entries = await Array.fromAsync(Deno.readDir(folder));
  const below = await Promise.all(
    entries.map(async ({ name, isDirectory }) =>
      [name].concat(
        isDirectory ? (await allIn(join(folder, name))).map((path) => join(name, path)) : [],
      )
    ),
  );
  return below.flat().sort();
}

for (
  const [device, isolation] of [["native", "worker"], ["native", "process"], ["wasm", "worker"]]
) {
  Deno.test(`a run on ${device} with --isolation ${isolation} leaves no file at home nor among temporary ones`, () =>
    inFolder(async (folder) => {
      await nativeLibraryPath(); // what is fetched, is fetched from the home that knows how
      const [home, temporary, out] = ["home", "tmp", "out"].map((name) => join(folder, name));
      for (const path of [home!, temporary!]) await Deno.mkdir(path);
      const tokens = await writeTokens(folder, someTokens(600));
      const { code, stderr } = await new Deno.Command(Deno.execPath(), {
        args: [
          ...["run", "-A", "cli.ts", "train", ...TINY, "--tokens", tokens, "--out", out!],
          ...["--device", device, "--isolation", isolation, "--workers", "2", "--steps", "2"],
          ...["--layers", "2", "--json"],
        ] as string[],
        cwd: ROOT,
        env: {
          ...ENVIRONMENT,
          DENO_DIR: await denoFolder(),
          HOME: home!,
          USERPROFILE: home!,
          LOCALAPPDATA: join(home!, "local"),
          XDG_CACHE_HOME: join(home!, "cache"),
          XDG_CONFIG_HOME: join(home!, "config"),
          XDG_DATA_HOME: join(home!, "data"),
          TMPDIR: temporary!,
          TMP: temporary!,
          TEMP: temporary!,
          // Whoever starts the tests may have switched it off already.
          ORT_DISABLE_TELEMETRY: "0",
        },
        stdin: "null",
      }).output();
      assert.equal(code, 0, new TextDecoder().decode(stderr));
      assert.deepEqual(await allIn(home!), []);
      assert.deepEqual(await allIn(temporary!), []);
      assert.deepEqual(await namesIn(out!), ["metrics.jsonl", "run.json", "step-00000002"]);
    }));
}
