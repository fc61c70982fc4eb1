/** Compilation of layers: valid results, given and taken values, and parameters; errors name the layer. */

import assert from "node:assert/strict";
import { fromBinary } from "@bufbuild/protobuf";
import {
  type AnyLayer,
  compileModel,
  gpt2,
  type Layer,
  LayerGraph,
  type Tie,
  type Value,
} from "../../../kernels/mod.ts";
import { openLayer } from "../../../kernels/compile/compile_layer.ts";
import { decoderBlocks } from "../../../kernels/layers/decoder.ts";
import { modelFields } from "../../../kernels/layers/layer.ts";
import { partition, startsOf } from "../../../kernels/compile/layout.ts";
import { elementCount } from "../../../kernels/graph/shapes.ts";
import { lowerModel, valueTypes } from "../../../kernels/onnx/lower.ts";
import { ModelProtoSchema } from "../../../kernels/onnx/onnx_pb.ts";
import { assertRefused } from "../graph/refused.ts";

const WIDTH = 4;

const start = (name: string, ...given: readonly string[]): Layer => ({
  name,
  build(g) {
    const x = g.mul(g.batch("x", [2, WIDTH]), g.parameter("weight", [WIDTH]));
    for (const one of given) g.give(one, x);
    return x;
  },
});

const layer = (name: string, { takes = [], gives = [] }: {
  readonly takes?: readonly string[];
  readonly gives?: readonly string[];
} = {}): Layer => ({
  name,
  build(g, x) {
    let h = g.mul(x!, g.parameter("weight", [WIDTH]));
    for (const one of takes) h = g.add(h, g.take(one));
    for (const one of gives) g.give(one, h);
    return h;
  },
});

const build = (name: string, build: AnyLayer["build"]): AnyLayer => ({ name, build });
/** A layer after a layer that gives nothing. */
const second = (make: (g: LayerGraph, x: Value) => unknown): AnyLayer[] => [
  start("first"),
  build("second", make as AnyLayer["build"]),
];
const record = build("record", (g, x) => {
  g.give("also", x as Value);
  return { h: x as Value, mask: g.greater(x as Value, g.scalar(0)) };
});
type Masked = { h: Value; mask: Value };
const foreign = new LayerGraph().constant(Float32Array.of(1), [1]);
const loss = build("loss", (g, x) => g.sum(x as Value, [1]));

/** A trained head behind what a layer makes of its input, and the loss. */
const behind = (make: (g: LayerGraph, x: Value) => Value): AnyLayer[] => [
  build("head", (g, x) => g.mul(make(g, x as Value), g.parameter("weight", [WIDTH]))),
  loss,
];

const compile = (...layers: AnyLayer[]) =>
  compileModel({ name: "own", layers, predictions: 2 }, "none", {
    endsWithLoss: layers.at(-1) === loss,
  });

/** Layers that cannot be built. */
const BAD_BUILDS: readonly AnyLayer[][] = [
  ...[
    (g: LayerGraph, x: Value) => g.gemm(x, g.parameter("w", [5, 2])),
    (g: LayerGraph, x: Value) => g.add(x, g.parameter("bias", [2])),
    (g: LayerGraph, x: Value) => g.add(x, foreign),
    () => foreign,
    (g: LayerGraph, x: Value) => (g.give("q", foreign), x),
    (g: LayerGraph, x: Value) => (g.give("q", 3 as never), x),
    (g: LayerGraph, x: Value) => (g.give("a\0", x), x),
    (_: LayerGraph, x: Value) => ({ "\ud800": x }),
  ].map(second),
  ...[undefined, 7, null, [], Promise.resolve(), new Map(), { h: 1 }].map((returned) =>
    second(() => returned)
  ),
  second(() => {
    throw "by hand";
  }),
  [build("dense", (g, x) => g.relu(x as Value))],
];

Deno.test("a layer that cannot be built is named, in an error of the same class", async () => {
  const refusedBy = (call: (layers: AnyLayer[]) => unknown) =>
    BAD_BUILDS.map((layers, i) => [`layer ${i + 1}`, () => call(layers)] as const);
  await assertRefused("layers", refusedBy((layers) => compile(...layers)));
  await assertRefused("layers", refusedBy((layers) => modelFields({ layers })));
});

const first = start("first"), taker = layer("user", { takes: ["z"] });

/** A layer that does not read its input. */
const other = build("other", (g) => g.mul(g.batch("y", [2, WIDTH]), g.parameter("own", [WIDTH])));

