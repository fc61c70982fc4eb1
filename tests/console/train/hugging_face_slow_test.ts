import assert from "node:assert/strict";
import { delay } from "@std/async/delay";
import { testNeeding } from "../../needs.ts";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { LLAMA as FAMILY, parseConfig } from "../../../actors/checkpoints/hugging_face.ts";
import { findTorch } from "../../../bench/peers.ts";
import { folderTest } from "../../in_folder.ts";
import { distance, EXPECTED, hfPath, logitsOf } from "../../hugging_face.ts";
import {
  assertLosses,
  bitsOf,
  exportTo,
  type Line,
  printedByTorch,
  printedHere,
  readJson,
  refusal,
  refusalHere,
  refuses,
  TINY,
  trainHere,
  words,
} from "../command.ts";
import { forgeConfig } from "../forged.ts";
import { assertRefusals, assertSentences } from "../refusals.ts";
import { Running, TRAIN } from "../running.ts";

/** `--weights` of a folder of Hugging Face, compared with PyTorch. */

const { learningRate, weightDecay, microBatch, microBatches, float32 } = EXPECTED.fineTuned;

/** Flags of the fixture's run without its weights and sizes. */
const FINE_TUNE = words`
  --tokens ${hfPath("tokens.bin")} --lr ${learningRate} --weight-decay ${weightDecay}
  --micro-batch-size ${microBatch} --micro-batches ${microBatches} --device native`;

const torch = await findTorch().catch(() => undefined);
const TORCH = { isThere: torch !== undefined, reason: "Debian's python3-torch" };

/** Fine-tunes the tied model for 20 steps, and exports it. */
async function fineTuned(folder: string): Promise<{ lines: Line[]; out: string }> {
  const run = join(folder, "run"), out = join(folder, "out");
  const args = words`${FINE_TUNE} --weights ${hfPath("tied")} --steps 20 --out ${run}`;
  const { lines } = await trainHere(args);
  await exportTo("hf", run, out);
  return { lines, out };
}

folderTest("20 steps from the weights of a folder have the losses of PyTorch", async (folder) => {
  const { lines, out } = await fineTuned(folder);
  assertLosses(lines, float32);
  const moved = distance(await logitsOf(out), EXPECTED.logits.tied!);
  assert.ok(moved > 1e-2, "the exported model has learnt");
});

folderTest("a model fine-tuned by Troupe has the same logits in PyTorch", async (folder) => {
  const { out } = await fineTuned(folder);
  const worst = distance(await logitsOf(out), await printedByTorch(torch, "read", out));
  assert.ok(worst < 1e-4, `${worst} off`);
}, (name, fn) => testNeeding(TORCH, name, fn));

folderTest("BF16 shards train as the same numbers in F32, also in slices", async (folder) => {
  for (const [name, slices] of [["sharded_bf16", 1], ["untied_f16", 3]] as const) {
    const out = join(folder, name), runtime = slices === 1 ? "workers" : "local";
    const run = words`${FINE_TUNE} --steps 2 --schedule gpipe --head-slices ${slices} --weights`;
    await exportTo("hf", hfPath(name), out);
    const narrow = await trainHere(words`${run} ${hfPath(name)} --workers 2 --runtime ${runtime}`);
    const same = await trainHere(words`${run} ${out}`);
    assert.deepEqual(bitsOf(narrow.lines), bitsOf(same.lines), name);
  }
});

folderTest("a typed size must equal the folder's", async (folder) => {
  const places = { FIXTURES: dirname(hfPath("tied")), EMPTY: folder };
  const refuse = (words: string[]) => refusal([...FINE_TUNE, "--weights", ...words]);
  await assertRefusals("hugging_face_sizes", refuse, places);
  // The same sizes may be typed; a single file may have fewer positions.
  const file = join(hfPath("tied"), "model.safetensors");
  await trainHere(words`${FINE_TUNE} --weights ${file} --seq 8 --layers 2 --steps 1`);
});

folderTest("without a tokenizer, a folder's tokens must be a built-in one's", async (folder) => {
  const text = join(folder, "text.txt"), run = join(folder, "run"), out = join(folder, "out");
  await Deno.writeTextFile(text, "Fellow citizens of the Senate. ".repeat(40));
  await trainHere(words`${TINY} --text ${text} --steps 1 --out ${run}`);
  await exportTo("hf", run, out);
  await Deno.remove(join(out, "tokenizer.json"));
  const tune = words`--text ${text} --micro-batch-size 2 --device reference --steps 1 --weights`;
  const { last } = await trainHere(words`${tune} ${out} --out ${join(folder, "tuned")}`);
  const { tokenizer, flags } = await readJson(last.checkpoint as string, "config.json");
  assert.deepEqual([tokenizer, flags.tokenizer], ["bytes", "bytes"]);
  const whose =
    /^Cannot use the tokens of a text with --weights: --tokenizer must say what made those of/;
  await refuses([...tune, hfPath("tied")], whose);
});

