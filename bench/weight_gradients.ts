/**
 * Weight gradients xᵀ·dy: with x transposed first, against within the product.
 *
 * The native device chooses by shape (`kernels/devices/cpu/native.ts`), by what this shows.
 *
 * @module
 */

import {
  type Device,
  type DeviceName,
  encodeModel,
  Graph,
  openDevice,
  type Run,
  type Value,
} from "../kernels/mod.ts";
import { benchDevices } from "./support/devices.ts";
import type { Row } from "./support/row.ts";
import { interleave, spreadOf } from "./support/timing.ts";

/** Rows of x and dy: tokens of a micro-batch. */
const TOKENS = 512;
/** Inputs and outputs of the linear layers of a GPT-2 256 wide, and of the widest of one 768 wide. */
const SHAPES = [[256, 256], [256, 768], [256, 1024], [1024, 256], [768, 3072], [
  3072,
  768,
]] as const;
/** Multiplications in a round: one small product alone is too short a sample. */
const WORK = 2e9;

type Product = (g: Graph, x: Value, dy: Value) => Value;

async function open(device: Device, [inputs, outputs]: readonly number[], product: Product) {
  const g = new Graph(),
    x = g.input("x", [TOKENS, inputs!]),
    dy = g.input("dy", [TOKENS, outputs!]);
  const ports = [{ name: "x", value: x }, { name: "dy", value: dy }];
  const kernel = await device.compile(
    encodeModel(g, ports, [{ name: "dw", value: product(g, x, dy) }]),
  );
  const [tx, tdy] = [x, dy].map(({ shape }) => device.alloc("f32", shape));
  return kernel.bind({ x: tx!, dy: tdy! }, { dw: device.alloc("f32", [inputs!, outputs!]) });
}

async function measure(name: DeviceName): Promise<Row[]> {
  const device = await openDevice(name), rows: Row[] = [];
  for (const shape of SHAPES) {
    const count = Math.ceil(WORK / (TOKENS * shape[0] * shape[1]));
    const repeat = (run: Run) => async () => {
      for (let i = 0; i < count; i++) await run();
    };
    const rounds = await interleave({
      within: repeat(await open(device, shape, (g, x, dy) => g.matmul(x, dy, { transA: true }))),
      first: repeat(await open(device, shape, (g, x, dy) => g.matmul(g.transpose(x, [1, 0]), dy))),
    }, { rounds: 11 });
    rows.push({
      name: `${name}: gradient of weights ${shape.join(" × ")}, transposed first ÷ within`,
      unit: "%",
      measured: spreadOf(rounds, ({ first, within }) => 100 * first / within),
    });
  }
  device.close();
  return rows;
}

/** Measures each CPU device. */
export async function weightGradientsBench(): Promise<Row[]> {
  const { names, missing } = await benchDevices();
  const rows = [...missing];
  for (const name of names) rows.push(...await measure(name));
  return rows;
}
