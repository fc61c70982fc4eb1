/** Micro-batches that a stage accepts and refuses, and their effects. */

import assert from "node:assert/strict";
import {
  ADAMW_DEFAULTS,
  compileModel,
  gpt2,
  type Layer,
  type LayerGraph,
  llama,
  mlp,
  type Model,
  openReference,
  t5,
} from "../../../kernels/mod.ts";
import { batchCheck } from "../../../kernels/compile/compile_model.ts";
import { openStage } from "../../../kernels/stage/stage.ts";
import { assertRefused } from "../graph/refused.ts";

const TOKENS = { layers: 1, hidden: 8, heads: 2, seq: 4, vocab: 5 };
const CLASSES = mlp({ inputs: 4, hidden: 4, layers: 2, classes: 3 }, 2);

const OPTIONS = { optimizer: ADAMW_DEFAULTS, backward: "whole" } as const;

async function open(model: Model, offload = false) {
  const device = await openReference(), program = compileModel(model, "none");
  return { device, stage: await openStage(device, program, { ...OPTIONS, offload }) };
}

Deno.test("a token or a target outside of the vocabulary is refused, except for a target of -1", async () => {
  const { stage } = await open(gpt2(TOKENS, 1));
  const ids = Int32Array.of(0, 4, 1, -5), targets = Int32Array.of(4, -1, 0, 0);
  await stage.forward(0, undefined, { ids, targets });
  const message = (bad: number) =>
    `Cannot run F: the field "ids" must hold whole numbers from -5 to 4, received ${bad} at position 1`;
  for (const bad of [5, -6, 99_999]) {
    const running = stage.forward(1, undefined, { ids: ids.with(1, bad), targets });
    await assert.rejects(running, { name: "RangeError", message: message(bad) });
  }
  for (const bad of [5, -2]) {
    const running = stage.forward(1, undefined, { ids, targets: targets.with(3, bad) });
    await assert.rejects(running, /"targets" .* from -1 to 4, received (5|-2) at position 3$/);
  }
  assert.equal(stage.liveActivations, 1);
  for (const other of [t5(TOKENS, 1), llama(TOKENS, 1)]) {
    const check = batchCheck(compileModel(other, "none"));
    assert.equal(check({ ids: ids.with(3, 4), targets }), undefined);
    assert.match(check({ ids: ids.with(1, 5), targets })!, /"ids" must .* -5 to 4, received 5/);
    assert.match(check({ ids, targets: targets.with(1, 5) })!, /"targets" .* -1 to 4, received 5/);
  }
  const wide = (g: LayerGraph) => {
    const logits = g.mul(g.batch("x", [2, 3]), g.parameter("w", [3]));
    return g.crossEntropy(logits, g.batch("labels", [2], "i64"));
  };
  const layers = [{ name: "wide", build: wide }];
  const check = batchCheck(compileModel({ name: "wide", layers, predictions: 2 }, "none"));
  const labels = BigInt64Array.of(-1n, 3n);
  assert.match(check({ x: new Float32Array(6), labels })!, /"labels" .* -1 to 2, received 3/);
});

Deno.test("a micro-batch whose F fails is not in flight, and its memory serves the next one", async () => {
  const { stage, device } = await open(CLASSES);
  const fields = { features: new Float32Array(8), labels: Int32Array.of(0, 2) };
  const read = device.read.bind(device);
  device.read = () => Promise.reject(new Error("broken"));
  await assert.rejects(stage.forward(0, undefined, fields), /broken/);
  device.read = read;
  const short = { ...fields, features: new Float32Array(7) };
  await assert.rejects(stage.forward(0, undefined, short), RangeError);
  assert.equal(stage.liveActivations, 0);
  const held = device.allocatedBytes;
  await stage.forward(0, undefined, fields);
  assert.equal(stage.liveActivations, 1);
  assert.equal(device.allocatedBytes, held);
});

const linear = (name: string): Layer => ({
  name,
  build: (g, x) => g.matmul(x ?? g.batch("points", [2, 4]), g.parameter("weight", [4, 4])),
});
const squares: Layer = { name: "squares", build: (g, x) => g.sumOfSquares(x!, [1]) };
const points = Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8);

async function openTiny(offload = false) {
  const layers = [linear("a"), linear("b"), squares];
  const { stage } = await open({ name: "tiny", layers, predictions: 2 }, offload);
  const weight = Float32Array.from({ length: 16 }, (_, i) => (i % 5) / 5);
  const weights = new Map([["a.weight", weight], ["b.weight", weight]]);
  stage.load({ weights, moments: new Map() });
  return { stage, weights };
}

Deno.test("a micro-batch with a missing field, a label that is no class, twice in flight, or without an F is refused", async () => {
  const { stage } = await openTiny(), { stage: classes } = await open(CLASSES);
  const labels = { features: new Float32Array(8), labels: Int32Array.of(0, 3) };
  const refusal = /"labels" .* from -1 to 2, received 3/;
  await assert.rejects(classes.forward(0, undefined, labels), refusal);
  await assert.rejects(stage.forward(0, undefined, {}), /must have the field "points"/);
  await stage.forward(1, undefined, { points });
  const again = stage.forward(1, undefined, { points });
  await assert.rejects(again, /micro-batch 1 must not be in flight/);
  const early = stage.backward(7, "B", undefined, 1);
  await assert.rejects(early, /micro-batch 7 must have had its F/);
  assert.throws(() => stage.drop(7), /micro-batch 7 must have had its F/);
});

Deno.test("activations are held from F to B, or until they are dropped", async () => {
  const { stage } = await openTiny();
  for (let m = 0; m < 3; m++) await stage.forward(m, undefined, { points });
  assert.equal(stage.liveActivations, 3);
  const held = stage.memory.device.activations;
  for (let m = 0; m < 2; m++) await stage.backward(m, "B", undefined, 1);
  stage.drop(2);
  assert.equal(stage.liveActivations, 0);
  await stage.forward(3, undefined, { points });
  assert.equal(stage.liveActivations, 1);
  assert.equal(stage.memory.device.activations, held);
});

Deno.test("a state without a weight or with a wrong length is refused, one of others is not", async () => {
  const { stage, weights } = await openTiny(), moments = new Map<string, Float32Array>();
  const load = (change: readonly (readonly [string, Float32Array])[], own = moments) =>
    stage.load({ weights: new Map([...weights, ...change]), moments: own });
  load([["of another stage", new Float32Array(1)]]);
  const short = new Map([["a.weight.exp_avg", new Float32Array(3)]]);
  const { stage: offloaded } = await openTiny(true), zeros = new Float32Array(16);
  await assertRefused("states", [
    () => stage.load({ weights: new Map([...weights].slice(1)), moments }),
    () => load([["a.weight", new Float32Array(15)]]),
    () => offloaded.load({ weights, moments: short }),
    () => load([], short),
    () => stage.write("c.weight", zeros),
    () => stage.write("a.weight.momentum_buffer", zeros),
    () => stage.rangeOf("c.weight"),
  ]);
  stage.write("b.weight", Float32Array.of(7, 8), 3);
  const ranges = [{ name: "b.weight", from: 3, to: 5 }, { name: "a.weight", from: 0, to: 1 }];
  const read = await stage.read(ranges);
  assert.deepEqual(read, Float32Array.of(7, 8, weights.get("a.weight")![0]!));
});
