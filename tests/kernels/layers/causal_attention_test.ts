/** Attention in parts against its definition. */

import assert from "node:assert/strict";
import { Graph, openReference, type Value } from "../../../kernels/mod.ts";
import { addGradients } from "../../../kernels/graph/autodiff.ts";
import { causalAttention, causalMask } from "../../../kernels/layers/causal_attention.ts";
import { modelOf, numbersOf, pseudoRandom, tensorOf } from "../devices/models.ts";

type Attention = (g: Graph, q: Value, k: Value, v: Value) => Value;

const byDefinition: Attention = (g, q, k, v) => {
  const [, , seq, width] = q.shape as [number, number, number, number];
  const scores = g.matmul(q, k, { transB: true, alpha: 1 / Math.sqrt(width) });
  const mask = g.constant(causalMask(seq), [seq, seq]);
  return g.matmul(g.softmax(g.add(scores, mask)), v);
};

/** The result and the gradients of queries, keys and values, and how many scores are computed. */
async function compute(attention: Attention, seq: number) {
  const g = new Graph(), shape = [1, 2, seq, 3], device = await openReference();
  const given = ["q", "k", "v"].map((name) => g.input(name, shape)) as [Value, Value, Value];
  const y = attention(g, ...given), dy = g.input("dy", shape);
  const scores = g.nodes.filter(({ op }) => op === "Softmax")
    .reduce((sum, { outputs: [{ shape } = y] }) => sum + shape.reduce((a, b) => a * b), 0);
  const [dq, dk, dv] = addGradients(g, [[y, dy]], given);
  const kernel = await device.compile(modelOf(g, { y, dq: dq!, dk: dk!, dv: dv! }));
  const count = 6 * seq;
  const inputs = Object.fromEntries(
    kernel.inputs.map((name, i) => [name, tensorOf(device, shape, pseudoRandom(i, count))]),
  );
  const outputs = Object.fromEntries(
    kernel.outputs.map((name) => [name, device.alloc("f32", shape)]),
  );
  await kernel.bind(inputs, outputs)();
  const values = await Promise.all(
    Object.values(outputs).map((tensor) => numbersOf(device, tensor)),
  );
  device.close();
  return { values: values.flat(), scores: scores / (2 * seq * seq) };
}

Deno.test("attention in parts is that of the definition, with its gradients, and computes fewer scores", async () => {
  for (
    const [seq, share] of [[256, 3 / 4], [300, 2 / 3], [384, 2 / 3], [129, 1], [131, 1]] as const
  ) {
    const [whole, parts] = [
      await compute(byDefinition, seq),
      await compute((g, q, k, v) => causalAttention(g, q, [k], [v]), seq),
    ];
    assert.equal(whole.scores, 1);
    assert.ok(Math.abs(parts.scores - share) < 1e-9, `T = ${seq}: ${parts.scores}`);
    whole.values.forEach((value, i) => {
      const distance = Math.abs(value - parts.values[i]!) / Math.max(1, Math.abs(value));
      assert.ok(distance < 2e-6, `T = ${seq}, ${i}: ${parts.values[i]} is not ${value}`);
    });
  }
});
