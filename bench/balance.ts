/**
 * How evenly a model is cut: the time of each stage, measured by itself.
 *
 * @module
 */

import {
  ADAMW_DEFAULTS,
  type Batch,
  compileModel,
  cutIntoStages,
  type Device,
  type DeviceName,
  initialValues,
  type MessageArray,
  openDevice,
  openStage,
  type Stage,
} from "../kernels/mod.ts";
import { interleave, spreadOf } from "./support/timing.ts";
import { benchBatches, benchModel, SMALL, tokensOf } from "./support/workload.ts";

/** What a stage got and gave, so that it can run alone. */
interface Boundary {
  readonly stage: Stage;
  /** Output of the stage before. */
  readonly input: MessageArray | undefined;
  /** As long as the gradient that comes back. */
  readonly gradient: MessageArray;
}

/** Opens the stages and passes one micro-batch through them. */
async function openStages(device: Device, count: number, fields: Batch): Promise<Boundary[]> {
  const model = compileModel(benchModel(), "none");
  const weights = new Map(
    model.parameters.map(({ name, spec }) => [name, initialValues(spec, name, 1)] as const),
  );
  const boundaries: Boundary[] = [];
  let input: MessageArray | undefined;
  for (const program of cutIntoStages(model, count)) {
    const stage = await openStage(device, program, {
      optimizer: ADAMW_DEFAULTS,
      backward: "whole",
    });
    stage.load({ weights, moments: new Map() });
    const { output } = await stage.forward(0, input, fields);
    stage.drop(0);
    boundaries.push({ stage, input, gradient: new Float32Array(output.length) });
    input = output;
  }
  return boundaries;
}

/** The share of each stage in the time of a micro-batch, 0 to 1. */
export async function measureBalance(name: DeviceName, stages: number): Promise<number[]> {
  const device = await openDevice(name);
  const [fields] = benchBatches(1);
  const boundaries = await openStages(device, stages, fields!);
  const cases = boundaries.map(({ stage, input, gradient }, i) =>
    [`${i}`, async () => {
      await stage.forward(0, input, fields!);
      await stage.backward(0, "B", gradient, 1 / tokensOf(SMALL));
    }] as const
  );
  const rounds = await interleave(Object.fromEntries(cases), { rounds: 9 });
  device.close();
  const times = boundaries.map((_, i) => spreadOf(rounds, (ms) => ms[`${i}`]!).median);
  const total = times.reduce((sum, time) => sum + time, 0);
  return times.map((time) => time / total);
}
