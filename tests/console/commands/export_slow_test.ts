/** `troupe export`: a folder for transformers, or an ONNX file. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { delay } from "@std/async/delay";
import { Tensor } from "onnxruntime-web";
import { readCheckpoint } from "../../../actors/checkpoints/read.ts";
import { readWeights } from "../../../actors/checkpoints/weights.ts";
import { GPT2, writeModelFolder } from "../../../actors/checkpoints/hugging_face.ts";
import {
  gpt2Parameters,
  mlpLogits,
  openPredictor,
  openReference,
  readSafetensors,
  type SafetensorsInfo,
} from "../../../kernels/mod.ts";
import { distance, EXPECTED, FOLDERS, gpt2Sizes, hfPath } from "../../hugging_face.ts";
import { folderTest, namesIn } from "../../in_folder.ts";
import {
  exportTo,
  printedHere,
  readJson,
  refusalHere,
  runWithin,
  TINY,
  trainHere,
  words,
} from "../command.ts";
import { forgeConfig } from "../forged.ts";
import { assertRefusals } from "../refusals.ts";
import { Running, TRAIN } from "../running.ts";
import { loadRuntime, runOnnx } from "../../onnx.ts";
import { closing } from "../../kernels/devices/models.ts";

loadRuntime();

/** Computes the output of a file with onnxruntime-web, in rows. */
async function inOnnxRuntime(path: string, inputs: Record<string, Tensor>, width: number) {
  const [output] = Object.values(await runOnnx(await Deno.readFile(path), inputs));
  const data = output!.data as Float32Array;
  return Array.from(
    { length: data.length / width },
    (_, i) => [...data.subarray(i * width, (i + 1) * width)],
  );
}

/** The ids as a tensor of one sample. */
const idsOf = (ids: ArrayLike<number>) =>
  new Tensor(BigInt64Array.from(Array.from(ids), BigInt), [1, ids.length]);

folderTest("an exported folder equals that of transformers, byte for byte", async (folder) => {
  for (const [name, dtype] of [["tied", "f32"], ["untied_f16", "f16"]] as const) {
    const theirs = hfPath(name);
    const ours = await exportTo("hf", theirs, join(folder, name), "--dtype", dtype);
    const [expected, received] = await Promise.all(
      [theirs, ours].map((one) => Deno.readFile(join(one, "model.safetensors"))),
    );
    assert.deepEqual(received, expected);
    const wanted = await readJson(theirs, "config.json");
    const { n_ctx, tie_word_embeddings: tie, ...config } = await readJson(ours, "config.json");
    assert.deepEqual([n_ctx, tie], [12, name === "tied"]);
    const names = Object.keys(wanted).filter((key) => key !== "tie_word_embeddings");
    assert.deepEqual(Object.keys(config), names);
    // The run has no dropout, and this model has no tokens.
    const own = /^((attn|embd|resid)_pdrop|(bos|eos)_token_id|tie_word_embeddings)$/;
    for (const [key, value] of Object.entries(wanted)) {
      if (!own.test(key)) assert.deepEqual(config[key], value, key);
    }
  }
});

folderTest("a folder keeps its tokens for the start and end of a text", async (folder) => {
  const said = { bos_token_id: 3, eos_token_id: 5 }, from = join(folder, "from");
  await Deno.mkdir(from);
  await Deno.copyFile(join(hfPath("tied"), "model.safetensors"), join(from, "model.safetensors"));
  const config = { ...await readJson(hfPath("tied"), "config.json"), ...said };
  await Deno.writeTextFile(join(from, "config.json"), JSON.stringify(config));
  const out = await exportTo("hf", from, join(folder, "out"));
  for (const name of ["config.json", "generation_config.json"]) {
    const { bos_token_id, eos_token_id } = await readJson(out, name);
    assert.deepEqual({ bos_token_id, eos_token_id }, said, name);
  }
  // Ids outside of the vocabulary are omitted.
  const strange = { ...config, bos_token_id: config.vocab_size, eos_token_id: -1 };
  await Deno.writeTextFile(join(from, "config.json"), JSON.stringify(strange));
  const without = await exportTo("hf", from, join(folder, "without"));
  const { bos_token_id, eos_token_id } = await readJson(without, "config.json");
  assert.deepEqual([bos_token_id, eos_token_id], [null, null]);
});

