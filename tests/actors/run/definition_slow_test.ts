/** Definitions of models on devices that compute with ONNX Runtime: training and predictions. */

import assert from "node:assert/strict";
import { accuracy, f1Score } from "../../../kernels/mod.ts";
import { defineModel } from "../../../actors/options/model_definition.ts";
import { loadModel } from "../../../actors/run/load_model.ts";
import { eventsOf, trained } from "../runs.ts";
import { DATA, PLAIN, TABLE } from "./sides.ts";

/** Metrics that are equal on all devices. */
const sizes = { point: 2, side: 2 }, metrics = { accuracy: accuracy("side"), f1: f1Score("side") };
const MODEL = defineModel({ ...PLAIN, metrics });
const HOW = { steps: 4, microBatches: 2, workers: 1, data: DATA };

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
  const { point } = TABLE.inOrder(48)[0]! as { point: Float32Array };
  using reference = await loadModel(MODEL, end.weights, { device: "reference", sizes });
  const expected = await reference.predict({ point }),
    measured = await reference.evaluate(TABLE.inOrder(8));
  for (const [device, tolerance] of [["native", 1e-6], ["wasm", 1e-5]] as const) {
    using model = await loadModel(MODEL, end.weights, { device, sizes });
    const outputs = await model.predict({ point });
    const most = Math.max(...outputs.map((one, i) => Math.abs(one - expected[i]!)));
    assert.ok(most <= tolerance, `${device}: ${most}`);
    const { loss, metrics } = await model.evaluate(TABLE.inOrder(8));
    assert.ok(Math.abs(loss - measured.loss) < tolerance, device);
    assert.deepEqual(metrics, measured.metrics, device);
  }
});

Deno.test("a server answers posted rows with the model's predictions", async () => {
  const { end } = await trained({ ...HOW, model: MODEL, device: "reference", runtime: "local" });
  using model = await loadModel(MODEL, end.weights, { device: "native", sizes });
  await using server = Deno.serve(
    { hostname: "127.0.0.1", port: 0, onListen() {} },
    async (request) => {
      const rows = TABLE.encode(await request.json());
      return Response.json([...await model.predict(rows)]);
    },
  );
  const HERE = { x: 0.5, y: 0 }, url = `http://127.0.0.1:${server.addr.port}/`;
  const ask = async (rows: object[]) =>
    await (await fetch(url, { method: "POST", body: JSON.stringify(rows) })).json();
  const [one, both] = await Promise.all([ask([HERE, HERE]), ask([{ x: -1, y: 2 }, HERE])]);
  assert.equal(both.length, 4);
  assert.deepEqual(
    both.slice(2),
    one.slice(2),
    "requests at the same time do not disturb each other",
  );
});
