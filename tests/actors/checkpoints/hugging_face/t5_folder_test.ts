/** T5s in folders as Hugging Face's transformers reads and writes them. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { readT5Config, readWeights, train, writeT5Folder } from "../../../../actors/mod.ts";
import {
  compileModel,
  encodeFloats,
  layoutSafetensors,
  t5,
  t5Ties,
} from "../../../../kernels/mod.ts";
import { folderTest } from "../../../in_folder.ts";
import { readT5, T5_VERSIONS } from "../../../kernels/architectures/t5_fixture.ts";

/** What transformers writes for the published T5 with the sizes of the fixture. */
const CONFIG = {
  architectures: ["T5ForConditionalGeneration"],
  classifier_dropout: 0.0,
  d_ff: 40,
  d_kv: 10,
  d_model: 24,
  decoder_start_token_id: 0,
  dense_act_fn: "relu",
  dropout_rate: 0.1,
  eos_token_id: 1,
  feed_forward_proj: "relu",
  initializer_factor: 1.0,
  is_encoder_decoder: true,
  is_gated_act: false,
  layer_norm_epsilon: 1e-06,
  model_type: "t5",
  num_decoder_layers: 2,
  num_heads: 3,
  num_layers: 2,
  pad_token_id: 0,
  relative_attention_max_distance: 6,
  relative_attention_num_buckets: 8,
  tie_word_embeddings: true,
  torch_dtype: "float32",
  use_cache: true,
  vocab_size: 40,
};

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
    await Deno.writeTextFile(join(folder, "config.json"), JSON.stringify(CONFIG));
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
    const data = batches.slice(0, microBatches), told: number[] = [];
    const options = {
      model,
      data,
      weights: folder,
      steps: 1,
      microBatches,
      device: "native",
    } as const;
    for await (const event of train({ ...options, runtime: "serial" })) {
      if (event.type === "step") told.push(event.loss);
    }
    assert.ok(Math.abs(told[0]! / losses[0]! - 1) < 1e-6, `${told}`);
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
        ...CONFIG,
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
    for (
      const [change, told] of [
        [{ model_type: "mt5" }, `model_type must be "t5", received "mt5"`],
        [
          { feed_forward_proj: "gated-silu" },
          `feed_forward_proj must be "relu" or "gated-gelu", received "gated-silu"`,
        ],
        [{ num_decoder_layers: 4 }, "num_decoder_layers must be 2, as here, received 4"],
        [
          { layer_norm_epsilon: 1e-5 },
          "layer_norm_epsilon must be 0.000001, as here, received 0.00001",
        ],
        [{ d_kv: "ten" }, `d_kv must be a whole number, received "ten"`],
        [{ tie_word_embeddings: 1 }, "tie_word_embeddings must be true or false, received 1"],
      ] as const
    ) {
      await Deno.writeTextFile(path, JSON.stringify({ ...CONFIG, ...change }));
      assert.throws(() => readT5Config(folder), { message: `Cannot read ${path}: its ${told}` });
    }
    await Deno.writeTextFile(
      path,
      JSON.stringify({ ...CONFIG, num_layers: 5000, num_decoder_layers: 5000 }),
    );
    assert.throws(
      () => readT5Config(folder),
      /Cannot read .*: Cannot build T5: layers must be at most 1024/,
    );
  },
);
