/** Gradients and losses of an architecture against PyTorch's. */

import assert from "node:assert/strict";
import { type Batch, compileModel, type Model } from "../../../kernels/mod.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";
import { assertClose, withStage } from "../stage/pytorch.ts";

/** What PyTorch was given, and what it computed. */
export interface Fixture {
  readonly model: Model;
  readonly weights: Map<string, Float32Array>;
  /** Of the mean loss of the first step. */
  readonly gradients: Map<string, Float32Array>;
  /** The mean loss of each step. */
  readonly losses: readonly number[];
  /** The micro-batches of each step. */
  readonly steps: readonly (readonly Batch[])[];
  /** AdamW's, with a weight decay of 0.01. */
  readonly learningRate: number;
}

/** What losses of a step are divided by. */
const predictionsOf = ({ predictions }: Model, step: readonly Batch[]): number =>
  step.reduce(
    (sum, batch) => sum + (typeof predictions === "number" ? predictions : predictions(batch)),
    0,
  );

/** Registers the tests of an architecture, on each device that needs no process of its own. */
export function testAgainstPytorch(what: string, load: () => Promise<Fixture>): void {
  for (const device of ISOLATE_DEVICES) {
    Deno.test(`the gradient of every parameter of ${what} on ${device} is PyTorch's within 2e-6`, async () => {
      const { model, weights, gradients, steps: [step] } = await load();
      for (const kind of ["whole", "split"] as const) {
        await withStage(device, compileModel(model, "cheap"), weights, kind, async (stage) => {
          const scale = 1 / predictionsOf(model, step!);
          for (const [m, fields] of step!.entries()) {
            await stage.forward(m, undefined, fields);
            for (const part of kind === "whole" ? ["B"] as const : ["I", "W"] as const) {
              await stage.backward(m, part, undefined, scale);
            }
          }
          assertClose(await stage.gradients(), gradients);
        });
      }
    });

    Deno.test(`steps of AdamW of ${what} on ${device} have PyTorch's losses within 1e-5`, async () => {
      const { model, weights, losses, steps, learningRate } = await load();
      assert.equal(steps.length, losses.length);
      await withStage(device, compileModel(model, "cheap"), weights, "whole", async (stage) => {
        for (const [i, step] of steps.entries()) {
          const predictions = predictionsOf(model, step), wanted = losses[i]!;
          let loss = 0;
          stage.zeroGradients();
          for (const [m, fields] of step.entries()) {
            const { output } = await stage.forward(m, undefined, fields);
            for (const one of output as Float32Array) loss += one / predictions;
            await stage.backward(m, "B", undefined, 1 / predictions);
          }
          const error = Math.abs(loss - wanted) / wanted;
          assert.ok(error < 1e-5, `step ${i + 1}: ${loss}, not ${wanted}`);
          await stage.optimize(i + 1, learningRate);
        }
      });
    });
  }
}
