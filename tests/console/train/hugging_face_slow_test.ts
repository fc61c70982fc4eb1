import assert from "node:assert/strict";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { type ConfigJson } from "../../../actors/checkpoints/hugging_face/config_file.ts";
import { parseLlamaConfig } from "../../../actors/checkpoints/hugging_face/llama_config.ts";
import { findTorch } from "../../../bench/peers/torch.ts";
import { exportCommand, generateCommand } from "../../../console/mod.ts";
import { distance, EXPECTED, hfPath, logitsOf } from "../../hugging_face.ts";
import { bitsOf, inFolder, refusal, ROOT, runHere, TINY, trainHere } from "../command.ts";
import { forgeConfig } from "../forged.ts";

/** `--weights` of a folder of Hugging Face's: its sizes, its numbers, and what PyTorch makes of both. */

const { learningRate, weightDecay, microBatch, microBatches, float32 } = EXPECTED.fineTuned;

/** The fixture's run, but for its weights: no size is typed. */
const FINE_TUNE = [
  ...[
    "--tokens",
    hfPath("tokens.bin"),
    "--lr",
    `${learningRate}`,
    "--micro-batch",
    `${microBatch}`,
  ],
  ...[
    "--weight-decay",
    `${weightDecay}`,
    "--micro-batches",
    `${microBatches}`,
    "--device",
    "native",
  ],
];

const torch = await findTorch().catch(() => undefined);

/** The logits of a folder as the program of the fixture computes them. */
async function pytorchLogits(folder: string): Promise<number[][]> {
  const { success, stdout, stderr } = await new Deno.Command(torch!, {
    args: [join(ROOT, "tests/fixtures/make_hugging_face.py"), "read", folder],
    env: { OMP_NUM_THREADS: "1", PYTHONDONTWRITEBYTECODE: "1" },
    stdin: "null",
  }).output();
  assert.ok(success, new TextDecoder().decode(stderr));
  return JSON.parse(new TextDecoder().decode(stdout));
}

/** Fine-tunes the tied model for 20 steps, and exports it. */
async function fineTuned(folder: string): Promise<{ losses: number[]; out: string }> {
  const run = join(folder, "run"), out = join(folder, "out");
  const args = [...FINE_TUNE, "--weights", hfPath("tied"), "--steps", "20", "--out", run];
  const { lines } = await trainHere(args);
  await exportCommand([run, "--format", "hf", "--out", out], { begin: () => {} });
  const losses = lines.map(({ loss }) => loss).filter((loss) => loss !== undefined);
  return { losses: losses as number[], out };
}

Deno.test("20 steps from the weights of a folder have PyTorch's losses within 1e-5", () =>
  inFolder(async (folder) => {
    const { losses, out } = await fineTuned(folder);
    assert.equal(losses.length, float32.length);
    const worst = Math.max(...losses.map((loss, i) => Math.abs(loss / float32[i]! - 1)));
    assert.ok(worst < 1e-5, `${worst} off`);
    const moved = distance(await logitsOf(out), EXPECTED.logits.tied!);
    assert.ok(moved > 1e-2, "what was exported has learnt");
  }));

Deno.test({
  name: "a model that was fine-tuned here has the same logits in PyTorch",
  ignore: !torch,
  fn: () =>
    inFolder(async (folder) => {
      const { out } = await fineTuned(folder);
      const worst = distance(await logitsOf(out), await pytorchLogits(out));
      assert.ok(worst < 1e-4, `${worst} off`);
    }),
});

Deno.test("BF16 in shards trains as the same numbers in F32, on workers and in slices of the head", () =>
  inFolder(async (folder) => {
    const wide = join(folder, "wide"), context = { begin: () => {} };
    for (
      const [name, args] of [["sharded_bf16", []], ["untied_f16", ["--head-slices", "3"]]] as const
    ) {
      const out = `${wide}-${name}`, run = [...FINE_TUNE, "--steps", "2", ...args];
      await exportCommand([hfPath(name), "--format", "hf", "--out", out], context);
      const workers = ["--workers", "2", "--runtime", "workers", "--schedule", "gpipe"];
      const narrow = await trainHere([...run, "--weights", hfPath(name), ...workers]);
      const same = await trainHere([...run, "--weights", out, "--schedule", "gpipe"]);
      assert.deepEqual(bitsOf(narrow.lines), bitsOf(same.lines), name);
    }
  }));

