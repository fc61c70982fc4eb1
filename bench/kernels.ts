/**
 * Kernels against the matrix product of the same device, and the optimizer.
 *
 * @module
 */

import {
  ADAMW_DEFAULTS,
  compileModel,
  type Device,
  type DeviceName,
  encodeModel,
  Graph,
  initialValues,
  openDevice,
  openStage,
  type Run,
  type Stage,
  substream,
} from "../kernels/mod.ts";
import { benchDevices } from "./support/devices.ts";
import type { Row } from "./support/row.ts";
import { interleave, spreadOf } from "./support/timing.ts";
import {
  benchBatches,
  benchModel,
  LEARNING_RATE,
  MICRO_BATCH_GFLOP,
  TOKENS,
} from "./support/workload.ts";

/** Rows, columns and depth of the product that stands for the device's speed. */
const SIZE = 1024;
const PRODUCT_GFLOP = 2 * SIZE ** 3 / 1e9;
/** Products in a round: one alone is too short a sample. */
const PRODUCTS = 3;

/** The share of its own matrix product that each device must reach, in percent. */
const SHARES: Partial<Record<DeviceName, number>> = { native: 65, wasm: 80 };

/** The whole model as one stage, with its first weights. */
export interface BenchStage {
  readonly device: Device;
  readonly stage: Stage;
  /** Trained numbers. */
  readonly parameters: number;
  /** Forward and backward of one micro-batch; its mean loss. */
  readonly forwardBackward: () => Promise<number>;
}

/** Opens the model on a device, with one thread. */
export async function openBenchStage(name: DeviceName): Promise<BenchStage> {
  const device = await openDevice(name);
  const program = compileModel(benchModel(), "none");
  const stage = await openStage(device, program, { optimizer: ADAMW_DEFAULTS, backward: "whole" });
  const weights = new Map(
    program.parameters.map(({ name, spec }) => [name, initialValues(spec, name, 1)] as const),
  );
  stage.load({ weights, moments: new Map() });
  const [fields] = benchBatches(1);
  return {
    device,
    stage,
    parameters: [...weights.values()].reduce((sum, { length }) => sum + length, 0),
    async forwardBackward() {
      const { output } = await stage.forward(0, undefined, fields!);
      await stage.backward(0, "B", undefined, 1 / TOKENS);
      return (output as Float32Array).reduce((sum, loss) => sum + loss, 0) / TOKENS;
    },
  };
}

/** MatMul of two square matrices. */
async function openProduct(device: Device): Promise<Run> {
  const g = new Graph(), shape = [SIZE, SIZE];
  const a = g.input("a", shape), b = g.input("b", shape);
  const inputs = [{ name: "a", value: a }, { name: "b", value: b }];
  const kernel = await device.compile(
    encodeModel(g, inputs, [{ name: "c", value: g.matmul(a, b) }]),
  );
  const generator = substream(1, "bench matrices");
  const filled = () => {
    const tensor = device.alloc("f32", shape);
    const values = Float32Array.from({ length: SIZE ** 2 }, () => generator.next() / 2 ** 31);
    device.write(tensor, values);
    return tensor;
  };
  return kernel.bind({ a: filled(), b: filled() }, { c: device.alloc("f32", shape) });
}

async function measure(name: DeviceName): Promise<Row[]> {
  const { device, stage, parameters, forwardBackward } = await openBenchStage(name);
  const product = await openProduct(device);
  let step = 0;
  const rounds = await interleave({
    product: async () => {
      for (let i = 0; i < PRODUCTS; i++) await product();
    },
    forwardBackward: async () => void await forwardBackward(),
    adamw: () => stage.optimize(++step, LEARNING_RATE),
  }, { rounds: name === "native" ? 25 : 11 });
  device.close();
  const productRate = (ms: number) => PRODUCTS * PRODUCT_GFLOP / (ms / 1000);
  const modelRate = (ms: number) => MICRO_BATCH_GFLOP / (ms / 1000);
  const share = SHARES[name];
  return [
    {
      name: `${name}: MatMul ${SIZE}³`,
      unit: "GFLOP/s",
      measured: spreadOf(rounds, ({ product }) => productRate(product)),
    },
    {
      name: `${name}: forward and backward`,
      unit: "GFLOP/s",
      measured: spreadOf(rounds, ({ forwardBackward }) => modelRate(forwardBackward)),
    },
    {
      name: `${name}: forward and backward ÷ MatMul`,
      unit: "%",
      measured: spreadOf(
        rounds,
        ({ product, forwardBackward }) => 100 * modelRate(forwardBackward) / productRate(product),
      ),
      ...share && { target: { atLeast: share } },
    },
    {
      name: `${name}: AdamW`,
      unit: "Melem/s",
      measured: spreadOf(rounds, ({ adamw }) => parameters / 1e6 / (adamw / 1000)),
    },
  ];
}

/** Measures each device against itself. */
export async function kernelsBench(): Promise<Row[]> {
  const { names, missing } = await benchDevices();
  const rows = [...missing];
  for (const name of names) rows.push(...await measure(name));
  return rows;
}
