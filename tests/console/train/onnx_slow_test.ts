/** `deno task train --model FILE.onnx`: trains the model of a file on any data that fits it. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { plannedModel } from "../../../console/commands/plan_flags.ts";
import { exportCommand } from "../../../console/commands/export.ts";
import { fromOnnx, mlpOnnx } from "../../../kernels/mod.ts";
import { folderTest } from "../../in_folder.ts";
import { expectedOf, farthest, loadRuntime, onnxPath, outputsOf } from "../../onnx.ts";
import { bitsOf, lossesOf, refusal, refuses, runHere, trainHere, words } from "../command.ts";
import { assertRefusals } from "../refusals.ts";

loadRuntime();

/** Samples of two numbers, labelled with their quadrant, under other names of fields. */
const QUARTERS = `
export const data = { name: "quarters", version: "1", open: ({ microBatch, seed }) => ({
  batches: (function* (at = seed) {
    for (;;) {
      const draw = () => (at = at * 48271 % 0x7fffffff) / 0x7fffffff - 0.5;
      const place = Float32Array.from({ length: 2 * microBatch }, draw);
      const labels = Int32Array.from({ length: microBatch }, (_, i) => (place[2 * i] > 0 ? 2 : 0) + (place[2 * i + 1] > 0 ? 1 : 0));
      yield { place, labels };
    }
  })(),
}) };`;

/** The weights of two layers, with their numbers of elements. */
const WEIGHTS: Readonly<Record<string, number>> = {
  ...{ "layers.0.weight": 16, "layers.0.bias": 8, "layers.1.weight": 32, "layers.1.bias": 4 },
};

/** Writes an ONNX file of these layers, and data for it. */
async function planeIn(folder: string): Promise<{ file: string; data: string }> {
  const file = join(folder, "plane.onnx"), data = join(folder, "quarters.ts");
  const weightOf = (name: string) =>
    Float32Array.from({ length: WEIGHTS[name]! }, (_, i) => Math.sin(7 * i + name.length));
  const model = mlpOnnx({ inputs: 2, hidden: 8, layers: 1, classes: 4 });
  await Deno.writeFile(file, new Blob([...model.pieces(weightOf)]).stream());
  await Deno.writeTextFile(data, QUARTERS);
  return { file, data };
}

/** Flags of the device and of training. */
const RUNS = ["--device", "reference", "--workers", "1"];
const LEARNS = [...RUNS, "--loss", "cross-entropy", "--micro-batches", "2", "--lr", "0.05"];

folderTest("a file is trained on a user's data, and resumes with the same bits", async (folder) => {
  const { file, data } = await planeIn(folder), out = join(folder, "run");
  const args = ["--model", file, "--data", data, ...LEARNS];
  const { lines } = await trainHere([...args, "--steps", "6"]);
  const losses = lossesOf(lines);
  assert.ok(losses.at(-1)! < losses[0]! - 0.2, `${losses}`);
  await trainHere([...args, "--steps", "3", "--out", out]);
  const resume = ["--resume", out, "--steps", "6", "--data", data, ...RUNS];
  const on = await trainHere([...resume, "--model", file]);
  assert.deepEqual(bitsOf(on.lines), bitsOf(lines, 4));
  const refuse = (words: string[]) => refusal([...resume, ...words]);
  await assertRefusals("onnx_resumed", refuse, { FOLDER: folder });
  const bytes = await Deno.readFile(file);
  await Deno.writeFile(file, bytes.fill(0, -4));
  const sentence =
    /must name the file that its run used, file:.*plane\.onnx with hash sha256-.*, received ".*plane\.onnx", file:.* with hash sha256-/;
  await refuses([...resume, "--model", file], sentence);
});

folderTest("a GPT of PyTorch trains on tokens as there and is exported to ONNX", async (folder) => {
  const out = join(folder, "run"), file = onnxPath("gpt"), expected = expectedOf("gpt").adamw;
  const how = words`--loss cross-entropy --vocab 64 --seq 16 --micro-batch-size 4 --micro-batches 2
    --steps 20 --lr 0.001 --device native`;
  const tokens = ["--tokens", onnxPath("gpt", "tokens.bin")];
  const { lines } = await trainHere(["--model", file, ...tokens, ...how, "--out", out]);
  const losses = lossesOf(lines);
  assert.ok(farthest(losses, expected.losses) < 1e-5, `${losses}`);
  const trained = await Deno.readFile(join(out, "trained.onnx"));
  assert.ok(farthest(await outputsOf("gpt", trained), expected.outputs) < 1e-5);
  const again = join(folder, "again.onnx"), to = ["--format", "onnx", "--out", again];
  const context = { begin: () => {} };
  assert.equal(await exportCommand.run([out, ...to, "--model", file], context), 0);
  assert.deepEqual(await Deno.readFile(again), trained);
  await Deno.remove(again);
  await assert.rejects(exportCommand.run([out, ...to], context), {
    message:
      /--model must name the ONNX file that its run trained, ".*model\.onnx", because a file may not open another, received none$/,
  });
  await assert.rejects(exportCommand.run([out, ...to, "--model", onnxPath("bert")], context), {
    message: /its run trained, with hash "sha256-.*", received ".*" with sha256-/,
  });
});

