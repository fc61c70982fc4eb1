/** `--weights` of a folder of Hugging Face's: its sizes, its numbers, and what PyTorch makes of both. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { findTorch } from "../../../bench/peers/torch.ts";
import { exportCommand } from "../../../console/mod.ts";
import { distance, EXPECTED, hfPath, logitsOf } from "../../hugging_face.ts";
import { bitsOf, inFolder, refusal, ROOT, TINY, trainJson } from "../command.ts";

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
  const { lines } = await trainJson(args);
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
      const [narrow, same] = await Promise.all([
        trainJson([...run, "--weights", hfPath(name), "--workers", "2", "--schedule", "gpipe"]),
        trainJson([...run, "--weights", out, "--runtime", "local", "--schedule", "gpipe"]),
      ]);
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
    const { last } = await trainJson([...FINE_TUNE, ...file, "--layers", "2", "--steps", "1"]);
    assert.equal(last.done, true);
  }));

Deno.test("a folder without a tokenizer has the tokens of Troupe's that are as many, for a text", () =>
  inFolder(async (folder) => {
    const text = join(folder, "text.txt"), run = join(folder, "run"), out = join(folder, "out");
    await Deno.writeTextFile(text, "Fellow citizens of the Senate. ".repeat(40));
    const train = [...TINY, "--text", text, "--steps", "1"];
    await trainJson([...train, "--out", run]);
    await exportCommand([run, "--format", "hf", "--out", out], { begin: () => {} });
    await Deno.remove(join(out, "tokenizer.json"));
    const tune = ["--text", text, "--micro-batch", "2", "--device", "reference", "--steps", "1"];
    const { last } = await trainJson([...tune, "--weights", out, "--out", join(folder, "tuned")]);
    const { tokenizer, flags } = JSON.parse(
      await Deno.readTextFile(join(last.checkpoint as string, "config.json")),
    );
    assert.deepEqual([tokenizer, flags.tokenizer], ["bytes", "bytes"]);
    assert.match(
      await refusal([...tune, "--weights", hfPath("tied")]),
      /^Cannot use the tokens of a text with --weights: --tokenizer must say what made those of/,
    );
  }));
