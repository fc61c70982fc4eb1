import assert from "node:assert/strict";
import {
  compileModel,
  llama,
  type LlamaConfig,
  llamaLogits,
  openPredictor,
  openReference,
  readTokens,
  tokenBatches,
} from "../../../kernels/mod.ts";
import { readFloats, readJson } from "../stage/pytorch.ts";
import { testAgainstPytorch } from "./trains_as_pytorch.ts";

/** The sizes of the fixture's `config.json`. */
const SIZES: LlamaConfig = {
  layers: 3,
  hidden: 32,
  heads: 4,
  keyValueHeads: 2,
  intermediate: 40,
  seq: 16,
  vocab: 96,
  ropeTheta: 5000,
  normEpsilon: 1e-5,
};

const tokensOfFixture = () =>
  readTokens(new URL("../../fixtures/llama/tokens.bin", import.meta.url).pathname);

testAgainstPytorch("a Llama with grouped queries", async () => {
  const { config, float32 } = await readJson("llama/expected.json");
  const { microBatch, microBatches, steps, lr } = config, { seq, vocab } = SIZES;
  const options = { seq, microBatch, microBatches, steps, vocabularySize: vocab };
  const batches = [...tokenBatches({ ...options, tokens: await tokensOfFixture() })];
  return {
    model: llama(SIZES, microBatch),
    weights: await readFloats("llama/model.safetensors"),
    gradients: await readFloats("llama/gradients.safetensors"),
    losses: float32,
    steps: Array.from(
      { length: steps },
      (_, i) => batches.slice(i * microBatches, (i + 1) * microBatches),
    ),
    learningRate: lr,
  };
});

Deno.test("the logits of a Llama are PyTorch's", async () => {
  const { logits } = await readJson("llama/expected.json"), device = await openReference();
  const weights = await readFloats("llama/model.safetensors");
  const predict = await openPredictor(device, llamaLogits(SIZES, 1), weights);
  const received = await predict({ ids: Int32Array.from((await tokensOfFixture()).slice(0, 16)) });
  device.close();
  const worst = logits.flat().map((one: number, i: number) => Math.abs(one - received[i]!));
  assert.ok(Math.max(...worst) < 2e-5, `${Math.max(...worst)}`);
});

Deno.test("a Llama has the parameters of Hugging Face's, and no head of its own where it is tied", async () => {
  const shapes = (config: LlamaConfig) =>
    compileModel(llama(config, 1), "none").parameters.map(({ name }) => name).sort();
  const names = [...(await readFloats("llama/model.safetensors")).keys()].sort();
  assert.deepEqual(shapes(SIZES), names);
  assert.deepEqual(
    shapes({ ...SIZES, tie: true }),
    names.filter((name) => name !== "lm_head.weight"),
  );
});

Deno.test("a Llama that cannot be is refused", () => {
  for (
    const [sizes, told] of [
      [{ keyValueHeads: 3 }, "keyValueHeads must divide its heads, 4, received 3"],
      [{ hidden: 36 }, "hidden must be divisible by twice its heads, 8, received 36"],
      [{ intermediate: 0 }, "intermediate must be a whole number from 1 to 262144, received 0"],
      [{ ropeTheta: 0 }, "ropeTheta must be a positive number, received 0"],
      [{ normEpsilon: NaN }, "normEpsilon must be a positive number, received NaN"],
      [{ layers: 2000 }, "layers must be at most 1024, received 2000"],
    ] as const
  ) {
    const message = `Cannot build a Llama: ${told}`;
    assert.throws(() => llama({ ...SIZES, ...sizes }, 1), { name: "RangeError", message });
  }
});
