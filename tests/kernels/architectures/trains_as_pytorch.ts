/** Gradients and losses of architectures against PyTorch's. */

import assert from "node:assert/strict";
import {
  type Batch,
  compileModel,
  type DeviceName,
  type Model,
  type Recompute,
  RECOMPUTE_POLICIES,
} from "../../../kernels/mod.ts";
import { countTargets } from "../../../kernels/batch.ts";
import type { Stage } from "../../../kernels/stage/stage.ts";
import { withAliases } from "../../../kernels/stage/state.ts";
import { IS_DEEP } from "../../depth.ts";
import { ISOLATE_DEVICES, type RegisterTest } from "../../devices.ts";
import { assertClose, withStage } from "../stage/pytorch.ts";
import { readT5, T5_VERSIONS } from "./t5_fixture.ts";
import { gradientsOf } from "../stage/stage_runs.ts";

/** Inputs of PyTorch and its results. */
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

/** The micro-batches of each step, of those of all. */
export const inSteps = (batches: readonly Batch[], steps: number, microBatches: number) =>
  Array.from({ length: steps }, (_, i) => batches.slice(i * microBatches, (i + 1) * microBatches));

type Kind = "whole" | "split";

/** Computes the gradients of a step; its mean loss. */
async function accumulate(stage: Stage, step: readonly Batch[], predictions: number, kind: Kind) {
  let loss = 0;
  for (const [m, fields] of step.entries()) {
    const { output } = await stage.forward(m, undefined, fields);
    for (const one of output as Float32Array) loss += one / predictions;
    for (const part of kind === "whole" ? ["B"] as const : ["I", "W"] as const) {
      await stage.backward(m, part, undefined, 1 / predictions);
    }
  }
  return loss;
}

/** The judge, to which other tests hold the rest operation by operation, is slow. */
export const DEVICES = ISOLATE_DEVICES.filter((device) => IS_DEEP || device !== "reference");

/** Registers the tests of an architecture, on devices that need no process. */
export function testAgainstPytorch(what: string, load: () => Promise<Fixture>): void {
  for (const device of DEVICES) {
    const isAll = IS_DEEP || device === "native";
    Deno.test(`gradients of ${what} on ${device} are PyTorch's within 2e-6, and losses of AdamW within 1e-5`, async () => {
      const { model, weights, gradients, losses, steps, learningRate } = await load();
      assert.equal(steps.length, losses.length);
      const program = compileModel(model, "cheap"), { predictions } = model;
      const predictionsOf = (step: readonly Batch[]) =>
        step.reduce((sum, one) => sum + (+predictions || (predictions as CountOf)(one)), 0);
      for (const kind of isAll ? ["whole", "split"] as const : ["split"] as const) {
        // All devices have the same optimizer steps, of which others test more.
        const some = isAll && kind === "whole" ? steps : steps.slice(0, 2);
        await withStage(device, program, weights, kind, async (stage) => {
          for (const [i, step] of some.entries()) {
            stage.zeroGradients();
            const loss = await accumulate(stage, step, predictionsOf(step), kind);
            if (i === 0) assertClose(await gradientsOf([stage]), gradients);
            const wanted = losses[i]!, error = Math.abs(loss - wanted) / wanted;
            assert.ok(error < 1e-5, `step ${i + 1}: ${loss}, not ${wanted}`);
            await stage.optimize(i + 1, learningRate);
          }
        });
      }
    });
  }
}

type CountOf = (batch: Batch) => number;

/** The gradient of a tied parameter is that of all that hold it. */
function joinTies(gradients: Map<string, Float32Array>, { ties = [] }: Model): void {
  for (const [canonical, alias] of ties) {
    const sum = gradients.get(canonical)!, own = gradients.get(alias)!;
    own.forEach((value, i) => sum[i]! += value);
    gradients.delete(alias);
  }
}

type Version = typeof T5_VERSIONS[number];

/** The versions, and what of them is computed again. */
const runsOn = (device: DeviceName): readonly (readonly [Version, readonly Recompute[]])[] =>
  IS_DEEP
    ? T5_VERSIONS.map((version) => [version, RECOMPUTE_POLICIES])
    : device === "native"
    ? [["v1_0", ["none"]], ["v1_1", ["cheap", "full"]]]
    : [["v1_1", ["cheap"]]];

/** Registers the tests of a device that it computes the gradients of T5 that PyTorch does. */
export function testT5Gradients(device: DeviceName, test: RegisterTest = Deno.test): void {
  for (const [version, policies] of runsOn(device)) {
    test(`the gradient of every parameter of T5 ${version} on ${device} is PyTorch's within 2e-6, whatever is computed again`, async () => {
      const { model, weights, gradients, batches, microBatches } = await readT5(version);
      const step = batches.slice(0, microBatches);
      const { weights: own } = withAliases({ weights, moments: new Map() }, model.ties!);
      const predictions = step.reduce((sum, batch) => sum + countTargets(batch, "targets"), 0);
      for (const recompute of policies) {
        const kind = recompute === "none" ? "whole" : "split";
        const program = compileModel(model, recompute);
        await withStage(device, program, new Map(own), kind, async (stage) => {
          await accumulate(stage, step, predictions, kind);
          const received = await gradientsOf([stage]);
          joinTies(received, model);
          assertClose(received, gradients);
        });
      }
    });
  }
}
