import assert from "node:assert/strict";
import { join } from "node:path";
import { readWeights } from "../../../actors/checkpoints/weights.ts";
import { findTorch } from "../../../bench/peers.ts";
import { gpt2Parameters, readSafetensors } from "../../../kernels/mod.ts";
import { GPT2, readSizes } from "../../../actors/checkpoints/hugging_face.ts";
import { EXPECTED, hfPath } from "../../hugging_face.ts";
import { folderTest, inFolder, namesIn } from "../../in_folder.ts";
import { testNeeding } from "../../needs.ts";
import {
  bitsOf,
  printedHere,
  readJson,
  refusedHere,
  refuses,
  ROOT,
  runProgram,
  trainHere,
  words,
} from "../command.ts";

/** Adapters of a GPT-2 in the format of PEFT: trained, exported, read again and merged. */

const { learningRate, weightDecay, microBatch, microBatches } = EXPECTED.fineTuned;

const BASE = hfPath("tied");

/** Flags of a run on the fixture. */
const TUNE = words`
  --weights ${BASE} --tokens ${hfPath("tokens.bin")} --lr ${learningRate}
  --weight-decay ${weightDecay} --micro-batch-size ${microBatch} --micro-batches ${microBatches}
  --device native`;

const LORA = words`--lora rank=2,alpha=6,target=c_attn,mlp.c_proj`;

/** Exports a run or a model. */
const exportTo = (out: string, from: string, ...more: string[]) =>
  printedHere("export", from, "--out", out, ...more);

/** Trains an adapter and exports it. */
async function adapted(folder: string): Promise<{ run: string; adapter: string }> {
  const run = join(folder, "run"), adapter = join(folder, "adapter");
  await trainHere(words`${TUNE} ${LORA} --steps 4 --checkpoint-every 2 --workers 2 --out ${run}`);
  await exportTo(adapter, run, "--format", "peft");
  return { run, adapter };
}

/** The layout of PEFT's documentation of `LoraConfig` and of the format of checkpoints. */
const CONFIG = {
  alpha_pattern: {},
  base_model_name_or_path: BASE,
  bias: "none",
  fan_in_fan_out: true,
  inference_mode: true,
  init_lora_weights: true,
  layer_replication: null,
  layers_to_transform: null,
  lora_alpha: 6,
  lora_bias: false,
  lora_dropout: 0,
  modules_to_save: null,
  peft_type: "LORA",
  r: 2,
  rank_pattern: {},
  target_modules: ["c_attn", "mlp.c_proj"],
  task_type: "CAUSAL_LM",
  use_dora: false,
  use_rslora: false,
};

folderTest("an adapter's folder has the names, shapes and settings of PEFT", async (folder) => {
  const { adapter } = await adapted(folder);
  assert.deepEqual(await namesIn(adapter), ["adapter_config.json", "adapter_model.safetensors"]);
  assert.deepEqual(await readJson(adapter, "adapter_config.json"), CONFIG);
  const { tensors, metadata } = await readSafetensors(join(adapter, "adapter_model.safetensors"));
  assert.deepEqual(metadata, { format: "pt" });
  const shapes = [0, 1].flatMap((i) => {
    const block = `base_model.model.transformer.h.${i}.`;
    return [
      [`${block}attn.c_attn.lora_A.weight`, "F32", [2, 16]],
      [`${block}attn.c_attn.lora_B.weight`, "F32", [48, 2]],
      [`${block}mlp.c_proj.lora_A.weight`, "F32", [2, 64]],
      [`${block}mlp.c_proj.lora_B.weight`, "F32", [16, 2]],
    ];
  });
  const found = Array.from(tensors, ([name, { dtype, shape }]) => [name, dtype, shape] as const);
  assert.deepEqual(found.sort(), shapes);
});

folderTest(
  "a run is resumed with the adapter's settings, and ended at its bits",
  async (folder) => {
    const { run } = await adapted(folder);
    const rest = words`--tokens ${hfPath("tokens.bin")} --device native --steps 4`;
    const from = words`--resume ${join(run, "step-00000002")} --out ${join(folder, "rest")}`;
    const { lines } = await trainHere([...from, ...rest]);
    const { lines: whole } = await trainHere(words`${TUNE} ${LORA} --steps 4`);
    assert.deepEqual(bitsOf(lines, 3), bitsOf(whole, 3));
    await refuses(
      words`--resume ${run} ${rest} --lora rank=2,target=c_fc`,
      /lora must be .*c_attn/,
    );
  },
);