/** A Llama in a folder of Hugging Face: trained, read, written, and refused. */

const LLAMA = fileURLToPath(new URL("../../fixtures/llama", import.meta.url));

const LLAMA_EXPECTED = await readJson(LLAMA, "expected.json");

const LLAMA_CONFIG: Record<string, unknown> = await readJson(LLAMA, "config.json");

/** Flags of the fixture's run, without the sizes and the name of the model. */
const LLAMA_RUN = words`
  --tokens ${join(LLAMA, "tokens.bin")} --weights ${LLAMA} --device native
  --lr ${LLAMA_EXPECTED.config.lr} --micro-batch-size 2 --micro-batches 4`;

folderTest("a Llama trains as in PyTorch, and generates like its export", async (folder) => {
  const run = join(folder, "run"), out = join(folder, "out");
  const args = words`${LLAMA_RUN} --steps 30 --workers 2 --schedule 1f1b --out ${run}`;
  assertLosses((await trainHere(args)).lines, LLAMA_EXPECTED.float32);
  await exportTo("hf", run, out);
  const generate = (from: string) =>
    printedHere(...words`generate --from ${from} --ids 7,35,80 --tokens 20 --device native`);
  assert.equal(await generate(run), await generate(out));
});

folderTest("a Llama that is read and exported equals its folder, byte for byte", async (out) => {
  await exportTo("hf", LLAMA, join(out, "hf"));
  const config = await readJson(out, "hf", "config.json"), file = "model.safetensors";
  assert.equal(JSON.stringify(config), JSON.stringify(LLAMA_CONFIG));
  const [ours, theirs] = [join(out, "hf"), LLAMA].map((path) => Deno.readFile(join(path, file)));
  assert.deepEqual(await ours, await theirs);
});

Deno.test("unknown values in a Llama's config.json are refused by their names", async () => {
  // Each command has the changed fields as JSON.
  await assertRefusals("llama_config", (json) => {
    const config: Record<string, unknown> = { ...LLAMA_CONFIG, ...JSON.parse(json.join(" ")) };
    return Promise.try(() => parseConfig(FAMILY, config, "config.json"))
      .then(() => assert.fail(), ({ message }) => message);
  });
  const { rope_theta: _, num_key_value_heads: _2, rms_norm_eps: _3, ...short } = LLAMA_CONFIG;
  const newer = { ...short, rope_parameters: { rope_type: "default", rope_theta: 5e5 } };
  const { keyValueHeads, ropeTheta, normEpsilon } = parseConfig(FAMILY, newer, "config.json");
  assert.deepEqual([keyValueHeads, ropeTheta, normEpsilon], [4, 5e5, 1e-6]);
  const long = { ...LLAMA_CONFIG, max_position_embeddings: 131_072 };
  assert.equal(parseConfig(FAMILY, long, "config.json").seq, 8192);
});

Deno.test("a typed size must be that of the Llama's folder; positions may be fewer", async () => {
  const refuse = (flags: string[]) => refusal(words`${LLAMA_RUN} --steps 1 ${flags}`);
  await assertRefusals("llama_sizes", refuse, { FOLDER: LLAMA });
  await trainHere(words`${LLAMA_RUN} --seq 8 --steps 1`);
});

/** `--tokenizer FILE`: a user's tokenizer.json, which a run copies next to its checkpoints. */

/** A tokenizer of five letters, two merges and a special token. */
const TOKENIZER = {
  ...{ version: "1.0", normalizer: { type: "Lowercase" }, pre_tokenizer: null },
  ...{ post_processor: null, decoder: { type: "Fuse" } },
  added_tokens: [{ id: 7, content: "<|endoftext|>", special: true }],
  model: {
    type: "BPE",
    vocab: { a: 0, b: 1, c: 2, d: 3, " ": 4, ab: 5, abc: 6 },
    merges: ["a b", "ab c"],
  },
};

const TEXT = "abc abd <|endoftext|>Abc dab ".repeat(40);

/** Writes the tokenizer and a text; returns their flags. */
async function writeFiles(folder: string) {
  const tokenizer = join(folder, "tokenizer.json"), text = join(folder, "text.txt");
  await Deno.writeTextFile(tokenizer, JSON.stringify(TOKENIZER));
  await Deno.writeTextFile(text, TEXT);
  return { tokenizer, text, flags: ["--text", text, "--tokenizer", tokenizer] };
}

