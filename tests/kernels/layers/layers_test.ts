/** The helpers of layers, and their gradients, against PyTorch's modules; how parameters begin. */

import assert from "node:assert/strict";
import {
  addGradients,
  attention,
  compileModel,
  convolution,
  crossEntropy,
  embedding,
  gpt2,
  groupNorm,
  gru,
  type Initializer,
  kaimingNormal,
  kaimingUniform,
  type Layer,
  LayerGraph,
  layerNorm,
  linear,
  llama,
  lstm,
  meanSquaredError,
  type Model,
  openPredictor,
  openReference,
  rmsNorm,
  rotary,
  type Value,
  xavierNormal,
  xavierUniform,
} from "../../../kernels/mod.ts";
import { initialValues, openDraws } from "../../../kernels/layers/layer.ts";
import { substream } from "../../../kernels/random.ts";
import { checkLora, withLora } from "../../../kernels/internal.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";
import { computed, computedOn } from "../graph/computed.ts";
import { assertRefused } from "../graph/refused.ts";
import { assertClose, readJson } from "../stage/pytorch.ts";
import { sharedDevices } from "../stage/stage_runs.ts";
import { closing } from "../devices/models.ts";

type Tensor = { readonly shape: readonly number[]; readonly data: readonly number[] };

/** Inputs of PyTorch and its results. */
type Case =
  & Readonly<Record<"inputs" | "parameters" | "gradients", Readonly<Record<string, Tensor>>>>
  & Readonly<Record<"output" | "cotangent", Tensor>>;

const CASES: Readonly<Record<string, Case>> = await readJson("helpers.json");

const ALL_CASES = Object.entries(CASES);

type Inputs = Readonly<Record<string, Value>>;

/** A mask that says of each key whether it is one. */
const ofKeys = (g: LayerGraph, mask: Value) =>
  g.reshape(mask, [mask.shape[0]!, 1, 1, mask.shape[1]!]);

/** The helper of each case; parameters have PyTorch's names. */
const HELPERS: Readonly<Record<string, (g: LayerGraph, inputs: Inputs) => Value>> = {
  linear: (g, { input }) => linear(g, input!, { outputs: 4 }),
  "linear without bias": (g, { input }) => linear(g, input!, { outputs: 4, bias: false }),
  embedding: (g, { ids }) => embedding(g, ids!, { rows: 7, width: 4 }),
  layerNorm: (g, { x }) => layerNorm(g, x!, { epsilon: 1e-3 }),
  rmsNorm: (g, { x }) => rmsNorm(g, x!, { epsilon: 1e-3 }),
  groupNorm: (g, { x }) => groupNorm(g, x!, { groups: 3, epsilon: 1e-3 }),
  convolution: (g, { x }) =>
    convolution(g, x!, {
      ...{ outputs: 6, kernel: [3, 2], stride: [2, 1], padding: [1, 2], dilation: [1, 2] },
      groups: 2,
    }),
  "causal attention of grouped queries": (g, { q, k, v }) =>
    attention(g, q!, k!, v!, { heads: 4, keyValueHeads: 2, causal: true }),
  "attention to what a mask leaves": (g, { q, k, v, mask }) =>
    attention(g, q!, k!, v!, { heads: 2, mask: ofKeys(g, mask!) }),
  "attention with a bias": (g, { q, k, v, bias }) =>
    attention(g, q!, k!, v!, { heads: 2, keyValueHeads: 1, bias: bias!, scale: 1 }),
  "causal attention with a bias and a mask": (g, { q, k, v, bias, mask }) =>
    attention(g, q!, k!, v!, { heads: 2, causal: true, bias: bias!, mask: ofKeys(g, mask!) }),
  crossEntropy: (g, { logits, targets }) => crossEntropy(g, logits!, targets!),
  "crossEntropy with smoothing": (g, { logits, targets }) =>
    crossEntropy(g, logits!, targets!, { smoothing: 0.1 }),
  meanSquaredError: (g, { x, target }) => meanSquaredError(g, x!, target!),
  "lstm of two layers": (g, { x }) => lstm(g, x!, { hidden: 4, layers: 2 }),
  "gru of two layers": (g, { x }) => gru(g, x!, { hidden: 4, layers: 2 }),
  "gru without biases": (g, { x }) => gru(g, x!, { hidden: 2, bias: false }),
};

