/** GPT-2: a head in slices of the vocabulary, tied tables, attention in parts, samples of other lengths. */

import assert from "node:assert/strict";
import {
  compileModel,
  generate,
  gpt2,
  type Gpt2Config,
  Graph,
  mlp,
  openReference,
  type Tie,
  type Value,
} from "../../../kernels/mod.ts";
import { countTargets, splitBatch } from "../../../kernels/batch.ts";
import { cutIntoStages } from "../../../kernels/compile/layout.ts";
import { gpt2Ties } from "../../../kernels/layers/gpt2.ts";
import { withAliases } from "../../../kernels/stage/state.ts";
import { causalAttention, causalMask } from "../../../kernels/layers/attention.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";
import { pseudoRandom } from "../devices/models.ts";
import { computedOn, differentiated } from "../graph/computed.ts";
import { assertRefused } from "../graph/refused.ts";
import { assertClose } from "../stage/pytorch.ts";
import {
  backward,
  drawTokens,
  drawWeights,
  forward,
  gradientsOf,
  openStages,
  sharedDevices,
} from "../stage/stage_runs.ts";
import { CONFIG as WHOLE, full, MODEL, padded, SAMPLES, SHORT } from "../stage/suite.ts";

const open = sharedDevices(ISOLATE_DEVICES);

/** Slices of 67 token ids are of several sizes. */
const CONFIG = { layers: 1, hidden: 16, heads: 2, seq: 8, vocab: 67 };
const [TOKENS] = drawTokens(1, 2 * CONFIG.seq, CONFIG.vocab);
const BATCH = { ids: TOKENS!.ids, targets: TOKENS!.targets!.with(3, -1) };

/** Weights of a whole head, with logits of up to 100 so that one exponential outweighs others. */
function wholeWeights(factor = 400): Map<string, Float32Array> {
  const weights = drawWeights(compileModel(gpt2(CONFIG, 2), "none"));
  return weights.set("lm_head.weight", weights.get("lm_head.weight")!.map((w) => factor * w));
}

/** The same with the rows of the head cut as it is. */
function withSlices(weights: ReadonlyMap<string, Float32Array>, slices: number) {
  const { "lm_head.weight": head, ...others } = Object.fromEntries(weights);
  const start = (k: number) => CONFIG.hidden * Math.round(k * CONFIG.vocab / slices);
  const cut = Array.from({ length: slices }, (_, k) => (
    [`lm_head.${k}.weight`, head!.slice(start(k), start(k + 1))] as const
  ));
  return new Map([...Object.entries(others), ...cut]);
}

for (const name of ISOLATE_DEVICES) {
  Deno.test(`a head in slices has the loss and gradients of a whole one on ${name}`, async () => {
    const run = async (headSlices: number, weights: Map<string, Float32Array>) => {
      const model = compileModel(gpt2({ ...CONFIG, headSlices }, 2), "none");
      const stages = await openStages(open(name), model, 1);
      stages[0]!.load({ weights, moments: new Map() });
      const losses = await forward(stages, 0, BATCH);
      await backward(stages, 0, "B");
      return { losses, gradients: await gradientsOf(stages) };
    };
    // Where all logits are equal, so are the sums of slices of one size.
    const cases = [[400, [2, 5]], [0, [5]]] as const;
    for (const [factor, all] of name === "native" ? cases : [[400, [2]]] as const) {
      const weights = wholeWeights(factor), expected = await run(1, weights);
      for (const slices of all) {
        const { losses, gradients } = await run(slices, withSlices(weights, slices));
        const wanted = withSlices(expected.gradients, slices).set("losses", expected.losses);
        // Nearly zero is relative to the other elements: one more in every array.
        const beside = (of: ReadonlyMap<string, Float32Array>) =>
          new Map(Array.from(of, ([key, values]) => [key, Float32Array.of(...values, 1 / 3)]));
        assertClose(beside(gradients.set("losses", losses)), beside(wanted), 3e-6, `${slices}:`);
      }
    }
  });
}

Deno.test("stages share a head in slices, which alone would be the slowest", () => {
  const config = { layers: 12, hidden: 768, heads: 12, seq: 256, vocab: 50_257 };
  const slowest = (headSlices: number) => {
    const program = compileModel(gpt2({ ...config, headSlices }, 2), "none");
    const total = (costs: readonly number[]) => costs.reduce((sum, cost) => sum + cost, 0);
    let first = 0;
    const shares = cutIntoStages(program, 4).map(({ layers }) =>
      total(program.costs.slice(first, first += layers.length)) / total(program.costs)
    );
    return Math.max(...shares);
  };
  assert.ok(slowest(1) > 0.29, `${slowest(1)}`);
  assert.ok(slowest(4) < 0.275, `${slowest(4)}`);
});