/** Layers that can be built and not be compiled. */
const BAD_MODELS: Readonly<Record<string, AnyLayer[]>> = {
  "neither a value nor something given": second(() => ({})),
  "given twice": [start("first", "memory"), layer("second", { gives: ["memory"] }), loss],
  "given to none": [start("first", "memory"), loss],
  "given by none": [start("first", "a", "b"), layer("user", { takes: ["a", "b", "c"] }), loss],
  "given too late": [first, taker, layer("b"), layer("maker", { gives: ["z"] }), loss],
  "handed on and not used": [first, record, build("half", (_, x) => (x as Masked).h), loss],
  "taken and not used": [
    first,
    record,
    build("idle", (g, x) => {
      g.take("also");
      return g.where((x as Masked).mask, (x as Masked).h, g.scalar(0));
    }),
    loss,
  ],
  "a parameter that is not used": second((g, x) => (g.parameter("unused", [3]), g.exp(x))),
  "no gradient": second((g, x) => g.node("Hardmax", [x], [x.shape])[0]!),
  "a name twice": [first, layer("a"), layer("a"), loss],
  "rounded in between": [first, ...behind((g, x) => g.round(x))],
  "rounded two layers later": [first, layer("a"), ...behind((g, x) => g.mul(g.floor(x), 2))],
  "compared in between": [first, ...behind((g, x) => g.cast(g.greater(x, 0), "f32"))],
  "handed on as whole numbers": [
    first,
    build("whole", (g, x) => g.cast(x as Value, "i32")),
    ...behind((g, x) => g.cast(x, "f32")),
  ],
  "the place of the largest": [first, ...behind((g, x) => g.cast(g.argMax(x, 1), "f32"))],
  "cut in its own layer": second((g, x) => g.add(x, g.sign(g.parameter("p", [WIDTH])))),
  "cut on its way by name": [
    start("first", "early"),
    other,
    build("user", (g, x) => g.add(x as Value, g.ceil(g.take("early")))),
    loss,
  ],
  "not read by the next layer": [first, other, loss],
  "stopped on one of two ways": [first, ...behind((g, x) => g.add(g.stopGradient(x), g.round(x)))],
};

/** Names of the parameters that are not trained. */
const frozenOf = (layers: AnyLayer[], frozen?: (name: string) => boolean, ties: Tie[] = []) =>
  compileModel({ name: "own", layers, predictions: 2, ties }, "none", { frozen })
    .parameters.filter(({ isFrozen }) => isFrozen).map(({ name }) => name);

Deno.test("a parameter before a stopped gradient is frozen, and no other one", () => {
  const stop = (make: (g: LayerGraph, x: Value) => Value) => [first, layer("a"), ...behind(make)];
  const both = ["first.weight", "a.weight"];
  assert.deepEqual(frozenOf(stop((g, x) => g.stopGradient(x))), both);
  assert.deepEqual(frozenOf(stop((g, x) => g.round(g.stopGradient(x)))), both);
  assert.deepEqual(frozenOf(stop((g, x) => g.stopGradient(g.cast(g.less(x, 1), "f32")))), both);
  const through = (g: LayerGraph, x: Value) => g.add(x, g.stopGradient(g.sub(g.round(x), x)));
  assert.deepEqual(frozenOf(stop(through)), []);
  assert.deepEqual(frozenOf(stop((g, x) => g.round(x)), (name) => both.includes(name)), both);
  const byName = [start("first", "early"), other, layer("user", { takes: ["early"] }), loss];
  assert.deepEqual(frozenOf(byName), []);
  const own = second((g, x) => g.add(x, g.stopGradient(g.parameter("p", [WIDTH]))));
  assert.deepEqual(frozenOf([...own, loss]), ["second.p"]);
  // A parameter that is tied to a trained parameter is trained too.
  const tied = [first, layer("a"), ...behind((g, x) => g.mul(g.stopGradient(x), 2))];
  assert.deepEqual(frozenOf(tied, undefined, [["first.weight", "head.weight"]]), ["a.weight"]);
});

/** Layers that differ in one thing; the first two are equal. */
const ALIKE: readonly ((g: LayerGraph, x: Value) => Value)[] = [
  (g, x) => g.mul(x, 2),
  (g, x) => g.mul(x, 2),
  (g, x) => g.mul(x, 3),
  (g, x) => g.mul(x, g.constant(new Float32Array(WIDTH).fill(2), [WIDTH])),
  (g, x) => g.mul(x, g.constant(new Float32Array(WIDTH).fill(-2), [WIDTH])),
  (g, x) => g.mul(2, x),
  (g, x) => g.mul(g.stopGradient(x), 2),
  (g, x) => g.mul(g.node("Identity", [x], [x.shape])[0]!, 2),
  (g, x) => g.mul(x, g.batch("y", [WIDTH])),
  (g, x) => g.mul(x, g.batch("z", [WIDTH])),
  (g, x) => g.dropout(x, 0.1),
  (g, x) => g.dropout(x, 0.2),
  ...[0, -0, 0.5, Infinity, -Infinity].map((alpha) => (g: LayerGraph, x: Value) =>
    g.leakyRelu(x, alpha)
  ),
  ...[0, 1].map((value) => (g: LayerGraph, x: Value) =>
    g.mul(x, g.parameter("own", [WIDTH], { kind: "constant", value }))
  ),
  (g, x) => (g.give("early", x), g.mul(x, 2)),
  (g, x) => g.mul(g.add(x, g.take("early")), 2),
];