Deno.test("a size that is typed must be the folder's, and is told with both values", () =>
  inFolder(async (folder) => {
    const weights = ["--weights", hfPath("tied")];
    const cases: readonly [string[], RegExp][] = [
      [
        ["--layers", "3"],
        /^Cannot use --layers: it must be 2, the n_layer of .*config.json, received 3$/,
      ],
      [["--n_embd", "32"], /--hidden: it must be 16, the n_embd of .*, received 32$/],
      [["--heads", "4"], /--heads: it must be 2, the n_head of .*, received 4$/],
      [["--vocab", "256"], /--vocab: it must be 61, the vocab_size of .*, received 256$/],
      [["--no-tie"], /--tie: it must be true, the tie_word_embeddings of .*, received false$/],
      [["--seq", "16"], /--seq: it must be 12, the n_positions of .*, received 16$/],
      [
        ["--seq", "8"],
        /must be 12, .*, received 8; name the file of the weights, not its folder, to/,
      ],
    ];
    for (const [args, message] of cases) {
      assert.match(await refusal([...FINE_TUNE, ...weights, ...args]), message);
    }
    const untied = ["--weights", hfPath("untied_f16"), "--tie"];
    assert.match(
      await refusal([...FINE_TUNE, ...untied]),
      /--tie: it must be false, .*received true$/,
    );
    assert.match(
      await refusal([...FINE_TUNE, "--weights", folder]),
      /--weights: its folder must have a config.json, which says .* \(no such file\); name the file/,
    );
    // The same sizes may be typed, and a file alone leaves out positions, as ever.
    const file = ["--weights", join(hfPath("tied"), "model.safetensors"), "--seq", "8"];
    const { last } = await trainHere([...FINE_TUNE, ...file, "--layers", "2", "--steps", "1"]);
    assert.equal(last.done, true);
  }));

Deno.test("a folder without a tokenizer has the tokens of Troupe's that are as many, for a text", () =>
  inFolder(async (folder) => {
    const text = join(folder, "text.txt"), run = join(folder, "run"), out = join(folder, "out");
    await Deno.writeTextFile(text, "Fellow citizens of the Senate. ".repeat(40));
    const train = [...TINY, "--text", text, "--steps", "1"];
    await trainHere([...train, "--out", run]);
    await exportCommand([run, "--format", "hf", "--out", out], { begin: () => {} });
    await Deno.remove(join(out, "tokenizer.json"));
    const tune = ["--text", text, "--micro-batch", "2", "--device", "reference", "--steps", "1"];
    const { last } = await trainHere([...tune, "--weights", out, "--out", join(folder, "tuned")]);
    const { tokenizer, flags } = JSON.parse(
      await Deno.readTextFile(join(last.checkpoint as string, "config.json")),
    );
    assert.deepEqual([tokenizer, flags.tokenizer], ["bytes", "bytes"]);
    assert.match(
      await refusal([...tune, "--weights", hfPath("tied")]),
      /^Cannot use the tokens of a text with --weights: --tokenizer must say what made those of/,
    );
  }));

/** A Llama in a folder of Hugging Face's: trained, read, written, and refused by what it says. */

const LLAMA = fileURLToPath(new URL("../../fixtures/llama", import.meta.url));

const readJson = async (...path: string[]) => JSON.parse(await Deno.readTextFile(join(...path)));

const LLAMA_EXPECTED: {
  readonly config: { readonly lr: number; readonly microBatch: number; readonly steps: number };
  readonly float32: readonly number[];
  readonly logits: readonly (readonly number[])[];
} = await readJson(LLAMA, "expected.json");

const LLAMA_CONFIG: ConfigJson = await readJson(LLAMA, "config.json");

/** The fixture's run: no size is typed, nor the model. */
const LLAMA_RUN = [
  ...["--tokens", join(LLAMA, "tokens.bin"), "--weights", LLAMA, "--device", "native"],
  ...["--lr", `${LLAMA_EXPECTED.config.lr}`, "--micro-batch", "2", "--micro-batches", "4"],
];

