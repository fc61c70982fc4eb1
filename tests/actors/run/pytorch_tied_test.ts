/** Tied and clipped GPT-2 trains as PyTorch trains it, whatever the schedule and the cut. */

import assert from "node:assert/strict";
import { train, type TrainOptions } from "../../../actors/mod.ts";
import { ADAMW_DEFAULTS, gpt2, readTokens, tokenBatches } from "../../../kernels/mod.ts";

const FIXTURE = new URL("../../fixtures/gpt2_tied/", import.meta.url);
const fileOf = (name: string) => decodeURIComponent(new URL(name, FIXTURE).pathname);

/** PyTorch's floats and the doubles that judge them. */
const { config, float32 } = JSON.parse(await Deno.readTextFile(fileOf("expected.json")));

/** The same 30 steps; losses and norms before clipping. */
async function trained(options: Partial<TrainOptions>) {
  const { seq, vocab, microBatch, microBatches, steps, lr, weightDecay, clipNorm } = config;
  const tokens = await readTokens(fileOf("tokens.bin"));
  const cut = { seq, vocabularySize: vocab, microBatch, microBatches, steps };
  const losses: number[] = [], norms: number[] = [];
  let names: string[] = [];
  for await (
    const event of train({
      model: gpt2({ ...config, tie: true }, microBatch),
      data: tokenBatches({ ...cut, tokens }),
      steps,
      microBatches,
      weights: fileOf("weights.safetensors"),
      optimizer: { ...ADAMW_DEFAULTS, weightDecay },
      learningRate: lr,
      clip: clipNorm,
      device: "native",
      runtime: "local",
      ...options,
    })
  ) {
    if (event.type === "step") losses.push(event.loss), norms.push(event.gradNorm);
    if (event.type === "end") names = [...event.weights.keys()];
  }
  return { losses, norms, names };
}

function assertClose(what: string, got: number[], wanted: number[], tolerance: number): void {
  assert.equal(got.length, wanted.length);
  const distances = got.map((value, i) => Math.abs(value / wanted[i]! - 1));
  const worst = Math.max(...distances), step = distances.indexOf(worst) + 1;
  assert.ok(worst <= tolerance, `${what}: step ${step} is ${worst} off`);
}

const RUNS: readonly Partial<TrainOptions>[] = [
  { schedule: "1f1b", workers: 4 },
  { schedule: "chimera", workers: 4 },
  { schedule: "hanayo", workers: 4, runtime: "workers" },
  { schedule: "zb-v", workers: 2, device: "wasm" },
  { schedule: "gpipe", workers: 1 },
  { runtime: "serial" },
];

for (const options of RUNS) {
  Deno.test(`30 steps of ${JSON.stringify(options)} have PyTorch's losses within 1e-5 and its norms within 1e-4`, async () => {
    const { losses, norms, names } = await trained(options);
    assert.ok(names.includes("transformer.wte.weight") && !names.includes("lm_head.weight"));
    assertClose("loss", losses, float32.losses, 1e-5);
    assertClose("norm", norms, float32.gradNorms, 1e-4);
  });
}
