/** `deno task troupe export --format hf`: a folder that transformers reads. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { exportCommand, generateCommand } from "../../../console/mod.ts";
import {
  gpt2Parameters,
  gpt2Ties,
  readSafetensors,
  type SafetensorsInfo,
} from "../../../kernels/mod.ts";
import { readGpt2Config, readWeights } from "../../../actors/mod.ts";
import { distance, EXPECTED, FOLDERS, hfPath, logitsOf } from "../../hugging_face.ts";
import { inFolder, runGenerate, runTroupe, TINY, trainJson } from "../command.ts";

const context = { begin: () => {} };

const readJson = async (...path: string[]) => JSON.parse(await Deno.readTextFile(join(...path)));

/** The tensors of a file, and what it says beside them. */
async function describeFile(path: string) {
  const tensors: [string, SafetensorsInfo][] = [];
  const { metadata } = await readSafetensors(path, (name, info) => {
    tensors.push([name, info]);
    return undefined;
  });
  return { metadata, tensors };
}

/** Exports quietly. */
async function exportTo(from: string, out: string, ...args: string[]): Promise<string> {
  await exportCommand([from, "--format", "hf", "--out", out, ...args], context);
  return out;
}

Deno.test("what is exported has the keys, names, dtypes and shapes that transformers writes, byte for byte", () =>
  inFolder(async (folder) => {
    for (const [name, dtype] of [["tied", "f32"], ["untied_f16", "f16"]] as const) {
      const theirs = hfPath(name),
        ours = await exportTo(theirs, join(folder, name), "--dtype", dtype);
      const [expected, received] = await Promise.all(
        [theirs, ours].map((one) => describeFile(join(one, "model.safetensors"))),
      );
      assert.deepEqual(received, expected);
      assert.deepEqual(
        await Deno.readFile(join(ours, "model.safetensors")),
        await Deno.readFile(join(theirs, "model.safetensors")),
      );
      const wanted = await readJson(theirs, "config.json");
      const { n_ctx, tie_word_embeddings: tie, ...config } = await readJson(ours, "config.json");
      assert.deepEqual([n_ctx, tie], [12, name === "tied"]);
      assert.deepEqual(
        Object.keys(config),
        Object.keys(wanted).filter((key) => key !== "tie_word_embeddings"),
      );
      // Nothing is left out in training here, and this model has no tokens of its own.
      const own = /^((attn|embd|resid)_pdrop|(bos|eos)_token_id|tie_word_embeddings)$/;
      for (const [key, value] of Object.entries(wanted)) {
        if (!own.test(key)) assert.deepEqual(config[key], value, key);
      }
    }
  }));

Deno.test("a folder that is read and exported has the same weights, whatever it was stored in", () =>
  inFolder(async (folder) => {
    for (const name of FOLDERS) {
      const out = await exportTo(hfPath(name), join(folder, name));
      const read = async (path: string) => {
        const config = readGpt2Config(path);
        return await readWeights(path, gpt2Parameters(config), gpt2Ties(config));
      };
      assert.deepEqual(await read(out), await read(hfPath(name)));
      const logits = await logitsOf(out);
      assert.ok(distance(logits, EXPECTED.logits[name]!) < 1e-4, name);
    }
  }));

Deno.test("the tokens that begin and end a text stay those of the folder", () =>
  inFolder(async (folder) => {
    const said = { bos_token_id: 3, eos_token_id: 5 }, from = join(folder, "from");
    await Deno.mkdir(from);
    await Deno.copyFile(
      join(hfPath("tied"), "model.safetensors"),
      join(from, "model.safetensors"),
    );
    const config = { ...await readJson(hfPath("tied"), "config.json"), ...said };
    await Deno.writeTextFile(join(from, "config.json"), JSON.stringify(config));
    const out = await exportTo(from, join(folder, "out"));
    for (const name of ["config.json", "generation_config.json"]) {
      const { bos_token_id, eos_token_id } = await readJson(out, name);
      assert.deepEqual({ bos_token_id, eos_token_id }, said, name);
    }
  }));

