/** Values of a stage on the GPU that are masks: in a small model, and in a T5. */

import { compileModel, type Layer, type LayerGraph, type Value } from "../../../kernels/mod.ts";
import { IS_DEEP } from "../../depth.ts";
import { gpuTest, keepGpuOpen } from "../../gpu.ts";
import { assertClose, withStage } from "../stage/pytorch.ts";
import { testT5Gradients } from "./trains_as_pytorch.ts";
import { gradientsOf } from "../stage/stage_runs.ts";

keepGpuOpen();

/** Gives a mask of its values. */
function first(g: LayerGraph): Value {
  const x = g.mul(g.batch("x", [2, 3]), g.parameter("weight", [3]));
  g.give("mask", g.greater(x, g.scalar(0)));
  return x;
}

const LAYERS: readonly Layer[] = [
  { name: "first", build: first },
  { name: "second", build: (g, x) => g.exp(x!) },
  { name: "loss", build: (g, x) => g.sum(g.where(g.take("mask"), x!, g.scalar(0)), [1]) },
];

gpuTest("a mask that a layer gives on the GPU is what a later one takes", () => {
  const program = compileModel({ name: "masked", layers: LAYERS, predictions: 2 }, "none");
  const weights = new Map([["first.weight", Float32Array.of(1, 1, 1)]]);
  return withStage("webgpu", program, weights, "whole", async (stage) => {
    const batch = { x: Float32Array.of(1, -1, 0, 2, -2, 3) };
    const { output } = await stage.forward(0, undefined, batch);
    await stage.backward(0, "B", undefined, 1);
    const [e, e2, e3] = [1, 2, 3].map(Math.exp) as [number, number, number];
    const losses = Float32Array.of(e, e2 + e3), slope = Float32Array.of(e + 2 * e2, 0, 3 * e3);
    assertClose(new Map([["losses", output as Float32Array]]), new Map([["losses", losses]]));
    assertClose(await gradientsOf([stage]), new Map([["first.weight", slope]]));
  });
});

if (IS_DEEP) testT5Gradients("webgpu", gpuTest);