/** The tokens that a model generates. */
const generated = (config: Gpt2Config, weights: ReadonlyMap<string, Float32Array>) => {
  const options = { config, weights: new Map(weights), prompt: [1], tokens: 9, seed: 1 };
  return Array.fromAsync(generate(open("native"), options));
};

Deno.test("a model whose head is in slices generates what one with a whole head does", async () => {
  const weights = wholeWeights(), headSlices = 3;
  const received = await generated({ ...CONFIG, headSlices }, withSlices(weights, headSlices));
  assert.deepEqual(received, await generated(CONFIG, weights));
});

Deno.test("sizes that are too large or do not divide, and heads that cannot be in slices, are refused", () => {
  const changes: Partial<Gpt2Config>[] = [
    ...[{ layers: 1025 }, { heads: 3 }, { headSlices: 0 }, { headSlices: 68 }],
    ...[{ headSlices: 2, tie: true }, { headSlices: 2, hidden: 1, heads: 1 }],
  ];
  const build = (change: object) => gpt2({ ...CONFIG, ...change }, 1);
  return assertRefused("gpt2", changes.map((change) => [change, () => build(change)]));
});

Deno.test("initial weights of residual outputs are smaller by the square root of their number", () => {
  const { parameters } = compileModel(gpt2({ ...CONFIG, layers: 2 }, 1), "none");
  const deviationOf = (end: string) =>
    parameters.filter(({ name }) => name.endsWith(end)).map(({ spec }) =>
      spec.initializer.kind === "normal" && spec.initializer.deviation
    );
  for (const name of ["attn.c_attn.weight", "mlp.c_fc.weight"]) {
    assert.deepEqual(deviationOf(name), [0.02, 0.02]);
  }
  assert.deepEqual(deviationOf("c_proj.weight"), Array(4).fill(0.02 / Math.sqrt(4)));
});

const TIED = { ...CONFIG, tie: true };
const TABLE = "transformer.wte.weight", HEAD = "lm_head.weight";

Deno.test("an alias is no parameter of the model, but one of its stage", () => {
  const program = compileModel(gpt2(TIED, 1), "none");
  assert.deepEqual(program.ties, [[TABLE, HEAD]]);
  const names = program.parameters.map(({ name }) => name);
  assert.ok(names.includes(TABLE) && !names.includes(HEAD));
  const untied = compileModel(gpt2(CONFIG, 1), "none");
  assert.deepEqual(untied.ties, []);
  assert.equal(untied.parameters.length, names.length + 1);
  assert.deepEqual(cutIntoStages(program, 2), cutIntoStages(untied, 2));
});

Deno.test("an invalid tie is refused by name", () => {
  const { layers } = gpt2(TIED, 1);
  const [first, second, third] = ["ln_1.weight", "ln_1.bias", "ln_2.weight"]
    .map((own) => `transformer.h.0.${own}`) as [string, string, string];
  const wrong: (readonly Tie[])[] = [
    ...[[[TABLE, "head.weight"]], [[TABLE, "transformer.wpe.weight"]], [[TABLE, TABLE]]] as Tie[][],
    [[TABLE, HEAD], [TABLE, HEAD]],
    [[first, second], [second, third]],
  ];
  const compile = (ties: readonly Tie[]) =>
    compileModel({ name: "m", layers, predictions: 1, ties }, "none");
  return assertRefused("ties", wrong.map((ties) => [ties, () => compile(ties)]));
});

Deno.test("an alias is frozen if its canonical parameter is frozen", () => {
  for (const frozen of [TABLE, HEAD]) {
    const program = compileModel(gpt2(TIED, 1), "none", { frozen: (name) => name === frozen });
    const head = program.programs[program.layers.at(-1)!.program]!;
    const alias = head.parameters.find(({ name }) => name === HEAD)!;
    assert.equal(alias.frozen ?? false, frozen === TABLE);
  }
});