Deno.test("a Llama of a folder trains with PyTorch's losses within 1e-5, and what is exported is gone on with", () =>
  inFolder(async (folder) => {
    const run = join(folder, "run"), out = join(folder, "out");
    const args = ["--steps", "30", "--workers", "2", "--schedule", "1f1b", "--out", run];
    const { lines } = await trainHere([...LLAMA_RUN, ...args]);
    const losses = lines.map(({ loss }) => loss).filter((loss) => loss !== undefined) as number[];
    assert.equal(losses.length, LLAMA_EXPECTED.float32.length);
    const worst = Math.max(
      ...losses.map((loss, i) => Math.abs(loss / LLAMA_EXPECTED.float32[i]! - 1)),
    );
    assert.ok(worst < 1e-5, `${worst} off`);
    await exportCommand([run, "--format", "hf", "--out", out], { begin: () => {} });
    const ids = ["--ids", "7,35,80", "--tokens", "20", "--device", "native"];
    const [own, exported] = [
      await runHere(["generate", "--from", run, ...ids]),
      await runHere(["generate", "--from", out, ...ids]),
    ];
    assert.deepEqual(own, exported);
  }));

Deno.test("a Llama that is read and exported is the folder that it was, byte for byte", () =>
  inFolder(async (folder) => {
    const out = join(folder, "out");
    await exportCommand([LLAMA, "--format", "hf", "--out", out], { begin: () => {} });
    assert.deepEqual(await readJson(out, "config.json"), LLAMA_CONFIG);
    assert.deepEqual(Object.keys(await readJson(out, "config.json")), Object.keys(LLAMA_CONFIG));
    const file = "model.safetensors";
    assert.deepEqual(await Deno.readFile(join(out, file)), await Deno.readFile(join(LLAMA, file)));
  }));

Deno.test("what a Llama's config.json says that is not known here is refused by its name", () => {
  const cases: readonly [ConfigJson, string][] = [
    [{ hidden_act: "gelu" }, 'its hidden_act must be "silu", as here, received "gelu"'],
    [{ attention_bias: true }, "its attention_bias must be false, as here, received true"],
    [{ rope_scaling: { factor: 8 } }, "its rope_scaling must be null, as here, received an object"],
    [
      { rope_parameters: { rope_type: "llama3", rope_theta: 5e5 } },
      'its rope_parameters must be of the rope_type "default", as here, received an object',
    ],
    [
      { head_dim: 16 },
      "its head_dim must be its hidden_size ÷ its num_attention_heads, 8, received 16",
    ],
    [{ num_key_value_heads: 3 }, "keyValueHeads must divide its heads, 4, received 3"],
    [{ num_key_value_heads: "2" }, 'its num_key_value_heads must be a whole number, received "2"'],
    [{ rms_norm_eps: "1e-5" }, 'its rms_norm_eps must be a number, received "1e-5"'],
    [{ rope_theta: -1 }, "ropeTheta must be a positive number, received -1"],
    [{ num_hidden_layers: 1e9 }, "layers must be at most 1024, received 1000000000"],
    [{ tie_word_embeddings: 1 }, "its tie_word_embeddings must be true or false, received 1"],
    [{ model_type: "mistral" }, 'its model_type must be "llama", received "mistral"'],
  ];
  for (const [change, message] of cases) {
    assert.throws(
      () => parseLlamaConfig({ ...LLAMA_CONFIG, ...change }, "config.json"),
      (error) => error instanceof Error && error.message.endsWith(message),
      message,
    );
  }
  const { rope_theta: _, num_key_value_heads: _2, rms_norm_eps: _3, ...short } = LLAMA_CONFIG;
  const newer = { ...short, rope_parameters: { rope_type: "default", rope_theta: 5e5 } };
  const { keyValueHeads, ropeTheta, normEpsilon } = parseLlamaConfig(newer, "config.json");
  assert.deepEqual([keyValueHeads, ropeTheta, normEpsilon], [4, 5e5, 1e-6]);
  const long = { ...LLAMA_CONFIG, max_position_embeddings: 131_072 };
  assert.equal(parseLlamaConfig(long, "config.json").seq, 8192);
});