folderTest("a named tokenizer is exported with a model without one", async (folder) => {
  const out = await exportTo("hf", hfPath("tied"), join(folder, "gpt2"), "--tokenizer", "gpt2");
  const { bos_token_id: begin, eos_token_id: end } = await readJson(out, "config.json");
  assert.deepEqual([begin, end], [50_256, 50_256]);
  const about = await readJson(out, "tokenizer_config.json");
  assert.deepEqual([about.tokenizer_class, about.eos_token, about.model_max_length], [
    ...["GPT2Tokenizer", "<|endoftext|>", 12],
  ]);
  const again = await exportTo("hf", hfPath("tied"), join(folder, "named"), "--tokenizer", out);
  const files = [out, again].map((one) => Deno.readFile(join(one, "tokenizer.json")));
  const [first, second] = await Promise.all(files);
  assert.deepEqual(second, first);
});

folderTest("a run is exported in both formats and generates the same text", async (folder) => {
  const run = join(folder, "run"), hf = join(folder, "hf"), onnx = join(folder, "made", "a.onnx");
  const how = ["--steps", "5", "--lr", "0.01", "--head-slices", "3", "--dropout", "0.25"];
  await trainHere([...TINY, ...how, "--ema", "0.5", "--out", run]);
  const said = await printedHere("export", run, "--format", "onnx", "--out", onnx);
  assert.match(said, /^.*step-00000005 is exported to .*a\.onnx\n$/);
  assert.deepEqual(await namesIn(join(folder, "made")), ["a.onnx"]);
  await exportTo("hf", run, hf);
  assert.deepEqual(await namesIn(hf), [
    ...["config.json", "generation_config.json", "model.safetensors"],
    ...["tokenizer.json", "tokenizer_config.json"],
  ]);
  const averaged = await exportTo("hf", run, join(folder, "averaged"), "--ema");
  const [exported, averages] = await Promise.all(
    [join(averaged, "model.safetensors"), join(run, "step-00000005", "ema.safetensors")].map(
      async (path) => (await readSafetensors(path)).tensors,
    ),
  );
  assert.ok(exported!.has("transformer.ln_f.bias"));
  assert.deepEqual(exported!.get("transformer.ln_f.bias"), averages!.get("transformer.ln_f.bias"));
  const tensors = new Map<string, SafetensorsInfo>(), weights = join(hf, "model.safetensors");
  const { metadata } = await readSafetensors(weights, (name, info) => void tensors.set(name, info));
  assert.deepEqual(metadata, { format: "pt" });
  const { resid_pdrop: dropout, eos_token_id: end } = await readJson(hf, "config.json");
  assert.deepEqual([dropout, end], [0.25, null], "bytes have no token that ends a text");
  assert.deepEqual(tensors.get("lm_head.weight"), { dtype: "F32", shape: [256, 16] });

  const bytes = [...new TextEncoder().encode("We")];
  while (bytes.length < 8) { // the context of TINY
    const last = (await inOnnxRuntime(onnx, { input_ids: idsOf(bytes) }, 256)).at(-1)!;
    bytes.push(last.indexOf(Math.max(...last)));
  }
  const greedy = ["--prompt", "We", "--tokens", "6", "--temperature", "0"];
  for (const from of [run, hf]) {
    const text = await printedHere("generate", "--from", from, "--device", "reference", ...greedy);
    assert.equal(text, new TextDecoder().decode(Uint8Array.from(bytes)) + "\n", from);
  }
});

folderTest("models of Hugging Face have the logits of PyTorch as ONNX files", async (folder) => {
  for (const name of FOLDERS) {
    const out = await exportTo("onnx", hfPath(name), join(folder, `${name}.onnx`));
    const want = EXPECTED.logits[name]!;
    const rows = await inOnnxRuntime(out, { input_ids: idsOf(EXPECTED.ids) }, want[0]!.length);
    assert.ok(distance(rows, want) < 1e-4, `${name}: ${distance(rows, want)}`);
  }
  const llama = join(hfPath(".."), "llama");
  const out = await exportTo("onnx", llama, join(folder, "llama.onnx"));
  const { logits }: { logits: number[][] } = await readJson(llama, "expected.json");
  const tokens = new Uint16Array((await Deno.readFile(join(llama, "tokens.bin"))).buffer);
  const ids = new Tensor(Int32Array.from(tokens.subarray(0, 16)), [1, 16]);
  const rows = await inOnnxRuntime(out, { ids }, logits[0]!.length);
  assert.ok(distance(rows, logits) < 1e-4, `${distance(rows, logits)}`);
});

folderTest("an MLP of a run has its logits as an ONNX file", async (folder) => {
  const run = join(folder, "run"), model = ["--model", "mlp", "--data", "mnist", "--layers", "1"];
  const size = words`--hidden 8 --steps 2 --micro-batch-size 4 --device reference`;
  await trainHere([...model, ...size, "--out", run]);
  const out = await exportTo("onnx", run, join(folder, "mlp.onnx"));
  const merged = await refusalHere(words`export ${run} --format onnx --merge --out ${out}.2`);
  assert.match(merged, /the model of an adapter must be gpt or llama to be merged, received mlp$/);
  const { state: { weights } } = (await readCheckpoint(run))!;
  using device = closing(await openReference());
  const config = { inputs: 784, hidden: 8, layers: 1, classes: 10 };
  const predict = await openPredictor(device, mlpLogits(config, 1), weights);
  const features = Float32Array.from({ length: 784 }, (_, i) => (i % 7) / 7);
  const pixels = new Tensor(features, [1, 784]), want = [[...await predict({ features })]];
  assert.ok(distance(await inOnnxRuntime(out, { pixels }, 10), want) < 1e-4);
});