Deno.test("a run is exported with its tokenizer, and goes on as it did; nothing is written over", () =>
  inFolder(async (folder) => {
    const run = join(folder, "run"), out = join(folder, "out");
    const how = ["--head-slices", "3", "--dropout", "0.25"];
    await trainJson([...TINY, "--steps", "1", ...how, "--out", run]);
    const done = await runTroupe(["export", run, "--format", "hf", "--out", out]);
    assert.deepEqual([done.code, done.stderr], [0, ""]);
    assert.deepEqual([...Deno.readDirSync(out)].map(({ name }) => name).sort(), [
      ...["config.json", "generation_config.json", "model.safetensors"],
      ...["tokenizer.json", "tokenizer_config.json"],
    ]);
    const { metadata, tensors } = await describeFile(join(out, "model.safetensors"));
    assert.deepEqual(metadata, { format: "pt" });
    const { resid_pdrop: dropout, eos_token_id: end } = await readJson(out, "config.json");
    assert.deepEqual([dropout, end], [0.25, null], "bytes have no token that ends a text");
    assert.deepEqual(new Map(tensors).get("lm_head.weight"), { dtype: "F32", shape: [256, 16] });
    const texts = await Promise.all(
      [run, out].map((from) =>
        runGenerate(["--from", from, "--tokens", "20", "--device", "reference"])
      ),
    );
    assert.deepEqual([texts[0]!.code, texts[0]!.stderr], [0, ""]);
    assert.deepEqual(texts[1], texts[0]);
    await refuseExports(folder, run, out);
  }));

async function refuseExports(folder: string, run: string, out: string): Promise<void> {
  const before = [...Deno.readDirSync(folder)].map(({ name }) => name).sort();
  const other = ["--out", join(folder, "other")], hf = ["--format", "hf"];
  const refusals: readonly [string[], RegExp][] = [
    [[run, ...hf, "--out", out], /must be a folder that is not there yet, received one that is/],
    [[run, ...hf], /--out must name a new folder, received none$/],
    [[run, ...other], /--format must be one of hf.*, received none$/],
    [[run, "--format", "onnx", "--dtype", "f16", ...other], /--dtype must come with --format hf/],
    [
      [run, ...hf, ...other, "--tokenizer", join(folder, "none.json")],
      /must be bytes, gpt2, or a tokenizer.json that can be read, received/,
    ],
    [[...hf, ...other], /number of runs must be 1, received 0$/],
    [[run, run, ...hf, ...other], /number of runs must be 1, received 2$/],
    [[join(folder, "none"), ...hf, ...other], /RUN must hold a checkpoint, received/],
    [
      [folder, ...hf, ...other],
      /RUN must hold a checkpoint, received .*; a folder of Hugging Face's has/,
    ],
  ];
  for (const [args, message] of refusals) {
    const begin = () => assert.fail("bad input must not begin anything");
    await assert.rejects(exportCommand(args, { begin }), { message });
  }
  assert.deepEqual([...Deno.readDirSync(folder)].map(({ name }) => name).sort(), before);
}

Deno.test("a tokenizer that is named is exported with a model that has none", () =>
  inFolder(async (folder) => {
    const out = await exportTo(hfPath("tied"), join(folder, "gpt2"), "--tokenizer", "gpt2");
    const { bos_token_id: begin, eos_token_id: end } = await readJson(out, "config.json");
    assert.deepEqual([begin, end], [50_256, 50_256]);
    const about = await readJson(out, "tokenizer_config.json");
    assert.equal(about.tokenizer_class, "GPT2Tokenizer");
    assert.equal(about.eos_token, "<|endoftext|>");
    const again = await exportTo(hfPath("tied"), join(folder, "named"), "--tokenizer", out);
    const files = [out, again].map((one) => Deno.readFile(join(one, "tokenizer.json")));
    const [first, second] = await Promise.all(files);
    assert.deepEqual(second, first);
  }));

Deno.test("a model of Hugging Face's goes on with ids, and with text where it has a tokenizer", () =>
  inFolder(async (folder) => {
    const ids = ["--ids", "7,8", "--tokens", "30", "--device", "reference", "--temperature", "0"];
    const { code, stdout, stderr } = await runGenerate(["--from", hfPath("tied"), ...ids]);
    assert.deepEqual([code, stderr], [0, ""]);
    assert.match(stdout, /^7,8(,\d+){30}\n$/);
    await assert.rejects(
      generateCommand(["--from", hfPath("tied")], context),
      /it has no tokenizer, so --tokenizer must say what made its tokens/,
    );
    await assert.rejects(
      generateCommand(["--from", hfPath("tied"), "--tokenizer", folder], context),
      /must be bytes, gpt2, or a tokenizer.json that can be read, received .* \(no such file\)/,
    );
  }));
