/** What Troupe writes as ONNX comes back, and trains as the model that it was written from. */

import assert from "node:assert/strict";
import { train } from "../../../actors/mod.ts";
import {
  type Batch,
  compileModel,
  fromOnnx,
  gpt2,
  gpt2Onnx,
  mlp,
  mlpOnnx,
  type Model,
  type OnnxFile,
} from "../../../kernels/mod.ts";
import { drawTokens, drawWeights } from "../stage/stage_runs.ts";

type Weights = ReadonlyMap<string, Float32Array>;

const bytesOf = (file: OnnxFile, weights: Weights) =>
  new Blob([...file.pieces((name) => weights.get(name))]).bytes();

/** The losses of ten steps of AdamW. */
async function losses(model: Model, weights: Weights | undefined, batches: readonly Batch[]) {
  const result: number[] = [];
  const run = train({
    model,
    weights,
    data: batches,
    steps: 10,
    learningRate: 1e-2,
    runtime: "serial",
    device: "native",
    workers: 1,
    microBatches: 1,
  });
  for await (const event of run) if (event.type === "step") result.push(event.loss);
  return result;
}

function areNear(got: readonly number[], want: readonly number[]): void {
  assert.equal(got.length, want.length);
  got.forEach((loss, i) => {
    assert.ok(Math.abs(loss - want[i]!) < 1e-5 * want[i]!, `step ${i}: ${loss}, not ${want[i]}`);
  });
  assert.ok(want.at(-1)! < want[0]!, "it learns");
}

Deno.test("an MLP that was written as ONNX comes back, and has the losses that it had", async () => {
  const config = { inputs: 6, hidden: 5, layers: 2, classes: 3 }, samples = 4;
  const model = mlp(config, samples), weights = drawWeights(compileModel(model, "none"));
  const features = Float32Array.from({ length: 6 * samples }, (_, i) => Math.sin(i));
  const labels = Int32Array.of(0, 2, -1, 1);
  const back = fromOnnx(await bytesOf(mlpOnnx(config), weights), {
    loss: "cross-entropy",
    dimensions: { batch: samples },
  });
  assert.deepEqual(back.weights, weights);
  const ten = <T>(batch: T) => Array<T>(10).fill(batch);
  areNear(
    await losses(back, undefined, ten({ pixels: features, label: labels })),
    await losses(model, weights, ten({ features, labels })),
  );
});

for (
  const [what, tie] of [["a GPT-2", false], ["a GPT-2 whose head is tied", true]] as const
) {
  Deno.test(`${what} that was written as ONNX comes back, and has the losses that it had`, async () => {
    const config = { layers: 2, hidden: 16, heads: 2, seq: 8, vocab: 20, tie }, samples = 2;
    const model = gpt2(config, samples), weights = drawWeights(compileModel(model, "none"));
    const back = fromOnnx(await bytesOf(gpt2Onnx(config), weights), {
      loss: "cross-entropy",
      label: "targets",
      dimensions: { batch: samples, sequence: config.seq },
    });
    assert.deepEqual([...back.weights!.keys()].sort(), [...weights.keys()].sort());
    const batches = drawTokens(2, samples * config.seq, config.vocab).flatMap((
      one,
    ) => [one, one, one, one, one]);
    areNear(
      await losses(
        back,
        undefined,
        batches.map(({ ids, targets }) => ({ input_ids: ids, targets })),
      ),
      await losses(model, weights, batches),
    );
  });
}
