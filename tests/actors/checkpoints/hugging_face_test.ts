/** Folders of Hugging Face's: PyTorch's logits, what transformers writes, and what is refused in one sentence. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { readGpt2Config, readT5Config, readWeights, writeT5Folder } from "../../../actors/mod.ts";
import {
  compileModel,
  encodeFloats,
  encodeSafetensors,
  gpt2,
  gpt2Parameters,
  gpt2Ties,
  layoutSafetensors,
  readSafetensors,
  type SafetensorsTensor,
  t5,
  t5Ties,
} from "../../../kernels/mod.ts";
import { distance, EXPECTED, FOLDERS, hfPath, logitsOf } from "../../hugging_face.ts";
import { folderTest, inFolder } from "../../in_folder.ts";
import { readT5, T5_VERSIONS } from "../../kernels/architectures/t5_fixture.ts";
import { assertNear, TINY, trained } from "../pipeline/trained.ts";

/** What transformers writes, and what is said of configurations that are refused. */
const GOLDEN = JSON.parse(Deno.readTextFileSync(new URL("golden.json", import.meta.url)));
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
    const changed = (changes: object) =>
      JSON.stringify({ ...CONFIG, ...changes }, (_, value) => value ?? undefined);
    const deep = "[".repeat(200_000) + "]".repeat(200_000);
    const cases: readonly (readonly [string, string])[] = [
      [deep, "it must be a JSON object"],
      ['{"n_layer": NaN}', "it must be a JSON object"],
      [changed({}).replace("{", '{"n_layer":2,'), 'must be unique, received "n_layer" twice'],
      [`{"model_type":"gpt2","__proto__":${changed({})}}`, "its n_layer must be a whole number"],
      [
        `{"model_type":"gpt2","n_layer":${deep}}`,
        "its n_layer must be a whole number, received a list",
      ],
      ...GOLDEN.gpt2Refusals.map(([changes, message]: [object | string, string]) =>
        [typeof changes === "string" ? changes : changed(changes), message] as const
      ),
    ];
    for (const [json, message] of cases) {
      const refusal = await refusalOf(folder, json);
      assert.ok(refusal.includes(message), `${refusal} must include ${message}`);
    }
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

for (const folder of FOLDERS) {
  Deno.test(`the GPT-2 in ${folder} has PyTorch's logits within 1e-4`, async () => {
    const received = await logitsOf(hfPath(folder));
    const worst = distance(received, EXPECTED.logits[folder]!);
    assert.ok(worst < 1e-4, `${worst} off`);
  });
}

Deno.test("of a whole file and shards beside it the file is read, as transformers does", () =>
  inFolder(async (folder) => {
    for (const name of ["sharded_bf16", "tied"]) {
      for (const file of Deno.readDirSync(hfPath(name))) {
        await Deno.copyFile(join(hfPath(name), file.name), join(folder, file.name));
      }
    }
    const worst = distance(await logitsOf(folder), EXPECTED.logits.tied!);
    assert.ok(worst < 1e-4, `${worst} off`);
  }));

const T5_CONFIG = GOLDEN.t5Config;

/** A safetensors file of some tensors. */
async function writeTensors(
  path: string,
  tensors: ReadonlyMap<string, { shape: readonly number[]; values: Float32Array }>,
): Promise<void> {
  const infos = new Map(
    [...tensors].map(([name, { shape }]) => [name, { dtype: "F32", shape }] as const),
  );
  const { header, names } = layoutSafetensors(infos, { format: "pt" });
  const data = names.map((name) => encodeFloats("F32", tensors.get(name)!.values));
  await Deno.writeFile(
    path,
    new Uint8Array(await new Blob([header, ...data] as BlobPart[]).arrayBuffer()),
  );
}

folderTest(
  "a folder of the first T5s is read, with what they carry beside their parameters, and goes on as in PyTorch",
  async (folder) => {
    const { config, weights, batches, losses, microBatches } = await readT5("v1_0");
    await Deno.writeTextFile(join(folder, "config.json"), JSON.stringify(T5_CONFIG));
    const sizes = readT5Config(folder);
    const { seq, targetSeq, ...shape } = config;
    assert.deepEqual(sizes, shape);
    const model = t5({ ...sizes, seq, targetSeq: targetSeq! }, 2);
    const { parameters } = compileModel(model, "none");
    const tensors = new Map(
      parameters.map(({ name, shape }) => [name, { shape, values: weights.get(name)! }]),
    );
    const shared = tensors.get("shared.weight")!;
    const unused = { shape: [8, 3], values: new Float32Array(24).fill(9) };
    await writeTensors(
      join(folder, "model.safetensors"),
      new Map([
        ...tensors,
        ["encoder.embed_tokens.weight", shared],
        ["decoder.embed_tokens.weight", shared],
        ["lm_head.weight", shared],
        ["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight", unused],
      ]),
    );
    assert.deepEqual(await readWeights(folder, parameters, model.ties), weights);
    const data = batches.slice(0, microBatches);
    const run = await trained({ ...TINY, steps: 1, microBatches }, {
      ...{ model, data, weights: folder, runtime: "serial" },
    });
    assertNear(run.losses, losses.slice(0, 1), 1e-6, "losses");
  },
);

for (const version of T5_VERSIONS) {
  folderTest(
    `T5 ${version} is written as a folder of transformers, and read again`,
    async (folder) => {
      const { config: { seq: _, targetSeq: __, ...config }, weights, model } = await readT5(
        version,
      );
      const path = join(folder, "mine");
      await writeT5Folder(path, { config, weights });
      const json = JSON.parse(await Deno.readTextFile(join(path, "config.json")));
      assert.deepEqual(json, {
        ...T5_CONFIG,
        dropout_rate: 0,
        ...version === "v1_1" && {
          dense_act_fn: "gelu_new",
          feed_forward_proj: "gated-gelu",
          is_gated_act: true,
          tie_word_embeddings: false,
        },
      });
      assert.deepEqual(readT5Config(path), config);
      const { parameters } = compileModel(model, "none");
      assert.deepEqual(await readWeights(path, parameters, t5Ties({ ...config, seq: 1 })), weights);
      const files = [...Deno.readDirSync(path)].map(({ name }) => name).sort();
      assert.deepEqual(files, ["config.json", "generation_config.json", "model.safetensors"]);
    },
  );
}

folderTest(
  "a folder of another model, or of a T5 that is not known here, is refused",
  async (folder) => {
    const path = join(folder, "config.json");
    for (const [change, told] of GOLDEN.t5Refusals) {
      await Deno.writeTextFile(path, JSON.stringify({ ...T5_CONFIG, ...change }));
      assert.throws(() => readT5Config(folder), { message: `Cannot read ${path}: its ${told}` });
    }
    await Deno.writeTextFile(
      path,
      JSON.stringify({ ...T5_CONFIG, num_layers: 5000, num_decoder_layers: 5000 }),
    );
    assert.throws(
      () => readT5Config(folder),
      /Cannot read .*: Cannot build T5: layers must be at most 1024/,
    );
  },
);
