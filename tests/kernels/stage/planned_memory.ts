/**
 * What a stage holds is what was planned, on any device.
 *
 * @module
 */

import assert from "node:assert/strict";
import {
  ADAMW_DEFAULTS,
  compileModel,
  cutIntoStages,
  type Device,
  gpt2,
  type ModelProgram,
  openDevice,
  type OptimizerOptions,
  planMemory,
  type Recompute,
  type Stage,
  type StageOptions,
  totalBytes,
} from "../../../kernels/mod.ts";
import type { RegisterTest } from "../../devices.ts";
import { backward, drawTokens, forward, openStages } from "./stage_runs.ts";

/** Sizes of the GPT whose stages are counted, in micro-batches of two samples. */
export const COUNTED = { layers: 2, hidden: 32, heads: 2, seq: 8, vocab: 64 };

const BATCHES = drawTokens(3, 2 * COUNTED.seq, COUNTED.vocab);

/** Two micro-batches in flight, a step, and a third micro-batch. */
async function run(stages: readonly Stage[], kinds: readonly ("B" | "I" | "W")[]): Promise<void> {
  for (const m of [0, 1]) await forward(stages, m, BATCHES[m]!);
  for (const m of [0, 1]) for (const kind of kinds) await backward(stages, m, kind);
  for (const stage of stages) {
    await stage.checkGradients(2);
    await stage.gradientSquares();
    await stage.optimize(1, 1e-3);
  }
  await forward(stages, 2, BATCHES[2]!);
}

/** Trains two stages; the plan, what they count and what the device has allocated must be equal. */
export async function assertPlanned(
  device: Device,
  model: ModelProgram,
  way: Partial<StageOptions>,
  what: string,
): Promise<void> {
  const options = { optimizer: ADAMW_DEFAULTS, backward: "whole", ...way } as const;
  const { hasFreeViews, allocatedBytes: before } = device;
  const stages = await openStages(device, model, 2, options);
  const planned = cutIntoStages(model, 2).map((program) =>
    planMemory(program, { ...options, hasFreeViews, slots: 2 })
  );
  await run(stages, way.backward === "split" ? ["I", "W"] : ["B"]);
  assert.deepEqual(stages.map(({ memory }) => memory), planned, what);
  const total = planned.reduce((sum, memory) => sum + totalBytes(memory.device), 0);
  assert.equal(device.allocatedBytes - before, total, what);
}

const SGD: OptimizerOptions = { kind: "sgd", momentum: 0.9, weightDecay: 0 };

/** A way to train. */
interface Way {
  readonly recompute?: Recompute;
  readonly tie?: boolean;
  readonly dropout?: number;
  readonly options?: Partial<StageOptions>;
}

const WAYS: Readonly<Record<string, Way>> = {
  "cheap": { recompute: "cheap" },
  "full, offloaded": { recompute: "full", options: { offload: true } },
  "three copies": { options: { addends: 3 } },
  "split": { options: { backward: "split" } },
  "dropout": { recompute: "cheap", dropout: 0.1 },
  "split, an interval": { options: { backward: "split", recomputeInterval: 2 } },
  "tied, SGD": { tie: true, options: { optimizer: SGD } },
};

/** What a device takes to bind a kernel is counted with its tensors: training lets it take none. */
export function testPlannedMemory(name: string, test: RegisterTest): void {
  test(`every byte of a stage on ${name} is planned, and binding takes none of its own`, async () => {
    for (
      const [way, { recompute = "none", tie = false, dropout = 0, options = {} }] of Object.entries(
        WAYS,
      )
    ) {
      const device = await openDevice(name);
      const model = compileModel(gpt2({ ...COUNTED, tie, dropout }, 2), recompute);
      await assertPlanned(device, model, options, way);
      device.close();
    }
  });
}
