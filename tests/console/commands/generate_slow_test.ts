/** `troupe generate`: text from a checkpoint. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { printTokens } from "../../../console/commands/generate.ts";
import { compileModel, DEVICE_NAMES, generate, gpt2, openReference } from "../../../kernels/mod.ts";
import { hfPath } from "../../hugging_face.ts";
import { folderTest } from "../../in_folder.ts";
import { gpuTest, writeDrivers } from "../../gpu.ts";
import {
  printedHere,
  refusalHere,
  refusedHere,
  runHere,
  runProgram,
  runTroupe,
  someTokens,
  TINY,
  trainHere,
  words,
  writeTokens,
} from "../command.ts";
import { forgeConfig } from "../forged.ts";
import { assertRefusals } from "../refusals.ts";
import { Running } from "../running.ts";
import { drawWeights } from "../../kernels/stage/stage_runs.ts";

const DEVICE = ["--device", "reference"];

/** A GPT that has learned the successors of a, b and c. */
async function alphabetIn(folder: string): Promise<string[]> {
  const text = join(folder, "text.txt"), run = join(folder, "run");
  await Deno.writeTextFile(text, "abc".repeat(70));
  const how = words`--steps 30 --lr 0.03 --ema 0.999999 --out ${run}`;
  await trainHere([...TINY, "--text", text, ...how]);
  return ["generate", "--from", run, ...DEVICE];
}

folderTest("a text is continued with the most likely or with random tokens", async (folder) => {
  const from = await alphabetIn(folder);
  const made = async (flags: string): Promise<string> =>
    await printedHere(...from, "--tokens", "16", "--prompt", "abc", ...flags.split(" "));
  const greedy = "abcabcabcabcabcabca\n", drawn = await made("--temperature 5");
  assert.match(drawn, /^abc[^]*\n$/);
  const texts = [
    ["--temperature 0 --seed 2", greedy],
    ["--temperature 0 --slide 4", greedy],
    ["--temperature 5 --top-k 1", greedy],
    ["--temperature 5 --top-p 0", greedy],
    ["--temperature 5 --seed 1", drawn],
    ["--temperature 5 --top-k 1000 --top-p 1", drawn],
  ] as const;
  for (const [flags, expected] of texts) assert.equal(await made(flags), expected, flags);
  assert.notEqual(await made("--temperature 0 --ema"), greedy, "the averages have learned nothing");
  for (const flags of ["5 --seed 2", "5 --top-k 3", "1"]) {
    assert.notEqual(await made(`--temperature ${flags}`), drawn, flags);
  }
  const long = await runHere([...from, "--tokens", "2", "--prompt", "abc".repeat(3)]);
  const last = "The prompt has 9 tokens: the model sees the last 8, all that its context holds\n";
  assert.equal(long.stderr, last);
});

folderTest("text is printed token by token until Ctrl-C or its reader exits", async (folder) => {
  const endless = [...await alphabetIn(folder), "--prompt", "a", "--tokens", "1000000"];
  const interrupted = new Running(["run", "-A", "cli.ts", ...endless]);
  await interrupted.printed("stdout", /^a[^]+/);
  interrupted.interrupt("process");
  const { code, stdout, stderr } = await interrupted.end();
  assert.deepEqual([code, stderr], [130, ""]);
  assert.match(stdout, /^a[^]*\n$/);
  const head = '"$0" run -A cli.ts "$@" | head -c 10';
  const left = await runProgram("sh", ["-c", head, Deno.execPath(), ...endless]);
  assert.deepEqual([left.stdout.length, left.stderr], [10, ""]);
});

Deno.test("Ctrl-C does not wait for a tokenizer", async () => {
  const never = Promise.withResolvers<never>().promise, controller = new AbortController();
  const decode = () => (queueMicrotask(() => controller.abort()), never);
  const added = async function* () {}();
  await printTokens({ prompt: [1], added, tokenizer: { decode } }, controller.signal);
});

folderTest("token ids without a tokenizer are not printed as text", async (folder) => {
  const tokens = await writeTokens(folder, someTokens(200, 300)), run = join(folder, "run");
  const model = [...TINY, "--tokens", tokens, "--vocab", "300", "--runtime", "local"];
  const said = await printedHere("train", ...model, "--steps", "1", "--out", run);
  assert.match(said, /\n\nNo sample: the token ids have no tokenizer .*--ids/);
  const ids = ["--ids", "7,299", "--tokens", "12", "--slide", "8"];
  const made = await printedHere("generate", "--from", run, ...DEVICE, ...ids);
  assert.match(made, /^7,299(,\d+){12}\n$/);
  // Troupe 0.1 called tokens of any file bytes.
  const step = join(run, "step-00000001");
  await forgeConfig(step, (config) => {
    assert.equal(config.tokenizer, "none");
    config.tokenizer = "bytes";
  });
  const none = /^Cannot generate text from .*: it has no tokenizer, so --tokenizer must name one/;
  await refusedHere(["generate", "--from", run], none);
});

