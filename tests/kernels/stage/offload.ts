/** Offload, on any device: the bits of a stage that keeps its state there. */

import {
  ADAMW_DEFAULTS,
  compileModel,
  type Device,
  type DeviceName,
  gpt2,
  openDevice,
  type OptimizerOptions,
  type Precision,
  type StageOptions,
} from "../../../kernels/mod.ts";
import { assertSameBits, compilingOnce, drawTokens, openStages, train } from "./stage_runs.ts";
import type { RegisterTest } from "../../devices.ts";

/** Three layers. */
export const CONFIG = { layers: 1, hidden: 16, heads: 2, seq: 8, vocab: 32 };
const STEPS = 3;
const OPTIMIZERS: readonly OptimizerOptions[] = [
  ADAMW_DEFAULTS,
  { kind: "sgd", momentum: 0.9, weightDecay: 0.1 },
];

/** Losses, gradients, weights and moments of some steps, from and to a saved state. */
async function trained(device: Device, precision: Precision, options: Partial<StageOptions>) {
  const model = compileModel(gpt2(CONFIG, 2), "none", { precision });
  const results = new Map<string, Float32Array>();
  let [stage] = await openStages(device, model, 1, options);
  for (let step = 1; step <= STEPS; step++) {
    stage!.zeroGradients();
    const batches = drawTokens(2, 2 * CONFIG.seq, CONFIG.vocab);
    for (const [key, values] of await train([stage!], batches, "whole")) {
      results.set(`${step} ${key}`, values);
    }
    await stage!.optimize(step, 0.01, 0.5);
    if (step > 1) continue;
    const state = await stage!.save();
    [stage] = await openStages(device, model, 1, options);
    stage!.load(state);
  }
  const { weights, moments } = await stage!.save();
  return new Map([...results, ...weights, ...moments]);
}

/** Registers the test of a device in one precision. */
export function testOffload(
  name: DeviceName,
  precision: Precision,
  test: RegisterTest = Deno.test,
): void {
  test(`an offloaded ${precision} stage on ${name} has the bits of one that is not`, async () => {
    const device = compilingOnce(await openDevice(name));
    try {
      for (const optimizer of name === "reference" ? OPTIMIZERS.slice(0, 1) : OPTIMIZERS) {
        const expected = await trained(device, precision, { optimizer });
        // 1000 is no divisor of the stage: its last buckets are shorter than the others.
        for (const options of [{ offload: true, bucketSize: 1000 }, { offload: true }]) {
          const received = await trained(device, precision, { ...options, optimizer });
          assertSameBits(received, expected, `${optimizer.kind}, ${JSON.stringify(options)}`);
        }
      }
    } finally {
      device.close();
    }
  });
}
