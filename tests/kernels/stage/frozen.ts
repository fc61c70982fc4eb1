/** Parameters that are not trained, on any device. */

import assert from "node:assert/strict";
import {
  compileModel,
  type Device,
  type DeviceName,
  gpt2,
  type Model,
  openDevice,
  type StageOptions,
} from "../../../kernels/mod.ts";
import {
  assertSameBits,
  compilingOnce,
  drawTokens,
  drawWeights,
  openStages,
  train,
} from "./stage_runs.ts";
import type { RegisterTest } from "../../devices.ts";

const CONFIG = { layers: 2, hidden: 16, heads: 2, seq: 8, vocab: 32 };
/** Six layers. */
export const MODEL = gpt2(CONFIG, 2);
const BATCHES = drawTokens(4, 2 * CONFIG.seq, CONFIG.vocab);

/** One layer a stage: embedding, two blocks of attention and mlp, head. */
export const STAGES = 6;

/** The whole stages 0, 3 and 4 (block 1), and weights here and there. */
export const isFrozen = (name: string) =>
  /^transformer\.(w.e|h\.1)\.|c_fc\.weight|ln_f\.bias/.test(name);

const WAYS: readonly Partial<StageOptions>[] = [
  { backward: "whole" },
  { backward: "split" },
  { backward: "split", recomputeInterval: 1 },
];

async function trained(device: Device, model: Model, options: Partial<StageOptions>) {
  const program = compileModel(model, "cheap", { frozen: isFrozen });
  const stages = await openStages(device, program, STAGES, options);
  const kind = options.backward === "split" ? "split" : "whole";
  const received = await train(stages, BATCHES, kind);
  for (const stage of stages) await stage.optimize(1, 0.01);
  const states = await Promise.all(stages.map((stage) => stage.save()));
  return { program, received, states };
}

/** Registers the tests of a device. */
export function testFrozen(name: DeviceName, test: RegisterTest = Deno.test): void {
  test(`frozen parameters on ${name} stay as they are and change no other gradient`, async () => {
    const device = compilingOnce(await openDevice(name));
    try {
      const unfrozen = compileModel(MODEL, "cheap");
      const all = await train(await openStages(device, unfrozen, STAGES), BATCHES, "whole");
      const expected = new Map([...all].filter(([key]) => !isFrozen(key)));
      const first = drawWeights(unfrozen);
      for (const options of WAYS) {
        const { received, states } = await trained(device, MODEL, options);
        assertSameBits(received, expected, JSON.stringify(options));
        for (const { weights, moments } of states) {
          for (const [parameter, values] of weights) {
            const wanted = first.get(parameter)!;
            if (isFrozen(parameter)) assert.deepEqual(values, wanted, `${parameter} must stay`);
            else assert.notDeepEqual(values, wanted, `${parameter} must be trained`);
            assert.equal(moments.has(`${parameter}.exp_avg`), !isFrozen(parameter));
          }
        }
      }
    } finally {
      device.close();
    }
  });
}
