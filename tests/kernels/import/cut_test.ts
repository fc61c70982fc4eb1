/** Files: values computed before a run, fused nodes, and cuts into layers. */

import assert from "node:assert/strict";
import { cutSteps, layersOf, split } from "../../../kernels/onnx/import_layers.ts";
import { foldFile, fuseNodes, staticInputs } from "../../../kernels/onnx/fold.ts";
import { readOnnx } from "../../../kernels/onnx/read_file.ts";
import { trainablePart } from "../../../kernels/onnx/import_model.ts";
import {
  type Batch,
  compileModel,
  fromOnnx,
  gpt2,
  gpt2Onnx,
  layersOnnx,
  type Model,
  type ModelProgram,
  openReference,
  t5Logits,
  type TensorSpec,
} from "../../../kernels/mod.ts";
import { t5Ties } from "../../../kernels/layers/t5.ts";
import { withAliases } from "../../../kernels/stage/state.ts";
import fc, { forAll } from "../../fast_check.ts";
import {
  goldenLines,
  type GoldenTensor,
  int64,
  numbers,
  onnxModel,
  tensorOf,
  type TestModel,
  type TestNode,
} from "./onnx_model.ts";
import NODES from "./branched.json" with { type: "json" };
import { drawWeights, gradientsOf, openStages } from "../stage/stage_runs.ts";
import { closing } from "../devices/models.ts";

/** The outputs of each layer for the next one and for later ones, without the loss. */
const madeBy = ({ layers, programs }: ModelProgram) =>
  layers.slice(0, -1).map(({ program }) =>
    programs[program]!.outputs.map(({ name, shape }) => `${name} [${shape}]`)
  );

async function gpt(tie: boolean): Promise<Model> {
  const config = { layers: 3, hidden: 16, heads: 2, seq: 8, vocab: 20, tie };
  const weights = drawWeights(compileModel(gpt2(config, 1), "none"));
  const file = gpt2Onnx(config).pieces((name) => weights.get(name));
  const options = { loss: "cross-entropy", dimensions: { batch: 2, sequence: 8 } } as const;
  return fromOnnx(await new Blob([...file]).bytes(), options);
}

Deno.test("a GPT-2 is cut at the ends of its halves of blocks, of which equal ones are one program", async () => {
  const program = compileModel(await gpt(false), "none");
  assert.deepEqual(madeBy(program), Array(7).fill(["x [16,16]"]));
  // Embedding, attention, feed-forward, the last of those with the norm behind it, head.
  assert.equal(program.programs.length, 5);
});

Deno.test("a table that the embedding shares with the head is tied, and there once", async () => {
  const model = await gpt(true), { ties, parameters } = compileModel(model, "none");
  assert.deepEqual(ties, [["transformer.wte.weight", "transformer.wte.weight@7"]]);
  assert.deepEqual(parameters.map(({ name }) => name).sort(), [...model.weights!.keys()].sort());
});

Deno.test("blocks are cut if more layers are requested, and records cross the cuts", async () => {
  const path = new URL("../../fixtures/onnx/resnet_fused/model.onnx", import.meta.url);
  const bytes = await Deno.readFile(path);
  const made = [1, 6].map((layers) => {
    const options = { loss: "cross-entropy", dimensions: { batch: 1 }, layers } as const;
    return madeBy(compileModel(fromOnnx(bytes, options), "none"));
  });
  const block = ["x [1,6,7,7]"], last = ["x [1,12]"];
  const pooled = ["skip./maxpool/MaxPool_output_0 [1,6,7,7]"];
  const record = ["x.value0 [1,12,4,4]", "x.value1 [1,12,4,4]"];
  assert.deepEqual(made, [[block, block, last], [pooled, block, block, record, last]]);
});

Deno.test("the memory of an encoder is sent directly to the layers of the decoder that read it", async () => {
  const config = { layers: 2, hidden: 16, heads: 2, seq: 6, vocab: 12, tie: true };
  const layers = t5Logits(config, 2), ties = t5Ties(config);
  const model = { name: "t5", layers, predictions: 1, ties };
  const weights = drawWeights(compileModel(model, "none", { endsWithLoss: false }));
  const file = layersOnnx(layers, { ties }).pieces((name) => weights.get(name));
  const back = fromOnnx(await new Blob([...file]).bytes(), { loss: "cross-entropy" });
  const program = compileModel(back, "none");
  const skips = program.layers.map((layer) =>
    program.programs[layer.program]!.inputs.filter(({ name }) => name.startsWith("skip."))
  );
  const [memory] = skips.flat() as [TensorSpec];
  const users = skips.flatMap((taken, i) =>
    taken.some(({ name }) => name === memory.name) ? [i] : []
  );
  assert.ok(users.length >= 2 && users.at(-1)! - users[0]! >= 2, `layers ${users}`);
});

