/** Definitions of models on devices that compute with ONNX Runtime: training and predictions. */

import assert from "node:assert/strict";
import { accuracy, Dataset, f1Score, type Layer } from "../../../kernels/mod.ts";
import { defineModel } from "../../../actors/options/model_definition.ts";
import { loadModel } from "../../../actors/run/load_model.ts";
import { eventsOf, trained } from "../runs.ts";

const table = Dataset.of(
  Array.from({ length: 32 }, (_, i) => ({ x: Math.sin(i * i), side: i % 3 })),
  { x: { numbers: ["x"] }, side: { category: "side" } },
);

const layer = (samples: number): Layer => ({
  name: "layer",
  build(g) {
    const x = g.batch("x", [samples, 1]);
    return g.gemm(x, g.parameter("weight", [1, 3]), g.parameter("bias", [3]));
  },
});

const PLAIN = defineModel({
  name: "sides",
  build: ({ microBatch }) => [layer(microBatch)],
  loss: (g, y) => g.crossEntropy(y, g.batch("side", [y.shape[0]!], "i32")),
});
const metrics = { accuracy: accuracy("side"), f1: f1Score("side", 2) };
const MODEL = defineModel({ ...PLAIN, metrics });
const HOW = { steps: 4, microBatches: 2, workers: 1, data: table.batches({ samples: 4 }) };

Deno.test("metrics leave the bits of native runs as they are, in workers too", async () => {
  const local = { ...HOW, device: "native", runtime: "local" } as const;
  const plain = await trained({ ...local, model: PLAIN });
  const own = await trained({ ...local, model: MODEL });
  const apart = await trained({ ...local, model: MODEL, runtime: "workers" });
  assert.deepEqual(own.bits, plain.bits);
  assert.deepEqual(apart.bits, plain.bits);
  const metricsOf = ({ events }: typeof own) =>
    eventsOf(events, "step").map(({ metrics }) => metrics);
  assert.deepEqual(metricsOf(apart), metricsOf(own));
});

Deno.test("predictions of native and wasm are those of the reference", async () => {
  const { end } = await trained({ ...HOW, model: MODEL, device: "reference", runtime: "local" });
  const { x } = table.inOrder(32)[0]! as { x: Float32Array };
  using reference = await loadModel(MODEL, end.weights, { device: "reference" });
  const expected = await reference.predict({ x }),
    measured = await reference.evaluate(table.inOrder(8));
  for (const [device, tolerance] of [["native", 1e-6], ["wasm", 1e-5]] as const) {
    using model = await loadModel(MODEL, end.weights, { device });
    const outputs = await model.predict({ x });
    const most = Math.max(...outputs.map((one, i) => Math.abs(one - expected[i]!)));
    assert.ok(most <= tolerance, `${device}: ${most}`);
    const { loss, metrics } = await model.evaluate(table.inOrder(8));
    assert.ok(Math.abs(loss - measured.loss) < tolerance, device);
    assert.deepEqual(metrics, measured.metrics, device);
  }
});

Deno.test("a server answers posted rows with the model's predictions", async () => {
  const { end } = await trained({ ...HOW, model: MODEL, device: "reference", runtime: "local" });
  using model = await loadModel(MODEL, end.weights, { device: "native" });
  await using server = Deno.serve(
    { hostname: "127.0.0.1", port: 0, onListen() {} },
    async (request) => {
      const rows = table.encode(await request.json());
      return Response.json([...await model.predict(rows)]);
    },
  );
  const url = `http://127.0.0.1:${server.addr.port}/`;
  const ask = async (rows: object[]) =>
    await (await fetch(url, { method: "POST", body: JSON.stringify(rows) })).json();
  const [one, both] = await Promise.all([ask([{ x: 0.5 }]), ask([{ x: -1 }, { x: 0.5 }])]);
  assert.equal(both.length, 6);
  assert.deepEqual(both.slice(3), one, "requests at the same time do not disturb each other");
});
