/** Parameters that are not trained, and layers and stages that have none. */

import assert from "node:assert/strict";
import {
  compileModel,
  cutIntoStages,
  type Layer,
  type Model,
  openReference,
  type StageOptions,
} from "../../../kernels/mod.ts";
import { assertSameBits, drawWeights, openStages, train } from "./stage_runs.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";
import { isFrozen, MODEL, STAGES, testFrozen } from "./frozen.ts";

for (const name of ISOLATE_DEVICES) testFrozen(name);

Deno.test("frozen weights that are stored in FP16 are given back as they were", async () => {
  const device = await openReference();
  const program = compileModel(MODEL, "none", { frozen: isFrozen, precision: "fp16" });
  const first = drawWeights(program);
  for (const stage of await openStages(device, program, STAGES)) {
    for (const [name, values] of (await stage.save()).weights) {
      if (isFrozen(name)) assert.deepEqual(values, first.get(name), name);
    }
  }
  device.close();
});

Deno.test("a model lists its frozen parameters with the others, and says which they are", () => {
  const { parameters } = compileModel(MODEL, "none", { frozen: isFrozen });
  assert.deepEqual(
    parameters.map(({ name }) => name),
    compileModel(MODEL, "none").parameters.map(({ name }) => name),
  );
  for (const { name, isFrozen: flag } of parameters) assert.equal(flag, isFrozen(name), name);
});

Deno.test("a frozen stage has no memory for gradients and moments, and no kernel for W", async () => {
  const program = compileModel(MODEL, "none", { frozen: () => true });
  for (const { programs } of cutIntoStages(program, STAGES)) {
    assert.ok(programs.every(({ models }) => models.weight === undefined));
  }
  const device = await openReference();
  const [whole] = await openStages(device, program, 1, { backward: "never" });
  const { weights, moments } = await whole!.save();
  const bytes = [...weights.values()].reduce((sum, { byteLength }) => sum + byteLength, 0);
  assert.equal(moments.size, 0);
  assert.equal(whole!.buckets.length, 0);
  assert.deepEqual(await whole!.gradientSquares(), new Map());
  // The losses of two samples, the loss scale, and the scalars of AdamW for two sorts of tensors.
  assert.equal(device.allocatedBytes, bytes + 64 + 4 + 2 * 4 * 4);
  device.close();
});

Deno.test("a frozen parameter of a layer need not reach the output", () => {
  const layer: Layer = {
    name: "lazy",
    build(g) {
      g.parameter("unused", [3]);
      return g.sum(g.batch("x", [2, 3]), [1]);
    },
  };
  const model = { name: "lazy", layers: [layer], predictions: 2 };
  assert.throws(() => compileModel(model, "none"), /received "unused" unused/);
  const { programs } = compileModel(model, "none", { frozen: () => true });
  assert.equal(programs[0]!.models.backward, undefined);
});

for (const backward of ["whole", "split"] as const) {
  Deno.test(`stages without parameters pass gradients on, ${backward} backward`, async () => {
    const dense = (name: string, shape: readonly [number, number]): Layer => ({
      name,
      build: (g, x) => g.tanh(g.matmul(x!, g.parameter("w", shape))),
    });
    const reshape = (name: string, shape: readonly number[]): Layer => ({
      name,
      build: (g, x) => g.reshape(x!, shape),
    });
    const layers: Layer[] = [
      { name: "input", build: (g) => g.batch("x", [4, 6]) },
      dense("a", [6, 6]),
      reshape("wide", [2, 12]),
      reshape("same", [2, 12]),
      dense("b", [12, 3]),
      { name: "loss", build: (g, x) => g.sumOfSquares(x!, [1]) },
    ];
    const batches = Array.from({ length: 3 }, (_, m) => ({
      x: Float32Array.from({ length: 24 }, (_, i) => Math.sin(i + m)),
    }));
    const device = await openReference();
    try {
      const run = async (model: Model, stages: number, options: Partial<StageOptions>) => {
        const opened = await openStages(device, compileModel(model, "none"), stages, options);
        return await train(opened, batches, options.backward === "split" ? "split" : "whole");
      };
      // The same numbers from one layer that does it all.
      const one: Layer = {
        name: "one",
        prefix: "",
        build(g) {
          const x = g.batch("x", [4, 6]);
          const first = g.tanh(g.matmul(x, g.parameter("a.w", [6, 6])));
          const second = g.tanh(g.matmul(g.reshape(first, [2, 12]), g.parameter("b.w", [12, 3])));
          return g.sumOfSquares(second, [1]);
        },
      };
      const expected = await run({ name: "m", layers: [one], predictions: 2 }, 1, {});
      const model = { name: "m", layers, predictions: 2 };
      for (const recompute of [{}, { recomputeInterval: 2 }]) {
        for (const stages of [1, 3, 6]) {
          const received = await run(model, stages, { backward, ...recompute });
          assertSameBits(received, expected, `${stages} stages`);
        }
      }
    } finally {
      device.close();
    }
  });
}

Deno.test("integers may pass between layers, where no gradient flows", async () => {
  const layers: Layer[] = [
    { name: "ids", build: (g) => g.reshape(g.batch("ids", [2, 3], "i32"), [6]) },
    { name: "same", build: (g, x) => g.reshape(x!, [6]) },
    { name: "table", build: (g, x) => g.gather(g.parameter("w", [5, 4]), x!) },
    { name: "loss", build: (g, x) => g.sumOfSquares(g.reshape(x!, [2, 12]), [1]) },
  ];
  const device = await openReference();
  try {
    const program = compileModel({ name: "m", layers, predictions: 2 }, "none");
    for (const backward of ["whole", "split"] as const) {
      const stages = await openStages(device, program, 1, { backward });
      const results = await train(stages, [{ ids: Int32Array.of(0, 1, 1, 4, 0, 0) }], backward);
      const weights = drawWeights(program).get("table.w")!, uses = [3, 2, 0, 0, 1];
      const expected = weights.map((w, i) => 2 * w * uses[Math.floor(i / 4)]!);
      const gradient = results.get("table.w")!;
      assert.ok(gradient.every((d, i) => Math.abs(d - expected[i]!) < 1e-7), `${gradient}`);
    }
  } finally {
    device.close();
  }
});