const open = sharedDevices(ISOLATE_DEVICES);

for (const device of ISOLATE_DEVICES) {
  Deno.test(`every helper on ${device} computes what PyTorch does, and its gradients, within 2e-6`, async () => {
    assert.deepEqual(Object.keys(HELPERS), Object.keys(CASES));
    for (const [what, { inputs, parameters, output, cotangent, gradients }] of ALL_CASES) {
      const g = new LayerGraph();
      const values: Record<string, Value> = Object.fromEntries(
        Object.entries(inputs).map(([name, { shape }]) => {
          const isInteger = ["ids", "targets", "mask"].includes(name);
          return [name, g.input(name, shape, isInteger ? "i32" : "f32")];
        }),
      );
      const y = HELPERS[what]!(g, values), dy = g.input("cotangent", cotangent.shape);
      for (const { spec: { name, shape }, value } of g.parameters) {
        assert.deepEqual(shape, parameters[name]?.shape, `${what}: ${name}`);
        values[name] = value;
      }
      const names = Object.keys(gradients);
      const found = addGradients(g, [[y, dy]], names.map((name) => values[name]!));
      const results = {
        y,
        ...Object.fromEntries(names.map((name, i) => [`d ${name}`, found[i]!])),
      };
      const given = { ...inputs, ...parameters, cotangent };
      const data = Object.fromEntries(
        Object.entries(given).map(([name, { data }]) => [values[name]?.name ?? name, data]),
      );
      const arrays = (all: Iterable<readonly [string, readonly number[]]>) =>
        new Map(Array.from(all, ([name, numbers]) => [name, Float32Array.from(numbers)]));
      const slopes = names.map((name) => [`d ${name}`, gradients[name]!.data] as const);
      const received = await computedOn(open(device), g, results, data);
      const expected = arrays([["y", output.data], ...slopes]);
      assertClose(arrays(Object.entries(received)), expected, 2e-6, what);
    }
  });
}

Deno.test("scores with rotary positions depend only on the distance of the tokens", async () => {
  const g = new LayerGraph(), turned = rotary(g, g.input("x", [4, 6]), { theta: 10 });
  const row = [0.3, -1, 2, 0.5, 1, -0.7];
  const rows = await computed(g, turned, { x: [row, row, row, row].flat() });
  const score = (i: number, j: number) =>
    row.reduce((sum, _, at) => sum + rows[6 * i + at]! * rows[6 * j + at]!, 0);
  for (const distance of [1, 2]) {
    const scores = [0, 1].map((i) => score(i, i + distance));
    assert.ok(Math.abs(scores[0]! - scores[1]!) < 1e-5, `${scores}`);
  }
  assert.ok(Math.abs(score(0, 1) - score(0, 2)) > 0.1);
  // The second of two slices begins at the third position.
  const slice = new LayerGraph({ index: 1, count: 2 }), x = slice.input("x", [2, 6]);
  const behind = await computed(slice, rotary(slice, x, { theta: 10 }), { x: [...row, ...row] });
  assert.deepEqual(behind, rows.slice(12));
});

Deno.test("a target that is not predicted has no loss with smoothing either", async () => {
  const g = new LayerGraph(), x = g.input("x", [2, 3]);
  const targets = g.constant(Int32Array.of(-1, 1), [2], "i32");
  const losses = await computed(g, crossEntropy(g, x, targets, { smoothing: 0.5 }), {
    x: [1, 2, 4, 1, 2, 4],
  });
  assert.equal(losses[0], 0);
  assert.ok(losses[1]! > 0);
});

