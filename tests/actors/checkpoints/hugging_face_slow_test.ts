/** Hugging Face folders: PyTorch's logits, files written by transformers, and refusals in one sentence. */

import assert from "node:assert/strict";
import { basename, join } from "node:path";
import { readWeights } from "../../../actors/checkpoints/weights.ts";
import {
  compileModel,
  encodeSafetensors,
  gpt2,
  gpt2Parameters,
  readSafetensors,
  type SafetensorsTensor,
  t5,
} from "../../../kernels/mod.ts";
import { gpt2Ties } from "../../../kernels/layers/gpt2.ts";
import { distance, EXPECTED, FOLDERS, gpt2Sizes, hfPath, logitsOf } from "../../hugging_face.ts";
import { copyFolder } from "../../console/forged.ts";
import { assertRefused } from "../../kernels/graph/refused.ts";
import { folderTest } from "../../in_folder.ts";
import { readT5 } from "../../kernels/architectures/t5_fixture.ts";

/** Output of transformers, and the messages for refused configurations. */
const GOLDEN = JSON.parse(Deno.readTextFileSync(new URL("golden.json", import.meta.url)));
const CONFIG = JSON.parse(Deno.readTextFileSync(hfPath("tied/config.json")));

folderTest("a config.json says the sizes of a GPT-2, and nothing else", async (folder) => {
  const path = join(folder, "config.json");
  const changed = (changes: object) =>
    JSON.stringify({ ...CONFIG, ...changes }, (_, value) => value ?? undefined);
  const deep = "[".repeat(200_000) + "]".repeat(200_000);
  const cases: readonly (readonly [object | string, string])[] = [
    [deep, "it must be a JSON object"],
    ['{"n_layer": NaN}', "it must be a JSON object"],
    [changed({}).replace("{", '{"n_layer":2,'), 'must be unique, received "n_layer" twice'],
    [`{"model_type":"gpt2","__proto__":${changed({})}}`, "its n_layer must be a whole number"],
    [`{"model_type":"gpt2","n_layer":${deep}}`, "must be a whole number, received a list"],
    ...GOLDEN.gpt2Refusals,
  ];
  for (const [config, told] of cases) {
    const json = typeof config === "string" ? config : changed(config);
    await Deno.writeTextFile(path, json);
    assert.throws(() => gpt2Sizes(folder), ({ message }: Error) => {
      assert.match(message, /^Cannot [^\n]{10,400}$/);
      assert.ok(message.includes(told), `${message} must include ${told}`);
      return true;
    }, json.slice(0, 200));
  }
  assert.equal(Object.hasOwn(Object.prototype, "n_layer"), false);

  await Deno.truncate(path, 1e9);
  assert.throws(() => gpt2Sizes(folder), /received 1000000000 bytes, more than 16777216$/);
  await Deno.remove(path);
  assert.throws(() => gpt2Sizes(folder), /received no such file$/);
  if (Deno.build.os === "windows") return;
  await Deno.symlink("/dev/zero", path);
  assert.throws(() => gpt2Sizes(folder), /must be a regular file, received a device$/);
});

Deno.test("a model lists the parameters it is compiled with, for any number of blocks", () => {
  const sizes = { layers: 3, hidden: 8, heads: 2, seq: 4, vocab: 16 };
  for (const more of [{}, { tie: true }, { headSlices: 3 }]) {
    const { parameters } = compileModel(gpt2({ ...sizes, ...more }, 1), "none");
    assert.deepEqual(gpt2Parameters({ ...sizes, ...more }), parameters);
  }
});

/** Returns the tied model of the fixture with some tensors changed; `undefined` removes a tensor. */
async function changedFile(
  changes: Readonly<Record<string, Partial<SafetensorsTensor> | undefined>>,
): Promise<Uint8Array> {
  const { tensors } = await readSafetensors(hfPath("tied/model.safetensors"));
  const all = new Map<string, SafetensorsTensor>(tensors);
  const like = all.get("transformer.ln_f.bias")!;
  for (const [name, change] of Object.entries(changes)) {
    all.set(name, { ...like, ...all.get(name), ...change });
    if (!change) all.delete(name);
  }
  return encodeSafetensors(all, { format: "pt" });
}

/** Reads the weights in a folder. */
async function readFolder(folder: string): Promise<unknown> {
  const config = gpt2Sizes(folder);
  return await readWeights(folder, gpt2Parameters(config), gpt2Ties(config));
}

