/** `deno task troupe export --format onnx`: a file that any program runs which runs ONNX. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { InferenceSession, Tensor } from "onnxruntime-web";
import { readCheckpoint } from "../../../actors/mod.ts";
import { exportCommand } from "../../../console/mod.ts";
import { mlpLogits, openPredictor, openReference } from "../../../kernels/mod.ts";
import { forgeConfig } from "../forged.ts";
import { distance, EXPECTED, FOLDERS, hfPath } from "../../hugging_face.ts";
import { inFolder, runGenerate, runTroupe, TINY, trainJson } from "../command.ts";

// Loading the runtime opens ports that stay.
Deno.test.beforeAll(async () => {
  await assert.rejects(InferenceSession.create(new Uint8Array()));
});

Deno.test("a GPT of a run is exported, and says in onnxruntime-web what generate says", () =>
  inFolder(async (folder) => {
    const run = join(folder, "run"), out = join(folder, "made", "gpt.onnx");
    await trainJson([...TINY, "--steps", "5", "--lr", "0.01", "--out", run]);
    const done = await runTroupe(["export", run, "--format", "onnx", "--out", out]);
    assert.deepEqual([done.code, done.stderr], [0, ""]);
    assert.match(done.stdout, /^.*step-00000005 is exported to .*gpt\.onnx\n$/);
    assert.deepEqual([...Deno.readDirSync(join(folder, "made"))].map(({ name }) => name), [
      "gpt.onnx",
    ]);
    const session = await InferenceSession.create(await Deno.readFile(out));
    const bytes = [...new TextEncoder().encode("We")];
    while (bytes.length < 8) { // the context of TINY
      const ids = BigInt64Array.from(bytes, BigInt);
      const { logits } = await session.run({ input_ids: new Tensor(ids, [1, bytes.length]) });
      const last = (logits!.data as Float32Array).subarray(-256);
      bytes.push(last.indexOf(Math.max(...last)));
    }
    await session.release();
    const greedy = [
      "--prompt",
      "We",
      "--tokens",
      "6",
      "--temperature",
      "0",
      "--device",
      "reference",
    ];
    const { stdout } = await runGenerate(["--from", run, ...greedy]);
    assert.equal(new TextDecoder().decode(Uint8Array.from(bytes)) + "\n", stdout);
  }));

Deno.test("a model of Hugging Face's is exported with the logits that PyTorch computes", () =>
  inFolder(async (folder) => {
    for (const name of FOLDERS) {
      const out = join(folder, `${name}.onnx`);
      await exportCommand([hfPath(name), "--format", "onnx", "--out", out], { begin: () => {} });
      const session = await InferenceSession.create(await Deno.readFile(out));
      const ids = BigInt64Array.from(EXPECTED.ids, BigInt), want = EXPECTED.logits[name]!;
      const { logits } = await session.run({ input_ids: new Tensor(ids, [1, ids.length]) });
      const vocab = want[0]!.length, got = logits!.data as Float32Array;
      const rows = want.map((_, i) => [...got.subarray(i * vocab, (i + 1) * vocab)]);
      assert.ok(distance(rows, want) < 1e-4, `${name}: ${distance(rows, want)}`);
      await session.release();
    }
  }));

Deno.test("a Llama is exported with the logits that PyTorch computes, in the sizes that it has", () =>
  inFolder(async (folder) => {
    const from = join(hfPath(".."), "llama"), out = join(folder, "llama.onnx");
    await exportCommand([from, "--format", "onnx", "--out", out], { begin: () => {} });
    const session = await InferenceSession.create(await Deno.readFile(out));
    const { logits }: { logits: number[][] } = JSON.parse(
      await Deno.readTextFile(join(from, "expected.json")),
    );
    const tokens = new Uint16Array((await Deno.readFile(join(from, "tokens.bin"))).buffer);
    const ids = new Tensor(Int32Array.from(tokens.subarray(0, 16)), [1, 16]);
    const { output } = await session.run({ ids }), got = output!.data as Float32Array;
    const rows = logits.map(({ length }, i) => [...got.subarray(i * length, (i + 1) * length)]);
    assert.ok(distance(rows, logits) < 1e-4, `${distance(rows, logits)}`);
    await session.release();
  }));

Deno.test("an MLP of a run is exported with its logits", () =>
  inFolder(async (folder) => {
    const run = join(folder, "run"), out = join(folder, "mlp.onnx");
    const model = [
      "--model",
      "mlp",
      "--data",
      "mnist",
      "--layers",
      "1",
      "--hidden",
      "8",
      "--steps",
      "2",
    ];
    await trainJson([...model, "--micro-batch", "4", "--device", "reference", "--out", run]);
    assert.equal(
      await exportCommand([run, "--format", "onnx", "--out", out], { begin: () => {} }),
      0,
    );
    const { state: { weights } } = (await readCheckpoint(run))!;
    const device = await openReference();
    const config = { inputs: 784, hidden: 8, layers: 1, classes: 10 };
    const predict = await openPredictor(device, mlpLogits(config, 1), weights);
    const pixels = Float32Array.from({ length: 784 }, (_, i) => (i % 7) / 7);
    const session = await InferenceSession.create(await Deno.readFile(out));
    const { logits } = await session.run({ pixels: new Tensor(pixels, [1, 784]) });
    const got = logits!.data as Float32Array, want = await predict({ features: pixels });
    want.forEach((value, i) => assert.ok(Math.abs(got[i]! - value) < 1e-4, `${got}, not ${want}`));
    await session.release();
    device.close();
  }));

Deno.test("what cannot be exported is refused before a file is there, and a file is never replaced", () =>
  inFolder(async (folder) => {
    const run = join(folder, "run"), out = join(folder, "gpt.onnx"), file = join(folder, "file");
    await trainJson([...TINY, "--steps", "1", "--out", run]);
    await Deno.writeTextFile(file, "mine");
    const format = ["--format", "onnx"], step = join(run, "step-00000001");
    const cases: readonly [string[], RegExp][] = [
      [
        [run, ...format, "--out", file],
        /file: it must be a file that is not there yet, received one that is/,
      ],
      [[run, ...format, "--out", join(file, "a.onnx")], /not there yet, received Not a directory/],
      [[run, ...format], /--out must name a new file, received none$/],
      [
        [run, ...format, "--out", out, "--dtype", "f16"],
        /--dtype must come with --format hf, received onnx$/,
      ],
      [[folder, ...format, "--out", out], /RUN must hold a checkpoint/],
    ];
    const context = { begin: () => assert.fail("bad input must not begin anything") };
    const refuse = (args: string[], message: RegExp) =>
      assert.rejects(exportCommand(args, context), { message });
    for (const [args, message] of cases) await refuse(args, message);
    await forgeConfig(step, (config) => config.architecture = "experts\x1b[2J");
    await refuse(
      [run, ...format, "--out", out],
      /as ONNX: its model must be gpt, llama or mlp, or that of an ONNX file, received experts\\u001b\[2J; a script exports .*layersOnnx\(\)/,
    );
    const sizes = { architecture: "mlp", inputs: 1, classes: 1, hidden: 1 };
    for (
      const [layers, message] of [
        [undefined, /its layers must be a whole number, received "nothing"$/],
        [1e9, /layers must be/],
        [1, /weights/],
      ] as const
    ) {
      await forgeConfig(step, (config) => Object.assign(config, { ...sizes, layers }));
      await refuse([run, ...format, "--out", out], message);
    }
    assert.deepEqual([...Deno.readDirSync(folder)].map(({ name }) => name).sort(), ["file", "run"]);
    assert.equal(await Deno.readTextFile(file), "mine");
  }));
