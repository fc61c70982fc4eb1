import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import { readWeights } from "../../../actors/checkpoints/weights.ts";
import { findTorch } from "../../../bench/peers.ts";
import { gpt2Parameters, readSafetensors } from "../../../kernels/mod.ts";
import { EXPECTED, gpt2Sizes, hfPath } from "../../hugging_face.ts";
import { folderTest, namesIn } from "../../in_folder.ts";
import { testNeeding } from "../../needs.ts";
import {
  assertLosses,
  bitsOf,
  exportTo,
  printedByTorch,
  printedHere,
  readJson,
  refusal,
  refusalHere,
  refuses,
  trainHere,
  words,
} from "../command.ts";
import { assertSentences } from "../refusals.ts";

/** Adapters of a GPT-2 in the format of PEFT: trained, exported, read again and merged. */

const { learningRate, weightDecay, microBatch, microBatches } = EXPECTED.fineTuned;

const BASE = hfPath("tied");

/** Flags of a run on the fixture. */
const TUNE = words`
  --weights ${BASE} --tokens ${hfPath("tokens.bin")} --lr ${learningRate}
  --weight-decay ${weightDecay} --micro-batch-size ${microBatch} --micro-batches ${microBatches}
  --device native`;

const LORA = words`--lora rank=2,alpha=6,target=c_attn,mlp.c_proj`;

/** Trains an adapter and exports it. */
async function adapted(folder: string): Promise<{ run: string; adapter: string }> {
  const run = join(folder, "run"), adapter = join(folder, "adapter");
  await trainHere(words`${TUNE} ${LORA} --steps 4 --checkpoint-every 2 --workers 2 --out ${run}`);
  await exportTo("peft", run, adapter);
  return { run, adapter };
}

/** The layout of PEFT's documentation of `LoraConfig` and of the format of checkpoints. */
const CONFIG = {
  ...{ alpha_pattern: {}, base_model_name_or_path: BASE, bias: "none", fan_in_fan_out: true },
  ...{ inference_mode: true, init_lora_weights: true, layer_replication: null },
  ...{ layers_to_transform: null, lora_alpha: 6, lora_bias: false, lora_dropout: 0 },
  ...{ modules_to_save: null, peft_type: "LORA", r: 2, rank_pattern: {} },
  ...{ target_modules: ["c_attn", "mlp.c_proj"], task_type: "CAUSAL_LM" },
  ...{ use_dora: false, use_rslora: false },
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

folderTest("a run resumes with the adapter's settings, and ends at its bits", async (folder) => {
  const { run } = await adapted(folder);
  const rest = words`--tokens ${hfPath("tokens.bin")} --device native --steps 4`;
  const from = words`--resume ${join(run, "step-00000002")} --out ${join(folder, "rest")}`;
  const { lines } = await trainHere([...from, ...rest]);
  const { lines: whole } = await trainHere(words`${TUNE} ${LORA} --steps 4`);
  assert.deepEqual(bitsOf(lines, 3), bitsOf(whole, 3));
  const refusal = /lora must be .*c_attn/;
  await refuses(words`--resume ${run} ${rest} --lora rank=2,target=c_fc`, refusal);
});

folderTest("a merged adapter is in the weights, wherever it comes from", async (folder) => {
  const { run, adapter } = await adapted(folder), config = gpt2Sizes(BASE);
  const [one, other] = ["one", "other"].map((name) => join(folder, name)) as [string, string];
  await exportTo("hf", run, one, "--merge");
  await exportTo("hf", BASE, other, "--merge", "--adapter", adapter);
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
  const found: [string, string][] = [], path = join(adapter, "adapter_config.json");
  const refuse = async (about: string, args: string[]) =>
    found.push([about, await refusalHere(["export", ...args, "--out", out])]);
  await refuse("a run, not merged", words`${run} --format hf`);
  await refuse("a base without an adapter", words`${BASE} --format hf --merge`);
  await refuse("a base alone", words`${BASE} --format peft`);
  await refuse("an adapter of the base", words`${run} --format peft --adapter ${adapter}`);
  const changes = [
    ...[{ use_dora: true }, { peft_type: "IA3" }, { rank_pattern: { c_attn: 4 } }, { r: 0 }],
    ...[{ r: 1e9 }, { init_lora_weights: "pissa" }, { alora_invocation_tokens: [1] }, { r: 3 }],
    ...[["c_attn", "c"], "c_.*", ["c_attn"], [...CONFIG.target_modules, "c_fc"]].map((names) => ({
      target_modules: names,
    })),
  ];
  const deep = "[".repeat(100_000) + "]".repeat(100_000), text = JSON.stringify(CONFIG);
  const texts: Readonly<Record<string, string>> = {
    ...Object.fromEntries(
      changes.map((one) => [JSON.stringify(one), JSON.stringify({ ...CONFIG, ...one })]),
    ),
    "an infinite alpha": text.replace(`:6`, ":1e999"),
    "two ranks": text.replace(`"r":2`, `"r":4,"r":2`),
    "a deep list": text.replace(`"none"`, deep),
  };
  for (const [about, text] of Object.entries(texts)) {
    await Deno.writeTextFile(path, text);
    const sentence = await refusal(words`${TUNE} --steps 1 --adapter ${adapter}`);
    await refuse(about, words`${BASE} --format hf --merge --adapter ${adapter}`);
    found.push([`${about}, trained`, sentence]);
  }
  await assertSentences("adapters", found, { FOLDER: folder, FIXTURES: dirname(BASE) });
});

const torch = await findTorch().catch(() => undefined);
const TORCH = { isThere: torch !== undefined, reason: "Debian's python3-torch" };

folderTest("an adapter trains and merges as in PyTorch", async (folder) => {
  const { run, adapter } = await adapted(folder), out = join(folder, "out");
  const { losses, merged } = await printedByTorch(torch, "lora", BASE, adapter) as {
    losses: number[];
    merged: Record<string, number[]>;
  };
  const { lines } = await trainHere(words`${TUNE} --steps 20 --adapter ${adapter}`);
  assertLosses(lines, losses);
  await exportTo("hf", run, out, "--merge");
  const weights = await readWeights(out, gpt2Parameters(gpt2Sizes(BASE)));
  assert.equal(Object.keys(merged).length, 4);
  for (const [name, values] of Object.entries(merged)) {
    const off = values.map((value, i) => Math.abs(value - weights.get(name)![i]!));
    assert.ok(off.length === weights.get(name)!.length && Math.max(...off) < 1e-7, name);
  }
}, (name, fn) => testNeeding(TORCH, name, fn));
