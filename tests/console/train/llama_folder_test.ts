/** A Llama in a folder of Hugging Face's: trained, read, written, and refused by what it says. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { exportCommand } from "../../../console/mod.ts";
import { type ConfigJson } from "../../../actors/checkpoints/hugging_face/config_file.ts";
import { parseLlamaConfig } from "../../../actors/checkpoints/hugging_face/llama_config.ts";
import { inFolder, refusal, runGenerate, trainJson } from "../command.ts";

const FOLDER = fileURLToPath(new URL("../../fixtures/llama", import.meta.url));

const readJson = async (...path: string[]) => JSON.parse(await Deno.readTextFile(join(...path)));

const EXPECTED: {
  readonly config: { readonly lr: number; readonly microBatch: number; readonly steps: number };
  readonly float32: readonly number[];
  readonly logits: readonly (readonly number[])[];
} = await readJson(FOLDER, "expected.json");

const CONFIG: ConfigJson = await readJson(FOLDER, "config.json");

/** The fixture's run: no size is typed, nor the model. */
const FINE_TUNE = [
  ...["--tokens", join(FOLDER, "tokens.bin"), "--weights", FOLDER, "--device", "native"],
  ...["--lr", `${EXPECTED.config.lr}`, "--micro-batch", "2", "--micro-batches", "4"],
];

Deno.test("a Llama of a folder trains with PyTorch's losses within 1e-5, and what is exported is gone on with", () =>
  inFolder(async (folder) => {
    const run = join(folder, "run"), out = join(folder, "out");
    const args = ["--steps", "30", "--workers", "2", "--schedule", "1f1b", "--out", run];
    const { lines } = await trainJson([...FINE_TUNE, ...args]);
    const losses = lines.map(({ loss }) => loss).filter((loss) => loss !== undefined) as number[];
    assert.equal(losses.length, EXPECTED.float32.length);
    const worst = Math.max(...losses.map((loss, i) => Math.abs(loss / EXPECTED.float32[i]! - 1)));
    assert.ok(worst < 1e-5, `${worst} off`);
    await exportCommand([run, "--format", "hf", "--out", out], { begin: () => {} });
    const ids = ["--ids", "7,35,80", "--tokens", "20", "--device", "native"];
    const [own, exported] = [
      await runGenerate(["--from", run, ...ids]),
      await runGenerate(["--from", out, ...ids]),
    ];
    assert.deepEqual(own, exported);
  }));

Deno.test("a Llama that is read and exported is the folder that it was, byte for byte", () =>
  inFolder(async (folder) => {
    const out = join(folder, "out");
    await exportCommand([FOLDER, "--format", "hf", "--out", out], { begin: () => {} });
    assert.deepEqual(await readJson(out, "config.json"), CONFIG);
    assert.deepEqual(Object.keys(await readJson(out, "config.json")), Object.keys(CONFIG));
    const file = "model.safetensors";
    assert.deepEqual(await Deno.readFile(join(out, file)), await Deno.readFile(join(FOLDER, file)));
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
      () => parseLlamaConfig({ ...CONFIG, ...change }, "config.json"),
      (error) => error instanceof Error && error.message.endsWith(message),
      message,
    );
  }
  const { rope_theta: _, num_key_value_heads: _2, rms_norm_eps: _3, ...short } = CONFIG;
  const newer = { ...short, rope_parameters: { rope_type: "default", rope_theta: 5e5 } };
  const { keyValueHeads, ropeTheta, normEpsilon } = parseLlamaConfig(newer, "config.json");
  assert.deepEqual([keyValueHeads, ropeTheta, normEpsilon], [4, 5e5, 1e-6]);
  const long = { ...CONFIG, max_position_embeddings: 131_072 };
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
    assert.match(await refusal([...FINE_TUNE, "--steps", "1", ...args]), message);
  }
  const { last } = await trainJson([...FINE_TUNE, "--seq", "8", "--steps", "1"]);
  assert.equal(last.done, true);
});