Deno.test("a size that is typed must be that of the Llama's folder; positions may be fewer", async () => {
  const cases: readonly [string[], RegExp][] = [
    [
      ["--model", "gpt"],
      /^Cannot use --model: it must be llama, the model_type of .*, received gpt$/,
    ],
    [["--kv-heads", "4"], /--kv-heads: it must be 2, the num_key_value_heads of .*, received 4$/],
    [["--rope-theta", "100"], /--rope-theta: it must be 5000, the rope_theta of .*, received 100$/],
    [
      ["--seq", "32"],
      /--seq: it must be at most 16, the max_position_embeddings of .*received 32$/,
    ],
    [["--head-slices", "2"], /^Cannot build a Llama: its head must be in one slice, received 2$/],
  ];
  for (const [args, message] of cases) {
    assert.match(await refusal([...LLAMA_RUN, "--steps", "1", ...args]), message);
  }
  const { last } = await trainHere([...LLAMA_RUN, "--seq", "8", "--steps", "1"]);
  assert.equal(last.done, true);
});

/** `--tokenizer FILE`: a tokenizer.json of one's own, which a run keeps beside its checkpoints. */

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

/** Writes the tokenizer and a text, and gives the flags that name them. */
async function writeFiles(folder: string) {
  const tokenizer = join(folder, "tokenizer.json"), text = join(folder, "text.txt");
  await Deno.writeTextFile(tokenizer, JSON.stringify(TOKENIZER));
  await Deno.writeTextFile(text, TEXT);
  return { tokenizer, text, flags: ["--text", text, "--tokenizer", tokenizer] };
}

Deno.test("a run on a tokenizer.json goes on, generates and is exported without it being named again", () =>
  inFolder(async (folder) => {
    const { tokenizer, text, flags } = await writeFiles(folder);
    const run = join(folder, "run"), whole = await trainHere([...TINY, ...flags, "--steps", "4"]);
    await trainHere([...TINY, ...flags, "--steps", "2", "--out", run]);
    await Deno.remove(tokenizer);
    const step = join(run, "step-00000002");
    const config = JSON.parse(await Deno.readTextFile(join(step, "config.json")));
    assert.deepEqual([config.tokenizer, config.vocab], ["tokenizer.json", 8]);
    assert.equal(config.flags.tokenizer, undefined, "no path is among the flags");
    assert.match(config.files.tokenizer.sha256, /^[0-9a-f]{64}$/);

    const more = await trainHere([
      "--resume",
      run,
      "--text",
      text,
      "--steps",
      "4",
      "--device",
      "reference",
    ]);
    assert.deepEqual(bitsOf(more.lines), bitsOf(whole.lines, 3));

    const from = ["--tokens", "9", "--device", "reference", "--prompt", "ABC<|endoftext|>"];
    for (const path of [run, step]) {
      const { code, stdout, stderr } = await runHere(["generate", "--from", path, ...from]);
      assert.deepEqual([code, stderr], [0, ""]);
      assert.match(stdout, /^abc<\|endoftext\|>([a-d ]|<\|endoftext\|>)+\n$/);
    }
    const out = join(folder, "out"), context = { begin: () => {} };
    await exportCommand([run, "--format", "hf", "--out", out], context);
    assert.deepEqual(JSON.parse(await Deno.readTextFile(join(out, "tokenizer.json"))), TOKENIZER);
    const { bos_token_id: bos, eos_token_id: eos } = JSON.parse(
      await Deno.readTextFile(join(out, "config.json")),
    );
    assert.deepEqual([bos, eos], [7, 7]);

    // The folder's own tokenizer is taken for a text, and its sizes.
    const tuned = join(folder, "tuned"), tune = ["--micro-batch", "2", "--device", "reference"];
    const { code, stdout, stderr } = await runHere(["train", ...[
      "--weights",
      out,
      "--text",
      text,
      ...tune,
      "--steps",
      "1",
      "--out",
      tuned,
    ]]);
    assert.equal(code, 0, stderr);
    assert.match(stdout, /\n\nA sample:\n/);
    const { files } = JSON.parse(
      await Deno.readTextFile(join(tuned, "step-00000001", "config.json")),
    );
    assert.equal(files.tokenizer.sha256, config.files.tokenizer.sha256);
    await Deno.remove(join(out, "tokenizer.json"));
    assert.match(
      await refusal(["--weights", out, "--text", text, ...tune]),
      /^Cannot use the tokens of a text with --weights: --tokenizer must say what made those of/,
    );
  }));