Deno.test("operands of helpers that do not fit are refused", () => {
  const g = new LayerGraph(), x = g.input("x", [2, 3, 4]), y = g.input("y", [2, 5, 4]);
  return assertRefused("helpers", [
    () => attention(g, x, x, x, { heads: 3 }),
    () => attention(g, x, x, x, { heads: 4, keyValueHeads: 3 }),
    () => attention(g, x, x, x, { heads: 4, keyValueHeads: 2 }),
    () => attention(g, x, y, x, { heads: 2 }),
    () => attention(g, x, x, x, { heads: 2, mask: g.input("m", [3, 1, 1, 3], "bool") }),
    () => attention(g, x, x, x, { heads: 2, bias: g.input("bias", [1, 1, 1, 1, 1]) }),
    () => attention(g, x, y, y, { heads: 2, causal: true }),
    () => rotary(g, g.input("odd", [2, 3])),
    () => crossEntropy(g, x, y),
    () => crossEntropy(g, x, x, { smoothing: 1.1 }),
    () => meanSquaredError(g, x, y),
    () => lstm(g, g.input("z", [2, 3]), { hidden: 2 }),
    () => gru(g, x, { hidden: 2, layers: 0 }),
    // Programs run without a check of types.
    () => gru(g, x, { size: 2 } as never),
    () => linear(g, x, { output: 2 } as never),
    () => convolution(g, x, { outputs: 2, size: 3 } as never),
    () => embedding(g, x, { rows: 2, dim: 3 } as never),
    ...["normal", { kind: "norml", deviation: 1 }, { kind: "uniform", from: 0, to: 1 }].map((one) =>
      [one, () => g.parameter("w", [2], one as never)] as const
    ),
  ]);
});

Deno.test("first values of Xavier and Kaiming have the deviations and bounds of their papers", () => {
  const shape = [48, 16, 3, 3], inputs = 16 * 9, outputs = 48 * 9;
  const cases: readonly [Initializer, number][] = [
    [xavierNormal(shape), Math.sqrt(2 / (inputs + outputs))],
    [xavierNormal(shape, { gain: 5 / 3 }), 5 / 3 * Math.sqrt(2 / (inputs + outputs))],
    [xavierUniform(shape), Math.sqrt(2 / (inputs + outputs))],
    [kaimingNormal(shape), Math.sqrt(2 / inputs)],
    [kaimingNormal(shape, { fan: "out" }), Math.sqrt(2 / outputs)],
    [kaimingUniform(shape), Math.sqrt(2 / inputs)],
    [kaimingUniform(shape, { gain: 1 }), Math.sqrt(1 / inputs)],
  ];
  for (const [initializer, deviation] of cases) {
    const found = initializer.kind === "normal"
      ? [initializer.deviation]
      : initializer.kind === "uniform"
      ? [-initializer.low / Math.sqrt(3), initializer.high / Math.sqrt(3)]
      : [];
    assert.ok(found.length > 0);
    for (const one of found) assert.ok(Math.abs(one / deviation - 1) < 1e-12, `${one}`);
  }
});

const NORMAL = { kind: "normal", deviation: 1 } as const;
const draw = (count: number, name = "w", initializer: Initializer = NORMAL) =>
  initialValues({ name: "w", shape: [count], initializer }, name, 1);

Deno.test("initial weights are those of the polar method with pure-rand's generator", () => {
  const got = draw(40_001, "polar", { ...NORMAL, deviation: 0.5 });
  const generator = substream(1, "polar");
  const uniform = () => (generator.next() + 0.5) / 2 ** 31;
  for (let i = 0; i < got.length;) {
    const x = uniform(), y = uniform(), square = x * x + y * y;
    if (square >= 1) continue;
    const radius = 0.5 * Math.sqrt(-2 * Math.log(square) / square);
    for (const wanted of [radius * x, radius * y].slice(0, got.length - i)) {
      const value = got[i++]!;
      assert.ok(Math.abs(value - wanted) <= 1e-7 * Math.abs(wanted), `${i}: ${value}, ${wanted}`);
    }
  }
});

