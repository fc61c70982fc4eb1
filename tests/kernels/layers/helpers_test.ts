/** The helpers of layers, and their gradients, against PyTorch's modules. */

import assert from "node:assert/strict";
import {
  addGradients,
  attention,
  convolution,
  crossEntropy,
  embedding,
  encodeModel,
  groupNorm,
  type HostArray,
  type Initializer,
  initialValues,
  kaimingNormal,
  kaimingUniform,
  LayerGraph,
  layerNorm,
  linear,
  meanSquaredError,
  openDevice,
  rmsNorm,
  rotary,
  type Value,
  xavierNormal,
  xavierUniform,
} from "../../../kernels/mod.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";

interface Tensor {
  readonly shape: readonly number[];
  readonly data: readonly number[];
}

/** What PyTorch was given, and what it computed. */
interface Case {
  readonly inputs: Readonly<Record<string, Tensor>>;
  readonly parameters: Readonly<Record<string, Tensor>>;
  readonly output: Tensor;
  readonly cotangent: Tensor;
  readonly gradients: Readonly<Record<string, Tensor>>;
}

const CASES: Readonly<Record<string, Case>> = JSON.parse(
  await Deno.readTextFile(new URL("../../fixtures/helpers.json", import.meta.url)),
);

type Inputs = Readonly<Record<string, Value>>;

/** What a mask is that says of each key whether it is one. */
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
      outputs: 6,
      kernel: [3, 2],
      stride: [2, 1],
      padding: [1, 2],
      dilation: [1, 2],
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
};

/** Integers are ids, targets and masks. */
const isInteger = (name: string) => ["ids", "targets", "mask"].includes(name);

const arrayOf = (name: string, { data }: Tensor): HostArray =>
  isInteger(name) ? Int32Array.from(data) : Float32Array.from(data);

/** ‖a − b‖ ÷ ‖b‖ */
function relativeError(a: Float32Array, b: readonly number[]): number {
  const norm = (values: readonly number[]) => Math.hypot(...values);
  return norm(b.map((want, i) => a[i]! - want)) / norm(b);
}

/** The result of a helper and the gradients of its inputs and parameters, by name. */
async function compute(device: string, what: string): Promise<Map<string, Float32Array>> {
  const { inputs, parameters, cotangent, gradients } = CASES[what]!;
  const g = new LayerGraph(), values: Record<string, Value> = {};
  for (const [name, { shape }] of Object.entries(inputs)) {
    values[name] = g.input(name, shape, isInteger(name) ? "i32" : "f32");
  }
  const output = HELPERS[what]!(g, values), dy = g.input("cotangent", cotangent.shape);
  for (const { spec: { name, shape }, value } of g.parameters) {
    assert.deepEqual(shape, parameters[name]?.shape, `${what}: ${name}`);
    values[name] = value;
  }
  const names = Object.keys(gradients);
  const found = addGradients(g, [[output, dy]], names.map((name) => values[name]!));
  const results = new Map([
    ["output", output],
    ...names.map((name, i) => [name, found[i]!] as const),
  ]);
  const given = new Map(Object.entries({ ...inputs, ...parameters, cotangent }));
  const opened = await openDevice(device);
  try {
    const kernel = await opened.compile(encodeModel(
      g,
      Array.from(given.keys(), (name) => ({ name, value: values[name] ?? dy })),
      Array.from(results, ([name, value]) => ({ name: `${name}'`, value })),
    ));
    const read: Record<string, ReturnType<typeof opened.alloc>> = {};
    for (const [name, tensor] of given) {
      const { dtype, shape } = values[name] ?? dy;
      read[name] = opened.alloc(dtype, shape);
      opened.write(read[name], arrayOf(name, tensor));
    }
    const made = new Map(
      Array.from(results, ([name, { shape }]) => [name, opened.alloc("f32", shape)]),
    );
    await kernel.bind(
      Object.fromEntries(kernel.inputs.map((name) => [name, read[name]!])),
      Object.fromEntries(Array.from(made, ([name, tensor]) => [`${name}'`, tensor])),
    )();
    const all = new Map<string, Float32Array>();
    for (const [name, tensor] of made) all.set(name, await opened.read<Float32Array>(tensor));
    return all;
  } finally {
    opened.close();
  }
}

for (const device of ISOLATE_DEVICES) {
  Deno.test(`every helper on ${device} computes what PyTorch does, and its gradients, within 2e-6`, async () => {
    assert.deepEqual(Object.keys(HELPERS), Object.keys(CASES));
    for (const what of Object.keys(CASES)) {
      const { output, gradients } = CASES[what]!, received = await compute(device, what);
      for (const [name, { data }] of Object.entries({ output, ...gradients })) {
        const error = relativeError(received.get(name)!, data);
        assert.ok(error < 2e-6, `${what}: ${name} differs by ${error}`);
      }
    }
  });
}

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
    const values = initialValues({ name: "w", shape, initializer }, "w", 1), count = values.length;
    const mean = values.reduce((sum, value) => sum + value, 0) / count;
    const square = values.reduce((sum, value) => sum + value ** 2, 0) / count;
    const what = JSON.stringify(initializer);
    assert.ok(Math.abs(mean) < 5 * deviation / Math.sqrt(count), `${what}: mean ${mean}`);
    assert.ok(Math.abs(Math.sqrt(square) / deviation - 1) < 0.03, `${what}: ${Math.sqrt(square)}`);
    if (initializer.kind !== "uniform") continue;
    const { low, high } = initializer;
    assert.ok(values.every((value) => value >= low && value <= high), what);
    assert.ok(Math.max(...values) > 0.99 * high && Math.min(...values) < 0.99 * low, what);
  }
});

Deno.test("uniform first values of a seed and a name stay what they are, piece by piece or at once", () => {
  const initializer = { kind: "uniform", low: -1, high: 3 } as const;
  const draw = (count: number) =>
    initialValues({ name: "w", shape: [count], initializer }, "stays", 1);
  assert.deepEqual([...draw(3)], [...draw(5)].slice(0, 3));
  const wanted = [0.22623539, 2.13641024, -0.80053473];
  draw(3).forEach((value, i) => assert.ok(Math.abs(value - wanted[i]!) < 1e-7, `${value}`));
});

Deno.test("a score of rotary positions depends on the distance of its tokens alone", async () => {
  const g = new LayerGraph(), x = g.input("x", [4, 6]);
  const turned = rotary(g, x, { theta: 10 });
  const device = await openDevice("reference");
  const kernel = await device.compile(
    encodeModel(g, [{ name: "x", value: x }], [{ name: "y", value: turned }]),
  );
  const [from, to] = [device.alloc("f32", [4, 6]), device.alloc("f32", [4, 6])];
  const row = [0.3, -1, 2, 0.5, 1, -0.7];
  device.write(from, Float32Array.from([row, row, row, row].flat()));
  await kernel.bind({ x: from }, { y: to })();
  const rows = await device.read<Float32Array>(to);
  device.close();
  const score = (i: number, j: number) =>
    row.reduce((sum, _, at) => sum + rows[6 * i + at]! * rows[6 * j + at]!, 0);
  for (const distance of [1, 2]) {
    const scores = [0, 1].map((i) => score(i, i + distance));
    assert.ok(Math.abs(scores[0]! - scores[1]!) < 1e-5, `${scores}`);
  }
  assert.ok(Math.abs(score(0, 1) - score(0, 2)) > 0.1);
});