folderTest("a merged adapter is in the weights, wherever it comes from", async (folder) => {
  const { run, adapter } = await adapted(folder), config = readSizes(GPT2, BASE);
  const [one, other] = ["one", "other"].map((name) => join(folder, name)) as [string, string];
  await exportTo(one, run, "--format", "hf", "--merge");
  await exportTo(other, BASE, "--format", "hf", "--merge", "--adapter", adapter);
  const weightsIn = (path: string) => readWeights(path, gpt2Parameters(config));
  const merged = await weightsIn(one), base = await weightsIn(BASE);
  assert.deepEqual(await weightsIn(other), merged);
  const moved = [...merged].filter(([name, values]) =>
    values.some((value, i) => value !== base.get(name)![i])
  );
  assert.deepEqual(
    moved.map(([name]) => name).sort(),
    [0, 1].flatMap((i) =>
      ["attn.c_attn", "mlp.c_proj"].map((n) => `transformer.h.${i}.${n}.weight`)
    ),
  );
  // What the adapted model computes, the merged one does.
  const lossFrom = async (weights: readonly string[]) => {
    const rest = words`--tokens ${hfPath("tokens.bin")} --device native --steps 1 --lr 0`;
    const { lines } = await trainHere([...rest, "--weights", ...weights]);
    return lines.find(({ loss }) => loss !== undefined)!.loss as number;
  };
  const ratio = await lossFrom([one]) / await lossFrom([BASE, "--adapter", adapter]);
  assert.ok(Math.abs(ratio - 1) < 1e-6, `${ratio}`);
  const continued = words`--ids 1,2,3 --tokens 6 --temperature 0 --device native`;
  const texts = [
    await printedHere("generate", "--from", run, ...continued),
    await printedHere("generate", "--from", one, ...continued),
    await printedHere("generate", "--from", BASE, "--adapter", adapter, ...continued),
  ];
  assert.equal(new Set(texts).size, 1, texts.join());
});

folderTest("what an adapter cannot be is refused", async (folder) => {
  const { run, adapter } = await adapted(folder), out = join(folder, "out");
  const refused = (args: string[], sentence: RegExp) =>
    refusedHere(["export", ...args, "--out", out], sentence);
  await refused(words`${run} --format hf`, /must be merged \(--merge\) or exported alone/);
  await refused(
    words`${BASE} --format hf --merge`,
    /must have an adapter for --merge, received none/,
  );
  await refused(words`${BASE} --format peft`, /must have trained an adapter, received none/);
  await refused(words`${run} --format peft --adapter ${adapter}`, /trained no adapter/);
  const path = join(adapter, "adapter_config.json");
  const changes = [
    [{ use_dora: true }, /its use_dora must be false, as here, received true/],
    [{ peft_type: "IA3" }, /its peft_type must be "LORA"/],
    [{ rank_pattern: { c_attn: 4 } }, /its rank_pattern must be \{\}/],
    [{ r: 0 }, /its r must be a positive integer, at most 99999, received 0/],
    [{ r: 1e9 }, /its r must be a positive integer, at most 99999, received 1000000000/],
    [{ init_lora_weights: "pissa" }, /its init_lora_weights must be one of true, .*"pissa"/],
    [{ alora_invocation_tokens: [1] }, /its alora_invocation_tokens must be null, .* a list/],
    [{ target_modules: ["c_attn", "c"] }, /must be the end of the name of a dense layer, .*"c"/],
    [{ target_modules: "c_.*" }, /its target_modules must be a list of names/],
    [{ r: 3 }, /must have shape \[3,16\], received \[2,16\]/],
    [{ target_modules: ["c_attn"] }, /every tensor must be a parameter of the model/],
    [{ target_modules: [...CONFIG.target_modules, "c_fc"] }, /it must hold ".*c_fc.lora_A.weight"/],
  ] as const;
  const deep = "[".repeat(100_000) + "]".repeat(100_000), text = JSON.stringify(CONFIG);
  const texts = [
    ...changes.map(([change, sentence]) =>
      [JSON.stringify({ ...CONFIG, ...change }), sentence] as const
    ),
    [text.replace(`:6`, ":1e999"), /its lora_alpha must be a positive number/],
    [text.replace(`"r":2`, `"r":4,"r":2`), /its names must be unique, received "r" twice/],
    [text.replace(`"none"`, deep), /its bias must be "none", as here, received a list/],
  ] as const;
  for (const [text, sentence] of texts) {
    await Deno.writeTextFile(path, text);
    await refuses(words`${TUNE} --steps 1 --adapter ${adapter}`, sentence);
    await refused(words`${BASE} --format hf --merge --adapter ${adapter}`, sentence);
  }
});

const torch = await findTorch().catch(() => undefined);

testNeeding(
  { isThere: torch !== undefined, reason: "Debian's python3-torch" },
  "an adapter trains and merges as in PyTorch",
  () =>
    inFolder(async (folder) => {
      const { run, adapter } = await adapted(folder), out = join(folder, "out");
      const script = join(ROOT, "tests/fixtures/make_hugging_face.py");
      const env = { OMP_NUM_THREADS: "1", PYTHONDONTWRITEBYTECODE: "1" };
      const { code, stdout, stderr } = await runProgram(torch!, [script, "lora", BASE, adapter], {
        env,
      });
      assert.equal(code, 0, stderr);
      const { losses, merged } = JSON.parse(stdout) as {
        losses: number[];
        merged: Record<string, number[]>;
      };
      const { lines } = await trainHere(words`${TUNE} --steps 20 --adapter ${adapter}`);
      const own = lines.flatMap(({ loss }) => loss === undefined ? [] : loss as number);
      const worst = Math.max(...own.map((loss, i) => Math.abs(loss / losses[i]! - 1)));
      assert.ok(own.length === losses.length && worst < 1e-5, `${worst} off`);
      await exportTo(out, run, "--format", "hf", "--merge");
      const weights = await readWeights(out, gpt2Parameters(readSizes(GPT2, BASE)));
      assert.equal(Object.keys(merged).length, 4);
      for (const [name, values] of Object.entries(merged)) {
        const off = values.map((value, i) => Math.abs(value - weights.get(name)![i]!));
        assert.ok(off.length === weights.get(name)!.length && Math.max(...off) < 1e-7, name);
      }
    }),
);