Deno.test("layers share a program if they differ in nothing, and only then", () => {
  const layers = ALIKE.map((make, i) =>
    build(`layer ${i}`, (g, x) => g.mul(make(g, x as Value), g.parameter("weight", [WIDTH])))
  );
  const { programs, layers: [_, ...all] } = compile(first, ...layers, loss);
  const shared = all.slice(0, -1).map(({ program }) => program);
  assert.equal(shared[0], shared[1]);
  assert.equal(new Set(shared).size, ALIKE.length - 1);
  assert.equal(programs.length, ALIKE.length + 1);
});

Deno.test("layers that do not fit together are refused by name", () =>
  assertRefused(
    "models_of_layers",
    Object.entries(BAD_MODELS).map(([what, layers]) => [what, () => compile(...layers)] as const),
  ));

Deno.test("a last layer that returns no loss for each sample is refused", async () => {
  const x = { name: "x", dtype: "f32", shape: [2, WIDTH], hasGradient: true } as const;
  const options = { isLoss: true, recompute: "none" } as const;
  await assertRefused(
    "losses_of_layers",
    [layer("last"), record].map((last) => [last.name, () => openLayer(last, [x], options)]),
  );
});

Deno.test("parameters that are too large, alone or together, are refused", () => {
  const most = (elementsMax: number) => () =>
    compileModel(gpt2({ layers: 1, hidden: 8, heads: 1, seq: 4, vocab: 10 }, 1), "none", {
      elementsMax,
    });
  assert.throws(most(79), /"transformer.wte.weight": it must have at most 79 elements/);
  const { parameters } = most(Infinity)();
  const all = parameters.reduce((sum, { shape }) => sum + elementCount(shape), 0);
  most(all)();
  assert.throws(most(all - 1), /must be at most \d+ numbers, received more up to "lm_head.weight"/);
});

Deno.test("equal layers that take the same value share a program, except the last one", () => {
  const takes = ["memory"];
  const users = [1, 2, 3, 4].map((n) => layer(`user ${n}`, { takes }));
  const { programs } = compile(start("first", "memory"), ...users, loss);
  assert.equal(programs.length, 4);
  const kinds = programs.map((program) =>
    program.inputs.find(({ name }) => name === "skip.memory")?.gradient
  );
  assert.deepEqual(kinds, [undefined, "added", "written", undefined]);
});

Deno.test("the blocks of a decoder are built once, if none has frozen weights", () => {
  const isFrozen = (name: string) => name === "h.1.w";
  for (const [frozen, builds] of [[undefined, 2], [isFrozen, 6]] as const) {
    let built = 0;
    const half = (name: string) => (g: LayerGraph, x: Value) => {
      built++;
      return g.mul(x, g.parameter(name, [WIDTH]));
    };
    const layers = [start("first"), ...decoderBlocks(3, "h.", half("v"), half("w")), loss];
    compileModel({ name: "blocks", layers, predictions: 2 }, "none", { frozen });
    assert.equal(built, builds);
  }
});

Deno.test("of cuts with equal costs, the one with fewer named values sent is chosen", () => {
  const wide = (name: string, own: { takes?: string[]; gives?: string[] }): Layer => {
    const { build } = layer(name, own);
    return { name, build: (g, x) => g.gemm(build(g, x), g.parameter("square", [WIDTH, WIDTH])) };
  };
  const layers = [wide("a", { gives: ["near"] }), wide("b", { takes: ["near"] }), wide("c", {})];
  const program = compile(start("first"), ...layers, loss);
  assert.deepEqual(partition(program.costs, 2), [0, 2]);
  assert.deepEqual(startsOf(program, 2), [0, 3]);
});

Deno.test("beside the logits that F saves no value is a quarter as large, in any model", () => {
  const [rows, vocab] = [64, 2 ** 17], logits = rows * vocab;
  const model = gpt2({ layers: 1, hidden: 8, heads: 2, seq: rows, vocab }, 1);
  const { saved, models, overwrites } = compileModel(model, "none").programs.at(-1)!;
  /** Elements of the largest value that a model computes on its way. */
  const largest = (bytes: Uint8Array) => {
    const { graph } = fromBinary(ModelProtoSchema, lowerModel(bytes));
    const outputs = new Set(graph!.output.map(({ name }) => name));
    const types = valueTypes(graph!);
    const between = graph!.node.flatMap(({ output }) => output).filter((name) =>
      !outputs.has(name)
    );
    return Math.max(0, ...between.map((name) => elementCount(types.get(name)?.shape ?? [logits])));
  };
  assert.ok(saved.some(({ shape }) => elementCount(shape) === logits));
  assert.equal(overwrites!.length, 2);
  const all = [...Object.values(models), ...overwrites!.map(({ model }) => model)];
  for (const one of all) assert.ok(largest(one) <= logits / 8, `${largest(one)} of ${logits}`);
});