Deno.test("another tokenizer than the run's, and none, are refused in one sentence; no file opens one", () =>
  inFolder(async (folder) => {
    const { tokenizer, text, flags } = await writeFiles(folder), run = join(folder, "run");
    await trainHere([...TINY, ...flags, "--steps", "1", "--out", run]);
    const step = join(run, "step-00000001"), kept = join(run, "tokenizer.json");
    const resume = ["--resume", run, "--text", text, "--steps", "2"];
    const other = join(folder, "other.json");
    await Deno.writeTextFile(other, JSON.stringify({ ...TOKENIZER, padding: null }));
    const differs = /must be the tokenizer of the run, with SHA-256 \w+, received one with \w+$/;
    assert.match(await refusal([...resume, "--tokenizer", other]), differs);
    assert.match(
      await refusal([...resume, "--tokenizer", "gpt2"]),
      /--tokenizer must be tokenizer.json, as in this checkpoint, received gpt2$/,
    );
    assert.match(
      await refusal(["--config", join(step, "config.json"), "--text", text]),
      /--tokenizer must name the tokenizer.json of its run, as no file opens another/,
    );
    for (const name of ["none.json", folder + "x", "bites"]) {
      assert.match(
        await refusal([...TINY, "--text", text, "--tokenizer", name]),
        /must be bytes, gpt2, or a tokenizer.json that can be read, received .* \(no such file\)/,
      );
    }
    assert.match(
      await refusal([...TINY, "--text", text, "--tokenizer", text]),
      /text.txt: it must be a tokenizer.json of Hugging Face's tokenizers, received Unexpected token/,
    );
    await Deno.copyFile(other, kept);
    assert.match(await refusal(resume), differs);
    const generate = generateCommand(["--from", step], { begin: () => {} });
    await assert.rejects(generate, { message: differs });
    await Deno.remove(kept);
    assert.match(
      await refusal(resume),
      /must be .* a tokenizer.json that can be read, .*names it$/,
    );
    // Named, it is taken from anywhere.
    const { last } = await trainHere([
      ...resume,
      "--tokenizer",
      tokenizer,
      "--device",
      "reference",
    ]);
    assert.equal(last.done, true);
    await refuseForged(basename(step), dirname(step), text);
  }));

/** A checkpoint may be a stranger's: its words name no tokenizer. */
async function refuseForged(step: string, run: string, text: string): Promise<void> {
  const path = join(run, step), secret = "/etc/hostname";
  await forgeConfig(path, (config) => (config.flags as Record<string, unknown>).tokenizer = secret);
  assert.match(
    await refusal(["--resume", path, "--text", text]),
    /--tokenizer of .*: it must be one of bytes, gpt2, received "\/etc\/hostname"$/,
  );
  await forgeConfig(path, (config) => {
    delete (config.flags as Record<string, unknown>).tokenizer;
    (config.files as Record<string, unknown>).tokenizer = { path: secret, sha256: "../x" };
  });
  assert.match(
    await refusal(["--resume", path, "--text", text]),
    /its tokenizer must have a SHA-256, received/,
  );
}

Deno.test("a journal of such a run is replayed with the tokenizer named", () =>
  inFolder(async (folder) => {
    const { tokenizer, text, flags } = await writeFiles(folder), journal = join(folder, "j.jsonl");
    await trainHere([...TINY, ...flags, "--steps", "1", "--journal", journal]);
    const unnamed = await runHere(["replay", journal, "--text", text]);
    assert.equal(unnamed.code, 2);
    assert.match(unnamed.stderr, /--tokenizer must name the file that the run read/);
    const replayed = await runHere(["replay", journal, "--text", text, "--tokenizer", tokenizer]);
    assert.equal(replayed.code, 0, replayed.stderr);
  }));