folderTest("a run on a tokenizer.json resumes and is exported without its name", async (folder) => {
  const { tokenizer, text, flags } = await writeFiles(folder), run = join(folder, "run");
  const whole = await trainHere(words`${TINY} ${flags} --steps 4`);
  const step = join(run, "step-00000002");
  await trainHere(words`${TINY} ${flags} --steps 2 --out ${run}`);
  await Deno.remove(tokenizer);
  const config = await readJson(step, "config.json");
  assert.deepEqual([config.tokenizer, config.vocab], ["tokenizer.json", 8]);
  assert.equal(config.flags.tokenizer, undefined, "no path is among the flags");
  assert.match(config.files.tokenizer.sha256, /^[0-9a-f]{64}$/);
  const tune = words`--text ${text} --device reference`;
  const more = await trainHere(words`--resume ${run} ${tune} --steps 4`);
  assert.deepEqual(bitsOf(more.lines), bitsOf(whole.lines, 3));

  for (const path of [run, step]) {
    const from = words`generate --from ${path} --tokens 9 --device reference`;
    const said = await printedHere(...from, "--prompt", "ABC<|endoftext|>");
    assert.match(said, /^abc<\|endoftext\|>([a-d ]|<\|endoftext\|>)+\n$/);
  }
  const out = join(folder, "out"), tuned = join(folder, "tuned");
  await exportTo("hf", run, out);
  assert.deepEqual(await readJson(out, "tokenizer.json"), TOKENIZER);
  const { bos_token_id: bos, eos_token_id: eos } = await readJson(out, "config.json");
  assert.deepEqual([bos, eos], [7, 7]);

  // A text uses the tokenizer of the folder, and its sizes.
  const on = words`--weights ${out} ${tune} --micro-batch-size 2 --steps 1`;
  assert.match(await printedHere("train", ...on, "--out", tuned), /\n\nA sample:\n/);
  const { files } = await readJson(tuned, "step-00000001", "config.json");
  assert.equal(files.tokenizer.sha256, config.files.tokenizer.sha256);
  await Deno.remove(join(out, "tokenizer.json"));
  await refuses(on, /: --tokenizer must say what made those of/);
});

folderTest("Ctrl-C ends a run that waits for a slow tokenizer", async (folder) => {
  const { tokenizer, text, flags } = await writeFiles(folder);
  const pre_tokenizer = { type: "Split", pattern: { Regex: "^(a+)+$" }, behavior: "Isolated" };
  await Deno.writeTextFile(tokenizer, JSON.stringify({ ...TOKENIZER, pre_tokenizer }));
  await Deno.writeTextFile(text, `${"a".repeat(60)}!`);
  const run = new Running([...TRAIN, ...TINY, ...flags, "--out", join(folder, "run")]);
  await delay(1500); // nothing says that it waits
  run.interrupt("process");
  assert.equal((await run.end()).code, 130);
  await assert.rejects(Deno.lstat(join(folder, "run")), Deno.errors.NotFound);
});

folderTest("a run has its own tokenizer, and no file opens another one", async (folder) => {
  const { tokenizer, text, flags } = await writeFiles(folder), run = join(folder, "run");
  await trainHere(words`${TINY} ${flags} --steps 1 --out ${run}`);
  const step = join(run, "step-00000001"), kept = join(run, "tokenizer.json");
  const resume = words`--resume ${step} --text ${text} --steps 2`;
  const other = join(folder, "other.json");
  await Deno.writeTextFile(other, JSON.stringify({ ...TOKENIZER, padding: null }));
  const places = { FOLDER: folder }, found: [string, string][] = [];
  await assertRefusals("tokenizers", (words) => refusal([...words, "--text", text]), places);
  const refused = async (about: string, sentence = refusal(resume)) =>
    found.push([about, await sentence]);
  await Deno.copyFile(other, kept);
  await refused("train with another file beside the run");
  await refused("generate with it", refusalHere(["generate", "--from", step]));
  await Deno.remove(kept);
  await refused("no file beside the run");
  // A named tokenizer may be anywhere.
  await trainHere(words`${resume} --tokenizer ${tokenizer} --device reference`);
  // A checkpoint may be untrusted: its flags name no tokenizer.
  const path = "/etc/hostname";
  await forgeConfig(step, ({ flags }) => void (flags.tokenizer = path));
  await refused("a path among the flags");
  await forgeConfig(step, ({ flags, files }) => {
    delete flags.tokenizer;
    files.tokenizer = { path, sha256: "../x" };
  });
  await refused("a strange hash");
  await assertSentences("kept_tokenizers", found, places);
});