folderTest("a model of Hugging Face needs a tokenizer for text", async (folder) => {
  const from = ["generate", "--from", hfPath("tied")];
  const ids = ["--ids", "7,8", "--tokens", "30", "--temperature", "0"];
  assert.match(await printedHere(...from, ...DEVICE, ...ids), /^7,8(,\d+){30}\n$/);
  await refusedHere(from, /it has no tokenizer, so --tokenizer must name one/);
  await refusedHere([...from, "--ema"], /it must be a run with --ema, received a model of/);
  const noFile =
    /must be bytes, gpt2, or a tokenizer.json that can be read, received .* \(no such file\)/;
  await refusedHere([...from, "--tokenizer", folder], noFile);
});

Deno.test("timers run between two tokens on a blocking device", async () => {
  const config = { layers: 1, hidden: 4, heads: 1, seq: 4, vocab: 4 };
  const device = await openReference();
  const weights = drawWeights(compileModel(gpt2(config, 1), "none"));
  let tokens = 0, before: number | undefined;
  setTimeout(() => before = tokens);
  for await (const _ of generate(device, { config, weights, prompt: [1], tokens: 20 })) tokens++;
  device.close();
  assert.ok(before !== undefined && before < 20, `a timer ran after ${before} tokens`);
});

folderTest("an invalid prompt, folder or model is refused", async (folder) => {
  const tokens = await writeTokens(folder, someTokens(100, 64)), run = join(folder, "run");
  await trainHere([...TINY, "--tokens", tokens, "--vocab", "64", "--steps", "1", "--out", run]);
  const mlp =
    words`--model mlp --hidden 4 --layers 1 --micro-batch-size 1 --device reference --steps 1`;
  await trainHere([...mlp, "--out", join(folder, "digits")]);
  const refuse = (words: string[]) => refusalHere(["generate", ...words]);
  await assertRefusals("generate", refuse, { FOLDER: folder });
});

/** `troupe devices`, with SwiftShader and without an adapter. */

Deno.test("without an adapter the list names the searched drivers, and auto is native", async () => {
  const { code, stdout, stderr } = await runTroupe(["devices"], { VK_DRIVER_FILES: "/none.json" });
  assert.deepEqual([code, stderr], [0, ""]);
  const [head, ...lines] = stdout.trimEnd().split("\n");
  assert.match(head!, /^device +available$/);
  assert.deepEqual(lines.slice(0, 4).map((line) => line.split(/\s+/)[0]), DEVICE_NAMES);
  assert.match(stdout, /^native +yes$/m);
  const said =
    /^webgpu +no: Cannot use the webgpu device: .*, received no adapter; of all drivers only those of VK_DRIVER_FILES=\/none.json were looked at$/m;
  assert.match(stdout, said);
  assert.match(lines.at(-2)!, /^--precision bf16: (yes|no), CPU instructions: .+, library: \S/);
  assert.equal(lines.at(-1), "--device auto computes on native, because no adapter is a GPU.");
});

Deno.test("without native and webgpu, auto is wasm, and the list names the missing devices", async () => {
  const args = words`run --no-prompt --allow-read --allow-env --allow-run cli.ts devices`;
  const lines = (await runProgram(Deno.execPath(), args)).stdout.trimEnd().split("\n");
  assert.match(lines[1]!, /^native +no: /);
  const auto =
    "--device auto computes on wasm, because no adapter is a GPU; not available: native, webgpu.";
  assert.equal(lines.at(-1), auto);
});

folderTest("adapters are listed by number, and auto computes on no software", async (folder) => {
  writeDrivers(folder);
  const { code, stdout, stderr } = await runTroupe(["devices", "--json"], {
    VK_DRIVER_FILES: folder,
  });
  assert.deepEqual([code, stderr], [0, ""]);
  const { devices, adapters, refused, auto } = JSON.parse(stdout);
  assert.ok(devices.every(({ available }: { available: boolean }) => available));
  assert.deepEqual(refused, []);
  assert.deepEqual(auto, { device: "native" });
  for (const [i, { index, name, kind, memoryBytes, hasF16 }] of adapters.entries()) {
    assert.deepEqual([index, kind, hasF16], [i, "software", false]);
    assert.match(name, /^SwiftShader/);
    assert.ok(memoryBytes > 0);
  }
  assert.equal(adapters.length, 2);
}, gpuTest);
