/** More than two layers with one weight. */

import assert from "node:assert/strict";
import { train, type TrainOptions } from "../../../actors/mod.ts";
import type { Handed, Model, Value } from "../../../kernels/mod.ts";
import { batches, RINGS } from "./own_layers.ts";

/** Three of the five layers have the weight of the second. */
const TIED: Model = {
  ...RINGS,
  ties: [["b.weight", "c.weight"], ["b.weight", "d.weight"]],
};

/** The same as one layer, in which that weight is a parameter that is used three times. */
const JOINED: Model = {
  name: "joined",
  layers: [{
    name: "all",
    prefix: "",
    build(g) {
      const declare = g.parameter.bind(g);
      let x: Handed | undefined, weight: Value | undefined;
      for (const layer of RINGS.layers) {
        g.parameter = (name, shape, initializer) => {
          if (name !== "weight" || !["b", "c", "d"].includes(layer.name)) {
            return declare(`${layer.name}.${name}`, shape, initializer);
          }
          return weight ??= declare("b.weight", shape, initializer);
        };
        x = layer.build(g, x);
      }
      return x as Value;
    },
  }],
  predictions: RINGS.predictions,
};

async function outcome(model: Model, options: Partial<TrainOptions>) {
  const losses: number[] = [], norms: number[] = [];
  for await (
    const event of train({
      model,
      data: batches(),
      steps: 3,
      microBatches: 4,
      learningRate: 0.05,
      device: "native",
      ...options,
    })
  ) {
    if (event.type === "step") losses.push(event.loss), norms.push(event.gradNorm);
    if (event.type === "end") return { losses, norms, weights: event.weights };
  }
  throw new Error("a run must end with an end event");
}

const RUNS: readonly Partial<TrainOptions>[] = [
  { schedule: "1f1b", workers: 4, clip: 0.1 },
  { schedule: "chimera", workers: 2, replicas: 2 },
  { schedule: "zb-v", workers: 2, runtime: "workers" },
  { schedule: "1f1b", workers: 2, precision: "fp16" },
  { schedule: "gpipe", workers: 1 },
];

for (const { runtime = "local", ...options } of RUNS) {
  Deno.test(`three layers with one weight have the bits of the serial run under ${JSON.stringify(options)}`, async () => {
    assert.deepEqual(
      await outcome(TIED, { ...options, runtime }),
      await outcome(TIED, { ...options, runtime: "serial" }),
    );
  });
}

Deno.test("three layers with one weight learn what one layer learns that uses it three times", async () => {
  const tied = await outcome(TIED, { runtime: "serial" });
  const joined = await outcome(JOINED, { runtime: "serial" });
  assert.deepEqual([...tied.weights.keys()].toSorted(), [...joined.weights.keys()].toSorted());
  for (const key of ["losses", "norms"] as const) {
    for (const [i, value] of tied[key].entries()) {
      const error = Math.abs(value / joined[key][i]! - 1);
      assert.ok(error < 1e-5, `${key}, step ${i + 1}: ${error}`);
    }
  }
});