/** Rows of 12 ids, with a mask. */
const sentences = (name: string, mask: string) => `
export const data = {
  name: "${name}",
  version: "1",
  open: ({ microBatch }) => {
    const length = 12 * microBatch, rows = (i) => Int32Array.from({ length }, (_, j) => (7 * j + i) % 61);
    const labels = Int32Array.from({ length: microBatch }, (_, i) => i % 3);
    return { batches: Array.from({ length: 4 }, (_, i) => ({ rows: rows(i), labels, ${mask} })) };
  },
};
`;

folderTest("an encoder trains the same without a mask as with a mask of ones", async (folder) => {
  const args = ["--model", onnxPath("bert"), "--loss", "cross-entropy", "--micro-batches", "2"];
  const train = async (name: string, mask: string) => {
    const path = join(folder, `${name}.ts`);
    await Deno.writeTextFile(path, sentences(name, mask));
    return bitsOf((await trainHere([...args, "--data", path, ...RUNS, "--steps", "2"])).lines);
  };
  const ones = await train("ones", "attention_mask: new Int32Array(length).fill(1)");
  assert.deepEqual(await train("none", ""), ones);
  const some = "attention_mask: Uint8Array.from({ length }, (_, j) => +(j % 12 < 5))";
  assert.notDeepEqual(await train("some", some), ones);
});

folderTest("frozen initializers stay; others are trained on the named field", async (folder) => {
  const { file, data } = await planeIn(folder), out = join(folder, "run");
  await Deno.writeTextFile(data, QUARTERS.replace("place, labels }", "place, classes: labels }"));
  const args = ["--model", file, "--data", data, "--label", "classes", "--freeze", "layers.0.*"];
  await trainHere([...args, ...LEARNS, "--steps", "2", "--out", out]);
  const weightsIn = async (path: string) => {
    const options = { loss: "cross-entropy", dimensions: { batch: 1 } } as const;
    return fromOnnx(await Deno.readFile(path), options).weights!;
  };
  const before = await weightsIn(file), after = await weightsIn(join(out, "trained.onnx"));
  const changed = Object.keys(WEIGHTS).filter((name) =>
    `${before.get(name)}` !== `${after.get(name)}`
  );
  assert.deepEqual(changed, ["layers.1.weight", "layers.1.bias"]);
});

folderTest("flags that do not fit a file are refused before the run starts", async (folder) => {
  const { file, data } = await planeIn(folder), places = { FOLDER: folder };
  const model = words`${RUNS} --model ${file}`, own = ["--data", data];
  const refuse = (words: string[]) =>
    refusal([...model, ...words.includes("--data") ? [] : own, ...words]);
  await assertRefusals("onnx_flags", refuse, places);
  await assertRefusals("onnx_flags_elsewhere", (words) => refusal([...RUNS, ...words]));
  const message = /^Cannot .*: --model must be one that a part builds, received the ONNX file/m;
  await assert.rejects(plannedModel(["--model", file]), { message });
  const { code, stderr } = await runHere(words`profile --out ${file}.json --model ${file}`);
  assert.equal(code, 2);
  assert.match(stderr, message);
});

folderTest("a file that is not ONNX, truncated or missing is refused", async (folder) => {
  const { file, data } = await planeIn(folder), bytes = await Deno.readFile(file);
  const bad = join(folder, "bad.onnx"), path = join(folder, "folder.onnx");
  await Deno.mkdir(path);
  const train = (model: string) => ["--model", model, "--loss", "mse", "--data", data, ...RUNS];
  await refuses(train(path), /--model: it must name a file .* \(a folder\)$/);
  await refuses(train(bad), /--model: it must name a file .* \(no such file\)$/);
  for (const content of [new Uint8Array(), Uint8Array.of(104, 105, 10), bytes.slice(0, -9)]) {
    await Deno.writeFile(bad, content);
    await refuses(train(bad), /^Cannot import the ONNX model: the file must be an ONNX model/);
  }
  const { code, stderr } = await runHere(["train", ...train(bad)]);
  assert.deepEqual([code, stderr.trim().split("\n").length], [2, 1]);
});
