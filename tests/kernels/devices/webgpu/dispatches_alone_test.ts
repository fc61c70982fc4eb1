/** The dispatches of a step, counted by the library's own profile. */

import assert from "node:assert/strict";
import { ADAMW_DEFAULTS, compileModel, gpt2 } from "../../../../kernels/mod.ts";
import { openWebgpu } from "../../../../kernels/devices/webgpu/webgpu.ts";
import { openStage } from "../../../../kernels/stage/stage.ts";
import { gpuTest, keepGpuOpen } from "../../../gpu.ts";
import { inFolder, namesIn } from "../../../in_folder.ts";
import { drawTokens, openStages } from "../../stage/stage_runs.ts";

keepGpuOpen();

const MODEL = { layers: 12, hidden: 16, heads: 2, seq: 8, vocab: 32 };

/** Returns the dispatches of a stage from its first step, and the bytes that its last step copied. */
const runSteps = (steps: number) =>
  inFolder(async (folder) => {
    const device = await openWebgpu({ profile: `${folder}/model` });
    const options = { optimizer: ADAMW_DEFAULTS, backward: "whole" } as const;
    const stage = await openStage(device, compileModel(gpt2(MODEL, 2), "none"), options);
    const [batch] = drawTokens(1, 16, 32);
    let before = device.copied;
    for (let step = 1; step <= steps; step++) {
      before = device.copied;
      stage.zeroGradients();
      await stage.forward(0, undefined, batch!);
      await stage.backward(0, "B", undefined, 1);
      await stage.gradientSquares();
      await stage.optimize(step, 1e-3);
    }
    const { toDevice, toHost } = device.copied;
    device.close();
    const files = await namesIn(folder);
    const traces = await Promise.all(files.map((name) => Deno.readTextFile(`${folder}/${name}`)));
    const events: { cat: string }[] = traces.flatMap((trace) => JSON.parse(trace));
    return {
      dispatches: events.filter(({ cat }) => cat === "Api").length,
      copied: [toDevice - before.toDevice, toHost - before.toHost],
    };
  });

gpuTest("a step of 149 parameters takes few dispatches, and copies what it must", async () => {
  const [one, two] = [await runSteps(1), await runSteps(2)];
  const dispatches = two.dispatches - one.dispatches;
  assert.ok(dispatches > 0 && dispatches <= 1439, `${dispatches} dispatches`);
  // Fields of 2 · 16 numbers, the loss' factor and four scalars, twice; two losses and 149 norms.
  assert.deepEqual(two.copied, [4 * (32 + 1 + 8), 4 * (2 + 149)]);
});

/** Returns the losses and norms of steps of two micro-batches, and a weight after them. */
async function trainedBits(capture: boolean) {
  const device = await openWebgpu({ capture });
  const program = compileModel(gpt2({ ...MODEL, layers: 2 }, 2), "none");
  const [stage] = await openStages(device, program, 1);
  const losses = [], batches = drawTokens(2, 16, 32);
  for (let step = 1; step <= 3; step++) {
    stage!.zeroGradients();
    for (const [i, batch] of batches.entries()) {
      losses.push(await stage!.forward(i, undefined, batch));
      await stage!.backward(i, "B", undefined, 1);
    }
    losses.push(await stage!.gradientSquares());
    await stage!.optimize(step, 1e-2);
  }
  const { weights } = await stage!.save();
  const bits = { losses, weight: weights.get("wte.weight") };
  device.close();
  return bits;
}

gpuTest("a run whose commands are captured and replayed has the bits of others", async () => {
  assert.deepEqual(await trainedBits(true), await trainedBits(false));
});