Deno.test("a state gets the weights and moments of its aliases, and keeps all others", () => {
  const state = {
    weights: new Map([["t", 1], ["t.exp_avg", 2]]),
    moments: new Map([["t.exp_avg", 2], ["t.exp_avg_sq", 3], ["t.exp_avg.exp_avg", 1]]),
  };
  const { weights, moments } = withAliases(state, [["t", "u"]]);
  assert.deepEqual([...weights], [...state.weights, ["u", 1]]);
  assert.deepEqual([...moments], [...state.moments, ["u.exp_avg", 2], ["u.exp_avg_sq", 3]]);
});

Deno.test("text is generated from the weights of a tied model, which hold no head", async () => {
  const weights = drawWeights(compileModel(gpt2(TIED, 1), "none"));
  const copied = withAliases({ weights, moments: new Map() }, gpt2Ties(TIED)).weights;
  assert.deepEqual(await generated(TIED, weights), await generated(CONFIG, copied));
  await assert.rejects(generated(CONFIG, weights), /"lm_head.weight" must be given/);
});

type Build = (g: Graph, ...inputs: Value[]) => Value;
type Attention = (g: Graph, q: Value, k: Value, v: Value) => Value;

const byDefinition: Attention = (g, q, k, v) => {
  const [, , seq, width] = q.shape as [number, number, number, number];
  const scores = g.matmul(q, k, { transB: true, alpha: 1 / Math.sqrt(width) });
  return g.matmul(g.softmax(g.add(scores, g.constant(causalMask(seq), [seq, seq]))), v);
};

/** The result and the gradients of queries, keys and values, and how many scores are computed. */
async function attend(attention: Attention, seq: number) {
  const { g, results } = differentiated(Array(3).fill([1, 2, seq, 3]), attention as Build);
  const scores = g.nodes.filter(({ op }) => op === "Softmax")
    .reduce((sum, { outputs: [weights] }) => sum + weights!.shape.reduce((a, b) => a * b), 0);
  const given = g.inputs.map(({ name }, i) => [name, pseudoRandom(i, 6 * seq)]);
  const found = await computedOn(await openReference(), g, results, Object.fromEntries(given));
  return { values: Object.values(found).flat(), scores: scores / (2 * seq * seq) };
}

Deno.test("attention in parts has the results and gradients of the definition, and computes fewer scores", async () => {
  // Whole where no number of parts from 64 to 128 queries divides the tokens.
  for (const [seq, share] of [[256, 3 / 4], [129, 1]] as const) {
    const whole = await attend(byDefinition, seq);
    const parts = await attend((g, q, k, v) => causalAttention(g, q, [k], [v]), seq);
    assert.equal(whole.scores, 1);
    assert.ok(Math.abs(parts.scores - share) < 1e-9, `T = ${seq}: ${parts.scores}`);
    whole.values.forEach((value, i) => {
      const distance = Math.abs(value - parts.values[i]!) / Math.max(1, Math.abs(value));
      assert.ok(distance < 2e-6, `T = ${seq}, ${i}: ${parts.values[i]} is not ${value}`);
    });
  }
});

Deno.test("predictions are the targets that are not −1", () => {
  const { predictions } = MODEL;
  assert.ok(typeof predictions === "function");
  assert.equal(predictions(full), SAMPLES * WHOLE.seq);
  assert.equal(predictions(padded), SHORT + WHOLE.seq);
  return assertRefused("targets", [
    ["no targets", () => predictions({ ids: full.ids! })],
    ["a target of -100", () => countTargets({ labels: Int32Array.of(1, -100) }, "labels")],
    ["a part of 3", () => splitBatch(full, 3)],
  ]);
});

Deno.test("a model for half the samples has the same parameters", () => {
  for (const model of [gpt2(CONFIG, 4), mlp({ inputs: 6, hidden: 8, layers: 2, classes: 3 }, 4)]) {
    const half = model.withSamples!(2);
    assert.deepEqual([model.samples, half.samples], [4, 2]);
    const [whole, halved] = [model, half].map((one) => compileModel(one, "none"));
    assert.deepEqual(halved!.parameters, whole!.parameters);
    const samplesOf = (program: typeof whole) => program!.programs.at(-1)!.outputs[0]!.shape;
    assert.deepEqual([samplesOf(whole), samplesOf(halved)], [[4], [2]]);
  }
});

Deno.test("a micro-batch is split into views of its samples", () => {
  const parts = splitBatch(full, SAMPLES);
  assert.deepEqual(parts[1]!.ids, full.ids!.slice(WHOLE.seq));
  assert.equal(parts[1]!.ids!.buffer, full.ids!.buffer);
});
