/** Exported models in plain onnxruntime-web, against Troupe's own logits. */

import assert from "node:assert/strict";
import { InferenceSession, Tensor } from "onnxruntime-web";
import { fromBinary } from "@bufbuild/protobuf";
import {
  compileModel,
  type Device,
  type Gpt2Config,
  gpt2Logits,
  gpt2Onnx,
  gpt2Parameters,
  Graph,
  type Layer,
  layersOnnx,
  mlp,
  type MlpConfig,
  mlpLogits,
  mlpOnnx,
  type ModelParameter,
  type OnnxFile,
  openPredictor,
  openReference,
  type Value,
} from "../../../kernels/mod.ts";
import { gpt2Ties } from "../../../kernels/layers/gpt2.ts";
import { ModelProtoSchema } from "../../../kernels/onnx/onnx_pb.ts";
import { computed } from "../graph/computed.ts";
import { assertRefused } from "../graph/refused.ts";
import { drawWeights } from "../stage/stage_runs.ts";
import { farthest, loadRuntime, runOnnx } from "../../onnx.ts";
import { closing } from "../devices/models.ts";

/** Failures are expected. */
const SILENT = { logSeverityLevel: 4 } as const;

loadRuntime();

const weightsOf = (parameters: readonly ModelParameter[]) => drawWeights({ parameters }, 0.3);

type Weights = ReadonlyMap<string, Float32Array>;

async function bytesOf(file: OnnxFile, weights: Weights): Promise<Uint8Array> {
  const blob = new Blob([...file.pieces((name) => weights.get(name))]);
  assert.equal(blob.size, file.byteLength);
  return await blob.bytes();
}

const isNear = (got: ArrayLike<number>, want: ArrayLike<number>, what: string) =>
  assert.ok(farthest(got, want) < 1e-4, `${what}: ${farthest(got, want)} off`);

/** Troupe's logits after each token of one sequence. */
async function gpt2Predictor(device: Device, config: Gpt2Config, weights: Weights) {
  const { seq, vocab } = config;
  const predict = await openPredictor(device, gpt2Logits(config), weights, gpt2Ties(config));
  return async (tokens: readonly number[]) => {
    const ids = new Int32Array(seq);
    ids.set(tokens);
    return (await predict({ ids })).slice(0, tokens.length * vocab);
  };
}

const MLP: MlpConfig = { inputs: 6, hidden: 5, layers: 2, classes: 3 };
const mlpParameters = (config: MlpConfig) => compileModel(mlp(config, 1), "none").parameters;

const SIZES = { layers: 2, hidden: 16, heads: 2, seq: 12, vocab: 42 };

const GPTS = [
  ["a GPT-2", SIZES],
  ["a GPT-2 whose head is tied", { ...SIZES, tie: true }],
  ["a GPT-2 whose head is in slices", { ...SIZES, headSlices: 3 }],
] as const;

for (const [what, config] of GPTS) {
  Deno.test(`${what} has Troupe's logits in onnxruntime-web, for any batch and sequence`, async () => {
    using device = closing(await openReference());
    const weights = weightsOf(gpt2Parameters(config));
    const logitsOf = await gpt2Predictor(device, config, weights);
    const session = await InferenceSession.create(await bytesOf(gpt2Onnx(config), weights), SILENT);
    assert.deepEqual([session.inputNames, session.outputNames], [["input_ids"], ["logits"]]);
    for (const [batch, sequence] of [[1, 1], [1, 12], [3, 5]] as const) {
      const tokenOf = (b: number, i: number) => (7 * i + 11 * b + 3) % config.vocab;
      const samples = Array.from(
        { length: batch },
        (_, b) => Array.from({ length: sequence }, (_, i) => tokenOf(b, i)),
      );
      const ids = BigInt64Array.from(samples.flat(), BigInt);
      const { logits } = await session.run({ input_ids: new Tensor(ids, [batch, sequence]) });
      assert.deepEqual(logits!.dims, [batch, sequence, config.vocab]);
      const got = logits!.data as Float32Array, size = sequence * config.vocab;
      for (const [b, sample] of samples.entries()) {
        isNear(got.subarray(b * size, (b + 1) * size), await logitsOf(sample), `${sample}`);
      }
    }
    const long = new Tensor(new BigInt64Array(13), [1, 13]);
    await assert.rejects(session.run({ input_ids: long }, SILENT), /out of data bounds/);
    await session.release();
  });
}

