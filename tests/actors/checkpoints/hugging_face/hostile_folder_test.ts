/** Folders of Hugging Face's that a stranger made: each is refused in one sentence, and opens nothing. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { readGpt2Config, readWeights } from "../../../../actors/mod.ts";
import {
  compileModel,
  encodeSafetensors,
  gpt2,
  gpt2Parameters,
  gpt2Ties,
  readSafetensors,
  type SafetensorsTensor,
} from "../../../../kernels/mod.ts";
import { hfPath } from "../../../hugging_face.ts";
import { inFolder } from "../../../in_folder.ts";

const CONFIG = JSON.parse(Deno.readTextFileSync(hfPath("tied/config.json")));

/** What is told of a config.json. */
async function refusalOf(folder: string, json: string): Promise<string> {
  await Deno.writeTextFile(join(folder, "config.json"), json);
  try {
    readGpt2Config(folder);
  } catch (error) {
    assert.match((error as Error).message, /^Cannot [^\n]{10,400}$/);
    return (error as Error).message;
  }
  assert.fail(`${json.slice(0, 200)} must be refused`);
}

Deno.test("a config.json says the sizes of a GPT-2 that is known here, and nothing else", () =>
  inFolder(async (folder) => {
    const changed = (changes: object) => JSON.stringify({ ...CONFIG, ...changes });
    const deep = "[".repeat(200_000) + "]".repeat(200_000);
    const cases: readonly [string, RegExp][] = [
      ["", /it must be a JSON object/],
      ["[]", /it must be a JSON object/],
      [deep, /it must be a JSON object/],
      ['{"n_layer": NaN}', /it must be a JSON object/],
      [
        changed({}).replace("{", '{"n_layer":2,'),
        /its names must be unique, received "n_layer" twice/,
      ],
      [changed({ model_type: "llama" }), /its model_type must be "gpt2", received "llama"$/],
      [changed({ model_type: undefined }), /its model_type must be "gpt2", received nothing$/],
      [changed({ n_layer: undefined }), /its n_layer must be a whole number, received nothing$/],
      [changed({ n_layer: "2" }), /its n_layer must be a whole number, received "2"$/],
      [changed({ n_layer: 1.5 }), /its n_layer must be a whole number, received 1.5$/],
      [changed({ n_layer: [[2]] }), /its n_layer must be a whole number, received a list$/],
      [changed({ n_layer: 1e300 }), /its n_layer must be a whole number, received 1e\+300$/],
      [changed({ n_layer: -1 }), /layers must be a positive integer, received -1$/],
      [changed({ n_layer: 1e9 }), /layers must be at most 1024, received 1000000000$/],
      [changed({ vocab_size: 2 ** 30 }), /vocab must be at most 16777216, received 1073741824$/],
      [
        changed({ n_head: 3 }),
        /hidden must be divisible by heads, received hidden 16 and heads 3$/,
      ],
      [changed({ n_ctx: 1024 }), /its n_ctx must be its n_positions, 12, received 1024$/],
      [changed({ n_inner: 32 }), /its n_inner must be 4 times its n_embd, 64, received 32$/],
      [changed({ activation_function: "relu" }), /its activation_function must be "gelu_new"/],
      [changed({ layer_norm_epsilon: 1e-6 }), /its layer_norm_epsilon must be 0.00001/],
      [changed({ scale_attn_weights: false }), /its scale_attn_weights must be true/],
      [
        changed({ scale_attn_by_inverse_layer_idx: true }),
        /must be false, as here, received true$/,
      ],
      [changed({ add_cross_attention: true }), /its add_cross_attention must be false/],
      [changed({ tie_word_embeddings: "no" }), /its tie_word_embeddings must be true or false/],
      [`{"model_type":"gpt2","__proto__":${changed({})}}`, /its n_layer must be a whole number/],
      [`{"model_type":"gpt2","n_layer":${deep}}`, /its n_layer must be .*, received a list$/],
    ];
    for (const [json, message] of cases) assert.match(await refusalOf(folder, json), message);
    assert.equal(Object.hasOwn(Object.prototype, "n_layer"), false);

    const path = join(folder, "config.json");
    await Deno.truncate(path, 1e9);
    assert.throws(() => readGpt2Config(folder), /received 1000000000 bytes, more than 16777216$/);
    await Deno.remove(path);
    assert.throws(() => readGpt2Config(folder), /No such file/);
    if (Deno.build.os === "windows") return;
    await Deno.symlink("/dev/zero", path);
    assert.throws(() => readGpt2Config(folder), /must be a regular file, received a device$/);
  }));

Deno.test("the parameters of a model are those that it is compiled with, whatever the number of its blocks", () => {
  const sizes = { layers: 3, hidden: 8, heads: 2, seq: 4, vocab: 16 };
  for (const more of [{}, { tie: true }, { headSlices: 3 }]) {
    const { parameters } = compileModel(gpt2({ ...sizes, ...more }, 1), "none");
    assert.deepEqual(gpt2Parameters({ ...sizes, ...more }), parameters);
  }
});

