/** Two parameters that are one: the tables of GPT-2's embedding and head. */

import assert from "node:assert/strict";
import {
  compileModel,
  cutIntoStages,
  type Device,
  generate,
  gpt2,
  gpt2Ties,
  type Model,
  openDevice,
  openReference,
  readSafetensors,
  readTokens,
  type Stage,
  type Tie,
  tokenBatches,
  withAliases,
} from "../../../kernels/mod.ts";
import { backward, drawWeights, forward, openStages } from "../stage/stage_runs.ts";

const CONFIG = { layers: 1, hidden: 16, heads: 2, seq: 8, vocab: 32, tie: true };
const TABLE = "transformer.wte.weight", HEAD = "lm_head.weight";

Deno.test("an alias is no parameter of the model, but one of its stage", () => {
  const program = compileModel(gpt2(CONFIG, 1), "none");
  assert.deepEqual(program.ties, [[TABLE, HEAD]]);
  const names = program.parameters.map(({ name }) => name);
  assert.ok(names.includes(TABLE) && !names.includes(HEAD));
  const untied = compileModel(gpt2({ ...CONFIG, tie: false }, 1), "none");
  assert.deepEqual(untied.ties, []);
  assert.equal(untied.parameters.length, names.length + 1);
  assert.deepEqual(cutIntoStages(program, 2), cutIntoStages(untied, 2));
});

Deno.test("a tie that cannot be is refused by name", () => {
  const { layers } = gpt2(CONFIG, 1);
  const compile = (ties: readonly Tie[]) =>
    compileModel({ name: "m", layers, predictions: 1, ties }, "none");
  assert.throws(() => compile([[TABLE, "head.weight"]]), {
    name: "TypeError",
    message:
      'Cannot tie "transformer.wte.weight" and "head.weight": both must be parameters of the model, received no "head.weight"',
  });
  assert.throws(() => compile([[TABLE, "transformer.wpe.weight"]]), {
    name: "RangeError",
    message: /shapes must be equal, received \[32,16\] and \[8,16\]/,
  });
  assert.throws(() => compile([[TABLE, HEAD], [TABLE, HEAD]]), /must be tied once/);
  assert.throws(() => compile([[TABLE, TABLE]]), /to another parameter/);
  const [first, second, third] = ["ln_1.weight", "ln_1.bias", "ln_2.weight"].map((own) =>
    `transformer.h.0.${own}`
  ) as [string, string, string];
  assert.throws(() => compile([[first, second], [second, third]]), /must not be an alias itself/);
});

Deno.test("an alias is as frozen as what it is tied to", () => {
  for (const frozen of [TABLE, HEAD]) {
    const program = compileModel(gpt2(CONFIG, 1), "none", { frozen: (name) => name === frozen });
    const head = program.programs[program.layers.at(-1)!.program]!;
    const alias = head.parameters.find(({ name }) => name === HEAD)!;
    assert.equal(alias.frozen ?? false, frozen === TABLE);
  }
});

Deno.test("a state gets the weights and moments of its aliases, and keeps all else", () => {
  const [a, b, c] = [1, 2, 3].map((value) => Float32Array.of(value)) as [
    Float32Array,
    Float32Array,
    Float32Array,
  ];
  const state = {
    weights: new Map([["t", a], ["t.exp_avg", b]]),
    moments: new Map([["t.exp_avg", b], ["t.exp_avg_sq", c], ["t.exp_avg.exp_avg", a]]),
  };
  const { weights, moments } = withAliases(state, [["t", "u"]]);
  assert.deepEqual([...weights], [["t", a], ["t.exp_avg", b], ["u", a]]);
  assert.deepEqual([...moments], [
    ["t.exp_avg", b],
    ["t.exp_avg_sq", c],
    ["t.exp_avg.exp_avg", a],
    ["u.exp_avg", b],
    ["u.exp_avg_sq", c],
  ]);
});