Deno.test("an MLP has Troupe's logits in onnxruntime-web, for any batch", async () => {
  const batch = 4, weights = weightsOf(mlpParameters(MLP));
  using device = closing(await openReference());
  const predict = await openPredictor(device, mlpLogits(MLP, batch), weights);
  const features = Float32Array.from({ length: 6 * batch }, (_, i) => Math.sin(i));
  const file = await bytesOf(mlpOnnx(MLP), weights);
  const { logits } = await runOnnx(file, { pixels: new Tensor(features, [batch, 6]) });
  assert.deepEqual(logits!.dims, [batch, 3]);
  isNear(logits!.data as Float32Array, await predict({ features }), "logits");
});

Deno.test("custom layers have Troupe's logits in onnxruntime-web", async () => {
  const config = { ...SIZES, seq: 256, tie: true }; // so long that attention is in parts
  const layers = gpt2Logits(config), ties = gpt2Ties(config), device = await openReference();
  const weights = weightsOf(gpt2Parameters(config));
  const logitsOf = await gpt2Predictor(device, config, weights);
  const file = await bytesOf(layersOnnx(layers, { ties, name: "mine" }), weights);
  const { graph, opsetImport, metadataProps } = fromBinary(ModelProtoSchema, file);
  assert.deepEqual(opsetImport.map(({ domain }) => domain), [""]);
  assert.deepEqual(graph!.node.filter(({ domain }) => domain), []);
  assert.deepEqual(metadataProps.map(({ key, value }) => [key, value]), [["model", "mine"]]);
  const session = await InferenceSession.create(file);
  assert.deepEqual([session.inputNames, session.outputNames], [["ids"], ["output"]]);
  const tokens = Array.from({ length: config.seq }, (_, i) => (7 * i + 3) % config.vocab);
  const { output } = await session.run({ ids: new Tensor(Int32Array.from(tokens), [config.seq]) });
  isNear(output!.data as Float32Array, await logitsOf(tokens), "logits");
  await session.release();
  device.close();
});

Deno.test("operations of ONNX Runtime are rewritten as operations of ONNX", async () => {
  const mix = (g: Graph, x: Value) => g.silu(g.gelu(g.matmul(x, x, { transB: true, alpha: 0.5 })));
  const layer: Layer = { name: "mix", build: (g) => mix(g, g.batch("x", [2, 3], "f32")) };
  const file = await bytesOf(layersOnnx([layer]), new Map());
  const nodes = fromBinary(ModelProtoSchema, file).graph!.node;
  assert.deepEqual(nodes.filter(({ domain }) => domain), []);
  const x = [1, -2, 3, -1, 0.5, 2], input = new Tensor(Float32Array.from(x), [2, 3]);
  const { output } = await runOnnx(file, { x: input });
  const g = new Graph(), wanted = await computed(g, mix(g, g.input("x", [2, 3])), { x });
  isNear(output!.data as Float32Array, Float32Array.from(wanted), "mixed");
});

Deno.test("a file has the sizes of the model, and ONNX's own operations", async () => {
  const config = { ...SIZES, tie: true }, weights = weightsOf(gpt2Parameters(config));
  const file = await bytesOf(gpt2Onnx(config, { tokenizer: "bytes" }), weights);
  const { graph, opsetImport, metadataProps } = fromBinary(ModelProtoSchema, file);
  assert.deepEqual(opsetImport.map(({ domain, version }) => [domain, version]), [["", 20n]]);
  assert.deepEqual(graph!.node.filter(({ domain }) => domain), []);
  const written = Object.fromEntries(metadataProps.map(({ key, value }) => [key, value]));
  const sizes = Object.fromEntries(Object.entries(config).map(([key, value]) => [key, `${value}`]));
  assert.deepEqual(written, { model: "gpt2", tokenizer: "bytes", ...sizes });
});

Deno.test("a model beyond 2 GiB, and weights that are not its own, are refused", () => {
  const large = { layers: 1, hidden: 16384, heads: 1, seq: 1, vocab: 2 };
  const file = mlpOnnx({ inputs: 2, hidden: 3, layers: 1, classes: 2 });
  return assertRefused("onnx_export", [
    [large, () => gpt2Onnx(large)],
    ["another size", () => [...file.pieces(() => new Float32Array(6))]],
    ["none", () => [...file.pieces(() => undefined)]],
    ["no layers", () => layersOnnx([])],
  ]);
});