Deno.test("initial weights depend only on the seed and the name, in pieces or together", () => {
  const uniform = { kind: "uniform", low: -1, high: 3 } as const;
  const cases: readonly [string, Initializer, readonly number[]][] = [
    ["w", NORMAL, [0.3514906, 0.3206339, -0.0538048, -2.1566412]],
    ["stays", uniform, [0.22623539, 2.13641024, -0.80053473]],
    ["any", { kind: "constant", value: 2 }, [2, 2]],
  ];
  for (const [name, initializer, wanted] of cases) {
    draw(wanted.length, name, initializer).forEach((value, i) =>
      assert.ok(Math.abs(value - wanted[i]!) < 1e-6, `${value}`)
    );
    const all = draw(8, name, initializer);
    assert.deepEqual(draw(7, name, initializer), all.slice(0, 7));
    const draws = openDraws({ name, shape: [8], initializer }, name, 1);
    const pieces = [3, 1, 4].map((count) => new Float32Array(count));
    for (const piece of pieces) draws(piece);
    assert.deepEqual(pieces.flatMap((piece) => [...piece]), [...all]);
  }
});

/** Adapters of layers: their parameters, and which targets are refused. */

const SIZES = { layers: 1, hidden: 16, heads: 4, seq: 8, vocab: 32 };

/** Names and shapes of the parameters that a model trains. */
const trainedIn = (model: Model) =>
  compileModel(model, "none").parameters.filter(({ isFrozen }) => !isFrozen)
    .map(({ name, shape }) => `${name} [${shape}]`);

Deno.test("A has the shape [r, in] and B [out, r], whether a weight is [in, out] or [out, in]", () => {
  const options = { rank: 3, target: ["c_proj", "q_proj", "lm_head", "0"] };
  const block = "transformer.h.0.", config = SIZES;
  assert.deepEqual(trainedIn(withLora(gpt2(config, 1), options)), [
    `${block}attn.c_proj.lora_A.weight [3,16]`,
    `${block}attn.c_proj.lora_B.weight [16,3]`,
    `${block}mlp.c_proj.lora_A.weight [3,64]`,
    `${block}mlp.c_proj.lora_B.weight [16,3]`,
    "lm_head.lora_A.weight [3,16]",
    "lm_head.lora_B.weight [32,3]",
  ]);
  assert.deepEqual(trainedIn(withLora(llama({ ...config, intermediate: 40 }, 1), options)), [
    "model.layers.0.self_attn.q_proj.lora_A.weight [3,16]",
    "model.layers.0.self_attn.q_proj.lora_B.weight [16,3]",
    "lm_head.lora_A.weight [3,16]",
    "lm_head.lora_B.weight [32,3]",
  ]);
});

Deno.test("a weight that is used both ways has one update", async () => {
  const layer: Layer = {
    name: "tied",
    build: (g) => {
      const weight = g.parameter("w.weight", [2, 2]);
      return g.gemm(g.gemm(g.batch("x", [1, 2]), weight), weight, undefined, { transB: true });
    },
  };
  const model = { name: "tied", layers: [layer], predictions: 1 };
  using device = closing(await openReference());
  const of = async ({ layers }: Pick<Model, "layers">, weights: Record<string, number[]>) => {
    const all = Object.entries(weights).map(([name, one]) =>
      [`tied.w.${name}weight`, Float32Array.from(one)] as const
    );
    return (await openPredictor(device, layers, new Map(all)))({ x: Float32Array.of(1, 1) });
  };
  const adapted = withLora(model, { rank: 1, target: ["w"] });
  const found = await of(adapted, { "": [1, 2, 3, 4], "lora_A.": [1, -1], "lora_B.": [2, 1] });
  assert.deepEqual(found, await of(model, { "": [3, 3, 1, 3] })); // W + (BA)ᵀ
});

Deno.test("targets that are no dense layer, or tied ones, are refused", () => {
  const check = (target: string[], tie = false, headSlices = 1) => {
    const lora = { rank: 1, target }, sizes = { ...SIZES, tie, headSlices };
    const model = withLora(gpt2(sizes, 1), lora);
    checkLora(compileModel(model, "none").parameters, model.ties ?? [], lora);
  };
  check(["c_attn", "mlp.c_fc", "lm_head"]);
  return assertRefused("lora_targets", [
    () => check(["c_attn", "wte"]),
    () => check(["attn"]),
    () => check(["c_attn", "attn_c"]),
    () => check(["lm_head"], true),
    () => check(["lm_head.1"], false, 2),
  ]);
});
