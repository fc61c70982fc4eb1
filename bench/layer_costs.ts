/**
 * What layers cost, measured inside a step, beside the estimate by which models are cut into stages.
 *
 * @module
 */

import { timedDevice } from "../actors/foresight/measuring/timed_device.ts";
import {
  ADAMW_DEFAULTS,
  compileModel,
  type DeviceName,
  type ModelProgram,
  openDevice,
  openStage,
  partition,
} from "../kernels/mod.ts";
import { benchDevices } from "./support/devices.ts";
import type { Row } from "./support/row.ts";
import { interleave, spread } from "./support/timing.ts";
import {
  benchBatches,
  benchModel,
  firstWeights,
  SMALL,
  tokensOf,
  type Workload,
} from "./support/workload.ts";

/** Of each model one block is measured, and counted as often as there are blocks. */
const MODELS: Readonly<Record<string, { workload: Workload; blocks: number }>> = {
  "bench model": { workload: { ...SMALL, config: { ...SMALL.config, layers: 1 } }, blocks: 4 },
  "GPT-2 small": {
    workload: {
      config: { layers: 1, hidden: 768, heads: 12, seq: 256, vocab: 50_257 },
      microBatch: 2,
    },
    blocks: 12,
  },
};

/** Milliseconds of each layer's forward and backward: medians over rounds of the whole model. */
async function measureLayers(
  name: DeviceName,
  program: ModelProgram,
  workload: Workload,
): Promise<number[]> {
  const times = new Map<Uint8Array, number[]>();
  const tell = (model: Uint8Array, ms: number) =>
    void times.set(model, [...times.get(model) ?? [], ms]);
  const device = await openDevice(name, { isBlocking: true });
  try {
    const options = { optimizer: ADAMW_DEFAULTS, backward: "whole" } as const;
    const stage = await openStage(
      timedDevice(device, () => performance.now(), tell),
      program,
      options,
    );
    stage.load({ weights: firstWeights(workload), moments: new Map() });
    const [fields] = benchBatches(1, 1, workload);
    const run = async () => {
      await stage.forward(0, undefined, fields!);
      await stage.backward(0, "B", undefined, 1 / tokensOf(workload));
    };
    await interleave({ run }, { rounds: name === "native" ? 11 : 5 });
  } finally {
    device.close();
  }
  const medianOf = (model: Uint8Array) => spread(times.get(model)!).median;
  const ms = program.programs.map(({ models }) =>
    medianOf(models.forward) + medianOf(models.backward!)
  );
  return program.layers.map((layer) => ms[layer.program]!);
}

/** A model of more blocks from what each layer of one block is worth. */
const repeated = ([embedding, attention, mlp, head]: readonly number[], blocks: number) => [
  embedding!,
  ...Array.from({ length: blocks }, () => [attention!, mlp!]).flat(),
  head!,
];

/** The share of all in the most expensive stage. */
function slowest(costs: readonly number[], starts: readonly number[]): number {
  const sum = (some: readonly number[]) => some.reduce((total, cost) => total + cost, 0);
  return Math.max(...starts.map((start, i) => sum(costs.slice(start, starts[i + 1])))) / sum(costs);
}

async function measure(device: DeviceName, model: string): Promise<Row[]> {
  const { blocks, workload } = MODELS[model]!;
  const program = compileModel(benchModel(workload), "none");
  const ms = repeated(await measureLayers(device, program, workload), blocks);
  const estimated = repeated(program.costs, blocks);
  const total = (costs: readonly number[]) => costs.reduce((sum, cost) => sum + cost, 0);
  const percent = (costs: readonly number[], i: number) => 100 * costs[i]! / total(costs);
  const row = (what: string, unit: string, value: number, note: string): Row => ({
    name: `${device}, ${model}: ${what}`,
    unit,
    measured: spread([value]),
    note,
  });
  const kinds = { embedding: 0, attention: 1, mlp: 2, head: ms.length - 1 };
  return [
    ...Object.entries(kinds).map(([name, i]) =>
      row(`${name}`, "%", percent(ms, i), `estimated: ${percent(estimated, i).toFixed(1)} %`)
    ),
    ...[2, 3, 4, 8].map((stages) => {
      const ours = slowest(ms, partition(estimated, stages));
      const best = slowest(ms, partition(ms, stages));
      const note = `the best cut: ${(100 / (stages * best)).toFixed(1)} %`;
      return row(`balance of ${stages} stages`, "%", 100 / (stages * ours), note);
    }),
  ];
}

/** Measures each device and model. */
export async function balanceBench(): Promise<Row[]> {
  const { names, missing } = await benchDevices();
  const rows = [...missing];
  for (const name of names) {
    for (const model of Object.keys(MODELS)) rows.push(...await measure(name, model));
  }
  return rows;
}