Deno.test("text is generated from the weights of a tied model, which hold no head", async () => {
  const device = await openReference();
  try {
    const weights = drawWeights(compileModel(gpt2(CONFIG, 1), "none"));
    const options = { prompt: [3, 5], tokens: 6, temperature: 0 };
    const tied = await Array.fromAsync(generate(device, { config: CONFIG, weights, ...options }));
    const copied = withAliases({ weights, moments: new Map() }, gpt2Ties(CONFIG)).weights;
    const config = { ...CONFIG, tie: false };
    const untied = await Array.fromAsync(
      generate(device, { config, weights: copied, ...options }),
    );
    assert.deepEqual(tied, untied);
    await assert.rejects(
      Array.fromAsync(generate(device, { config, weights, ...options })),
      /"lm_head.weight" must be given/,
    );
  } finally {
    device.close();
  }
});

const FIXTURES = new URL("../../fixtures/gpt2_tied/", import.meta.url);

/** Gives both ends the sum of both gradients; the sum of squares of all gradients, each once. */
async function addTies(stages: readonly Stage[], [canonical, alias]: Tie): Promise<number> {
  const holders = [stages[0]!, stages.at(-1)!] as const, names = [canonical, alias] as const;
  const ranges = holders.map((stage, i) => stage.rangeOf(names[i]!));
  const read = (i: 0 | 1) => holders[i].readGradients(ranges[i]!.offset, ranges[i]!.length);
  const sum = await read(0), other = await read(1);
  for (let i = 0; i < sum.length; i++) sum[i]! += other[i]!;
  for (const i of [0, 1] as const) holders[i].writeGradients(ranges[i]!.offset, sum);
  let squares = 0;
  for (const stage of stages) {
    for (const [name, square] of await stage.gradientSquares()) {
      if (name !== alias) squares += square;
    }
  }
  return squares;
}

async function fixture() {
  const { config, float32 } = JSON.parse(
    await Deno.readTextFile(new URL("expected.json", FIXTURES)),
  );
  const { tensors } = await readSafetensors(new URL("weights.safetensors", FIXTURES).pathname);
  const weights = new Map(
    [...tensors].map(([name, { data }]) => [name, new Float32Array(data.buffer)]),
  );
  const tokens = await readTokens(new URL("tokens.bin", FIXTURES).pathname);
  const batches = [...tokenBatches({ ...config, tokens, vocabularySize: config.vocab })];
  return { config, expected: float32, weights, batches };
}

async function openFixture(device: Device, model: Model, weights: Map<string, Float32Array>) {
  const program = compileModel(model, "none");
  assert.deepEqual([...weights.keys()].sort(), program.parameters.map(({ name }) => name).sort());
  const stages = await openStages(device, program, 3);
  const state = withAliases({ weights, moments: new Map() }, program.ties);
  for (const stage of stages) stage.load(state);
  return { stages, ties: program.ties };
}

Deno.test("a tied and clipped GPT-2 has PyTorch's losses and norms over 30 steps", async () => {
  const { config, expected, weights, batches } = await fixture();
  const { layers, hidden, heads, seq, vocab, microBatch, microBatches, clipNorm } = config;
  const device = await openDevice("native");
  try {
    const model = gpt2({ layers, hidden, heads, seq, vocab, tie: config.tied }, microBatch);
    const { stages, ties } = await openFixture(device, model, weights);
    const predictions = microBatches * microBatch * seq;
    for (let step = 1; step <= config.steps; step++) {
      let loss = 0;
      for (const stage of stages) stage.zeroGradients();
      for (let m = 0; m < microBatches; m++) {
        const losses = await forward(stages, m, batches[(step - 1) * microBatches + m]!);
        for (const one of losses) loss += one / predictions;
        await backward(stages, m, "B", 1 / predictions);
      }
      const norm = Math.sqrt(await addTies(stages, ties[0]!));
      const wanted = expected.losses[step - 1], wantedNorm = expected.gradNorms[step - 1];
      assert.ok(Math.abs(loss - wanted) < 1e-5 * wanted, `step ${step}: ${loss}, not ${wanted}`);
      assert.ok(Math.abs(norm - wantedNorm) < 1e-4 * wantedNorm, `step ${step}: norm ${norm}`);
      const factor = Math.min(1, clipNorm / (norm + 1e-6));
      for (const stage of stages) await stage.optimize(step, config.lr, factor);
    }
  } finally {
    device.close();
  }
});