const square = (phase: number) => ({ data: numbers([16, 16], phase), shape: [16, 16] });

/** A mask of an input, two branches that are added, and a weight with two readers. */
const BRANCHED = {
  ...NODES,
  initializers: { a: square(0), b: square(1), c: square(2), unused: { data: numbers([3]) } },
} as TestModel;

const BATCH: Batch = {
  ...{ x: numbers([4, 16], 3), keep: Int32Array.of(1, 1, 0, 1), label: numbers([4, 16], 4) },
};

const OPTIONS = { loss: "mse", output: "y" } as const;

/** The losses and gradients of a model on the reference device. */
async function trained(model: Pick<Model, "layers" | "ties">, weights: Model["weights"]) {
  using device = closing(await openReference());
  const program = compileModel({ name: "test", predictions: 1, ...model }, "none");
  const [stage] = await openStages(device, program, 1);
  stage!.load(withAliases({ weights: new Map(weights), moments: new Map() }, program.ties));
  const { output } = await stage!.forward(0, undefined, BATCH);
  await stage!.backward(0, "B", undefined, 1);
  const gradients = new Map<string, number[]>();
  for (const [name, own] of await gradientsOf([stage!])) {
    const whole = name.replace(/@\d+$/, ""), before = gradients.get(whole);
    gradients.set(whole, Array.from(own, (one, i) => one + (before?.[i] ?? 0)));
  }
  return { losses: [...output as Float32Array], gradients };
}

/** Imports the file, cut before some steps. */
function cutAt(at: readonly number[]): Required<Pick<Model, "layers" | "ties">> {
  const { folded, output, loss } = trainablePart(readOnnx(onnxModel(BRANCHED), {}), OPTIONS);
  const { locals } = cutSteps(folded, output);
  const steps = folded.steps.filter((step) => !locals.has(step));
  return layersOf(folded, { layers: split(steps, at), locals }, output, loss.build);
}

Deno.test("a file has the same losses and gradients for any cut", async () => {
  const { weights } = fromOnnx(onnxModel(BRANCHED), OPTIONS);
  assert.deepEqual([...weights!.keys()], ["a", "b", "c"]);
  const whole = await trained(cutAt([]), weights), most = 8;
  const places = fc.uniqueArray(fc.integer({ min: 1, max: most }), { maxLength: most });
  await forAll(30, [places], async (at) => {
    const { losses, gradients } = await trained(cutAt(at.sort((a, b) => a - b)), weights);
    assert.deepEqual(losses, whole.losses);
    for (const [name, want] of whole.gradients) {
      gradients.get(name)!.forEach((one, i) =>
        assert.ok(Math.abs(one - want[i]!) <= 1e-6 * Math.abs(want[i]!) + 1e-6, `${name} ${i}`)
      );
    }
  });
});

Deno.test("micro-batches of another size are cut at the same places, with the same values between layers", () => {
  // A mask costs a larger part of many samples than of one, as a transposed weight costs once.
  const [cast, ...others] = BRANCHED.nodes as [TestNode, ...TestNode[]];
  const mask = { op: "Mul", inputs: ["m0", "m0"], outputs: ["mask"] };
  const nodes = [{ ...cast, outputs: ["m0"] }, mask, ...others];
  const file = onnxModel({ ...BRANCHED, inputs: { x: ["n", 16], keep: ["n", 1] }, nodes });
  const keysOf = (model: Model) => {
    const { layers, programs } = compileModel(model, "none");
    return layers.map(({ program }) =>
      [...programs[program]!.inputs, ...programs[program]!.fields].map(({ name }) => name)
    );
  };
  const of = (n: number) => fromOnnx(file, { ...OPTIONS, dimensions: { n }, layers: 3 });
  assert.deepEqual(keysOf(of(1).withSamples!(64)), keysOf(of(1)));
  assert.notDeepEqual(keysOf(of(64)), keysOf(of(1)));
});

Deno.test("masks of the micro-batch and transposed weights do not cross: each layer computes them", () => {
  const model = { name: "test", predictions: 1, ...cutAt([3, 6]) };
  const { layers, programs } = compileModel(model, "none");
  const read = layers.map(({ program }) => programs[program]!.fields.map(({ name }) => name));
  assert.deepEqual(read, [["keep", "x"], [], ["keep", "label"]].map((names) => names.sort()));
  const crossing = programs.flatMap((program) => program.inputs.map(({ name }) => name));
  assert.deepEqual(crossing, ["x", "skip.h2", "x", "skip.h2"]);
});