folderTest("weights are those of the config.json, each once, finite and whole", async (folder) => {
  await Deno.writeTextFile(join(folder, "config.json"), JSON.stringify(CONFIG));
  const path = join(folder, "model.safetensors"), whole = await changedFile({});
  const one = "transformer.ln_f.bias", length = 16;
  const cases: Readonly<Record<string, Parameters<typeof changedFile>[0]>> = {
    "a missing tensor": { "transformer.h.1.ln_1.bias": undefined },
    "a tensor of another block": { "transformer.h.2.ln_1.bias": {} },
    "a tensor under two names": { "ln_f.bias": {} },
    "another shape": { [one]: { shape: [4, 4] } },
    "F64": { [one]: { dtype: "F64", data: new Float64Array(length) } },
    "NaN": { [one]: { data: new Float32Array(length).fill(NaN) } },
    "Infinity": { [one]: { dtype: "BF16", data: new Uint16Array(length).fill(0x7f80) } },
  };
  const read = (make: () => Promise<unknown>) => async () => (await make(), readFolder(folder));
  await assertRefused("hugging_face_weights", [
    ...Object.entries(cases).map(([about, changes]) =>
      [about, read(async () => Deno.writeFile(path, await changedFile(changes)))] as const
    ),
    ...[7, 100, -1].map((end) =>
      [`bytes up to ${end}`, read(() => Deno.writeFile(path, whole.subarray(0, end)))] as const
    ),
    ["no file", read(() => Deno.remove(path))],
  ], { FOLDER: folder });
});

folderTest("an index names shards in its folder that hold its tensors", async (folder) => {
  await copyFolder(hfPath("sharded_bf16"), folder);
  const path = join(folder, "model.safetensors.index.json");
  const index = JSON.parse(await Deno.readTextFile(path)), { weight_map } = index;
  const shard = join(folder, "model-00002-of-00002.safetensors");
  const { "wte.weight": _, ...missing } = weight_map;
  const read = (map: unknown) => async () => {
    await Deno.writeTextFile(path, JSON.stringify({ ...index, weight_map: map }));
    await readFolder(folder);
  };
  await assertRefused("hugging_face_index", [
    ...GOLDEN.shardNames.map((name: unknown) =>
      [JSON.stringify(name), read({ ...weight_map, "wte.weight": name })] as const
    ),
    ["a tensor that the index has not", read(missing)],
    ["a tensor that only the index has", read({ ...weight_map, "h.7.x": basename(shard) })],
    ["a list", read([])],
    ["a truncated shard", async () => {
      await Deno.truncate(shard, Deno.statSync(shard).size - 2);
      await read(weight_map)();
    }],
    ["no shard", async () => {
      await Deno.remove(shard);
      await readFolder(folder);
    }],
  ], { FOLDER: folder });
});

for (const folder of FOLDERS) {
  Deno.test(`the GPT-2 in ${folder} has PyTorch's logits within 1e-4`, async () => {
    const received = await logitsOf(hfPath(folder));
    const worst = distance(received, EXPECTED.logits[folder]!);
    assert.ok(worst < 1e-4, `${worst} off`);
  });
}

folderTest("of a whole file and shards beside it the file is read", async (folder) => {
  for (const name of ["sharded_bf16", "tied"]) await copyFolder(hfPath(name), folder);
  const worst = distance(await logitsOf(folder), EXPECTED.logits.tied!);
  assert.ok(worst < 1e-4, `${worst} off`);
});

folderTest("weights of the first T5s, under all names, are read", async (folder) => {
  const { config, weights } = await readT5("v1_0"), model = t5(config, 2);
  const { parameters } = compileModel(model, "none");
  const tensors = new Map<string, SafetensorsTensor>(
    parameters.map(({ name, shape }) => [name, { dtype: "F32", shape, data: weights.get(name)! }]),
  );
  for (const name of ["encoder.embed_tokens", "decoder.embed_tokens", "lm_head"]) {
    tensors.set(`${name}.weight`, tensors.get("shared.weight")!);
  }
  const unused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";
  tensors.set(unused, { dtype: "F32", shape: [8, 3], data: new Float32Array(24).fill(9) });
  const bytes = encodeSafetensors(tensors, { format: "pt" });
  await Deno.writeFile(join(folder, "model.safetensors"), bytes);
  assert.deepEqual(await readWeights(folder, parameters, model.ties), weights);
});
