/** What `deno task train` prints: lines of JSON for a program, words for a person. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { train } from "../../../actors/mod.ts";
import { TRAIN_FLAGS } from "../../../console/train/train_flags.ts";
import { gpt2, heldOutBatches, tokenBatches } from "../../../kernels/mod.ts";
import { inFolder, jsonLines, runTrain, someTokens, TINY, writeTokens } from "../command.ts";

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
    const { code, stdout, stderr } = await runTrain([...train, ...best, "--json", "--out", out]);
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
    const words = await runTrain([...train, ...best, "--out", join(folder, "words")]);
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
    const { stdout } = await runTrain(on);
    assert.match(stdout, /^3 steps in \d+\.\d s on reference$/m, "those of the time that is told");
  }));

Deno.test("--help lists every flag", async () => {
  const { code, stdout } = await runTrain(["--help"]);
  assert.equal(code, 0);
  for (const [name, { help }] of Object.entries(TRAIN_FLAGS)) {
    const line = new RegExp(`^ +--${name}\\b[^\\n]*(\\n +)?${RegExp.escape(help)}`, "m");
    assert.match(stdout, line, name);
  }
});