folderTest("an invalid export is refused and replaces no file", async (folder) => {
  const run = join(folder, "run"), file = join(folder, "file");
  await trainHere([...TINY, "--steps", "1", "--out", run]);
  await Deno.writeTextFile(file, "mine");
  const before = await namesIn(folder);
  const refuse = (words: string[]) => refusalHere(["export", ...words]);
  await assertRefusals("export", refuse, { FOLDER: folder });
  // Each command is a format and the JSON of changes to the config of the checkpoint.
  await assertRefusals("forged_export", async ([format, ...json]) => {
    const change = JSON.parse(json.join(" "));
    await forgeConfig(join(run, "step-00000001"), (config) => Object.assign(config, change));
    return await refuse(words`${run} --format ${format!} --out ${join(folder, "other")}`);
  }, { FOLDER: folder });
  assert.deepEqual(await namesIn(folder), before);
  assert.equal(await Deno.readTextFile(file), "mine");
});

/** A model of 30 MB. */
const CONFIG = { layers: 1, hidden: 256, heads: 2, seq: 8, vocab: 13_000, tie: false };

/** Registers a test in a folder with that model, where processes can be limited. */
const withModel = (name: string, fn: (folder: string, args: readonly string[]) => Promise<void>) =>
  (Deno.build.os === "windows" ? () => {} : folderTest)(name, async (folder) => {
    const filled = (shape: readonly number[]) =>
      new Float32Array(shape.reduce((a, b) => a * b)).fill(0.5);
    const parameters = gpt2Parameters(CONFIG), model = join(folder, "model");
    const weights = new Map(parameters.map(({ name, shape }) => [name, filled(shape)]));
    await writeModelFolder(GPT2, model, { config: CONFIG, weights });
    await fn(folder, words`export ${model} --format hf --out ${join(folder, "out")}`);
  });

/** The names in the folder, without the model. */
const leftIn = async (folder: string) => (await namesIn(folder)).filter((name) => name !== "model");

withModel("a full disk ends an export with code 1, and leaves nothing", async (folder, args) => {
  // No file may grow beyond 4 MiB.
  const { code, stdout, stderr } = await runWithin(8192, args);
  assert.deepEqual([code, stdout], [1, ""], stderr);
  const said =
    /^Cannot write .*out: its disk must have room .*, received File too large .*; nothing is left there\n$/;
  assert.match(stderr, said);
  assert.deepEqual(await leftIn(folder), []);
});

withModel("an interrupted export leaves nothing, and can be repeated", async (folder, args) => {
  for (const signal of ["SIGINT", "SIGKILL"] as const) {
    const command = new Running(["run", "-A", "cli.ts", ...args]);
    while ((await leftIn(folder)).length === 0) await delay(1);
    command.interrupt("process", signal);
    const { code, stdout } = await command.end();
    if (code === 0) await Deno.remove(join(folder, "out"), { recursive: true }); // it was faster
    else assert.deepEqual([code, stdout], [signal === "SIGINT" ? 130 : 137, ""]);
    const left = await leftIn(folder);
    if (signal === "SIGINT") assert.deepEqual(left, []);
    assert.ok(!left.includes("out"), "half of it under its name");
  }
  await printedHere(...args);
  const out = join(folder, "out");
  assert.deepEqual(gpt2Sizes(out), CONFIG);
  assert.equal((await readWeights(out, gpt2Parameters(CONFIG))).size, 17);
});

folderTest("a running run that removes checkpoints is exported", async (folder) => {
  const run = join(folder, "run"), how = ["--checkpoint-every", "25", "--keep", "1"];
  const endless = ["--runtime", "local", "--steps", "100000", "--json", "--out", run];
  const training = new Running([...TRAIN, ...TINY, ...how, ...endless]);
  try {
    await training.printed("stdout", /"step":6,/);
    while (!(await namesIn(run)).some((name) => name.startsWith("step-"))) await delay(5);
    for (const name of ["a", "b", "c"]) {
      const out = await exportTo("hf", run, join(folder, name));
      assert.equal(gpt2Sizes(out).hidden, 16);
    }
  } finally {
    training.interrupt("process");
    assert.equal((await training.end()).code, 130);
  }
});