Deno.test("dropout of the micro-batch is drawn once, not by each layer that reads its result", () => {
  const dropout = { op: "Dropout", inputs: ["x", "ratio", "training"], outputs: ["some"] };
  const product = { op: "MatMul", inputs: ["some", "a"], outputs: ["y"] };
  const ratio = { data: Float32Array.of(0.25), shape: [] };
  const initializers = { a: square(0), ratio, training: { data: Uint8Array.of(1), shape: [] } };
  const file = onnxModel({
    ...{ inputs: { x: [4, 16] }, initializers, nodes: [dropout, product], outputs: { y: "f32" } },
  });
  const { folded, output } = trainablePart(readOnnx(file, {}), OPTIONS);
  const drawn = folded.steps.find(({ node }) => node.op === "Dropout")!;
  assert.equal(cutSteps(folded, output).locals.has(drawn), false);
});

async function operations(name: string, more: readonly string[] = []) {
  const path = new URL(`../../fixtures/onnx/${name}/model.onnx`, import.meta.url);
  const file = readOnnx(await Deno.readFile(path), {});
  const nodes = fuseNodes({ ...file, outputs: [...file.outputs, ...more] });
  const settings = nodes.filter(({ op }) => op === "LayerNormalization" || op === "Gelu")
    .map(({ op, attributes: { epsilon, approximate } }) => [op, approximate ?? epsilon]);
  const left = nodes.filter(({ op }) => ["ReduceMean", "Sqrt", "Erf", "Pow"].includes(op));
  return { settings, left: left.map(({ op }) => op) };
}

Deno.test("the norms and GELUs of a BERT and of a GPT are fused", async () => {
  const small = Math.fround(1e-12), { settings, left } = await operations("bert");
  const norm = ["LayerNormalization", { float: small }], gelu = ["Gelu", "none"];
  assert.deepEqual([settings, left], [[norm, norm, gelu, norm, norm, gelu, norm], []]);
  const gpt = await operations("gpt"), own = ["LayerNormalization", { float: Math.fround(1e-5) }];
  const tanh = ["Gelu", "tanh"];
  assert.deepEqual(gpt, { settings: [own, own, tanh, own, own, tanh, own], left: [] });
});

Deno.test("nodes whose intermediate values have other readers are not fused", async () => {
  const read = ["/norm/Sqrt_output_0", "/layer.0/Erf_output_0"];
  const { settings, left } = await operations("bert", read);
  assert.deepEqual(settings.map(([op]) => op).length, 5);
  assert.deepEqual(left.toSorted(), ["Erf", "Pow", "ReduceMean", "ReduceMean", "Sqrt"]);
});

/** A file, and its folded form: steps, constants, and the shape of `y`. */
interface Planned {
  readonly what: string;
  readonly nodes: readonly TestNode[];
  readonly initializers: Readonly<Record<string, GoldenTensor>>;
  readonly steps: readonly string[];
  readonly constants: Readonly<Record<string, readonly number[]>>;
  readonly shape: readonly number[];
}

function planned(nodes: readonly TestNode[], initializers: TestModel["initializers"]) {
  const weights = { ...initializers, w: { data: numbers([6]) } }, inputs = { x: ["n", 4, 6] };
  const model = onnxModel({ inputs, initializers: weights, nodes, outputs: { y: "f32" } });
  const file = readOnnx(model, {}), given = staticInputs(file.inputs, { n: 2 });
  return foldFile({ file, inputs: given, isFrozen: () => false });
}

for (const { what, nodes, initializers, ...wanted } of goldenLines<Planned>("plans")) {
  Deno.test(what, () => {
    const given = Object.entries(initializers).map(([name, one]) => [name, tensorOf(one)]);
    const { steps, constants, valueOf } = planned(nodes, Object.fromEntries(given));
    const numbersOf = (name: string) => [name, Array.from(constants.get(name)!.data, Number)];
    const found = {
      steps: steps.map((step) => step.node.op),
      constants: Object.fromEntries(Object.keys(wanted.constants).map(numbersOf)),
    };
    assert.deepEqual({ ...found, shape: valueOf("y")!.shape }, wanted);
  });
}

Deno.test('the largest int64, which means "to the end", is preserved by other operations', () => {
  const { constants, valueOf } = planned([
    { op: "Concat", inputs: ["end", "end"], outputs: ["ends"], attributes: { axis: 0 } },
    { op: "Slice", inputs: ["x", "from", "ends", "axes"], outputs: ["y"] },
  ], { end: { data: BigInt64Array.of(2n ** 63n - 1n) }, from: int64(1, 2), axes: int64(1, 2) });
  assert.deepEqual(valueOf("y")!.shape, [2, 3, 4]);
  for (const end of constants.get("ends")!.data) assert.ok(Number(end) > 2 ** 62, `${end}`);
});