/** The tied model of the fixture, some of its tensors changed; `undefined` takes one away. */
async function changedFile(
  changes: Readonly<Record<string, Partial<SafetensorsTensor> | undefined>>,
): Promise<Uint8Array> {
  const { tensors } = await readSafetensors(hfPath("tied/model.safetensors"));
  const all = new Map<string, SafetensorsTensor>(tensors);
  for (const [name, change] of Object.entries(changes)) {
    if (change) {
      all.set(name, { ...all.get("transformer.ln_f.bias")!, ...all.get(name), ...change });
    } else all.delete(name);
  }
  return encodeSafetensors(all, { format: "pt" });
}

const refuseWeights = async (folder: string, message: RegExp) => {
  const config = readGpt2Config(folder);
  await assert.rejects(
    readWeights(folder, gpt2Parameters(config), gpt2Ties(config)),
    (error: Error) => {
      assert.match(error.message, /^Cannot [^\n]+$/);
      assert.match(error.message, message);
      return true;
    },
  );
};

Deno.test("weights are those of the config.json, each once, finite and as long as it says", () =>
  inFolder(async (folder) => {
    await Deno.writeTextFile(join(folder, "config.json"), JSON.stringify(CONFIG));
    const write = (bytes: Uint8Array) => Deno.writeFile(join(folder, "model.safetensors"), bytes);
    const nan = { data: new Float32Array(16).fill(NaN) };
    const infinite = { dtype: "BF16", data: new Uint16Array(16).fill(0x7f80) } as const;
    const wide = { dtype: "F64", data: new Float64Array(16) } as const;
    const one = "transformer.ln_f.bias", block = "transformer.h.1.ln_1.bias";
    const cases: readonly [Parameters<typeof changedFile>[0], RegExp][] = [
      [{ [block]: undefined }, /must hold "transformer.h.1.ln_1.bias"$/],
      [
        { "transformer.h.2.ln_1.bias": {} },
        /received "transformer.h.2.ln_1.bias"; is it a file of/,
      ],
      [{ "ln_f.bias": {} }, /it must hold "transformer.ln_f.bias" once, received it twice$/],
      [
        { [one]: { shape: [4, 4] } },
        /"transformer.ln_f.bias" must have shape \[16\], received \[4,4\]/,
      ],
      [{ [one]: wide }, /must have dtype F32, F16 or BF16, received F64; convert the file to F32$/],
      [{ [one]: nan }, /all must be finite, received NaN in "transformer.ln_f.bias"$/],
      [{ [one]: infinite }, /all must be finite, received Infinity in "transformer.ln_f.bias"$/],
    ];
    for (const [changes, message] of cases) {
      await write(await changedFile(changes));
      await refuseWeights(folder, message);
    }
    const whole = await changedFile({});
    for (const bytes of [7, 100, whole.length - 1]) {
      await write(whole.subarray(0, bytes));
      await refuseWeights(folder, /8-byte header|at most|truncated/);
    }
    await Deno.remove(join(folder, "model.safetensors"));
    await refuseWeights(folder, /the folder must hold model.safetensors or .*, received neither/);
  }));

Deno.test("an index names shards beside it that hold what it says, and nothing outside", () =>
  inFolder(async (folder) => {
    for (const { name } of Deno.readDirSync(hfPath("sharded_bf16"))) {
      await Deno.copyFile(join(hfPath("sharded_bf16"), name), join(folder, name));
    }
    const path = join(folder, "model.safetensors.index.json");
    const index = JSON.parse(await Deno.readTextFile(path));
    const shard = "model-00002-of-00002.safetensors",
      bytes = await Deno.readFile(join(folder, shard));
    const names: readonly unknown[] = [
      ...[
        "../x.safetensors",
        "/etc/passwd",
        "a/b.safetensors",
        "..\\x.safetensors",
        ".safetensors",
      ],
      ...["x.safetensors\n", "x.pt", 1, null, {}],
    ];
    for (const name of names) {
      const map = { ...index.weight_map, "wte.weight": name };
      await Deno.writeTextFile(path, JSON.stringify({ ...index, weight_map: map }));
      await refuseWeights(folder, /its shards must be safetensors files beside it, received/);
    }
    const { "wte.weight": _, ...missing } = index.weight_map;
    const maps: readonly [unknown, RegExp][] = [
      [missing, /must hold the tensors that its index says, received also "wte.weight"$/],
      [{ ...index.weight_map, "h.7.x": shard }, /that its index says, received no "h.7.x"$/],
      [[], /it must have a weight_map from tensors to files, received object$/],
    ];
    for (const [weight_map, message] of maps) {
      await Deno.writeTextFile(path, JSON.stringify({ ...index, weight_map }));
      await refuseWeights(folder, message);
    }
    await Deno.writeTextFile(path, JSON.stringify(index));
    await Deno.writeFile(join(folder, shard), bytes.subarray(0, -2));
    await refuseWeights(folder, /truncated/);
    await Deno.remove(join(folder, shard));
    await assert.rejects(
      readWeights(folder, gpt2Parameters(readGpt2Config(folder)), [[
        "transformer.wte.weight",
        "lm_head.weight",
      ]]),
      /No such file: .*model-00002-of-00002.safetensors$/,
    );
  }));
