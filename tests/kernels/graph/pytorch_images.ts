/** Operations on images and their gradients against PyTorch; `tests/fixtures/README.md` says how they were made. */

import assert from "node:assert/strict";
import {
  type ConvOptions,
  type ConvTransposeOptions,
  type Device,
  Graph,
  type LoadedTensor,
  readSafetensors,
  type Value,
} from "../../../kernels/mod.ts";
import { IS_DEEP } from "../../depth.ts";
import type { RegisterTest } from "../../devices.ts";
import { assertClose } from "../stage/pytorch.ts";
import { computedOn, differentiated } from "./computed.ts";

const FIXTURE = new URL("../../fixtures/images/operations.safetensors", import.meta.url);

type Build = (g: Graph, x: Value, weight: Value, bias: Value) => Value;

const conv = (options: ConvOptions): Build => (g, x, w, b) => g.conv(x, w, b, options);
const transposed = (options: ConvTransposeOptions): Build => (g, x, w, b) =>
  g.convTranspose(x, w, b, options);

/** The operations of the fixture. */
const OPERATIONS: Readonly<Record<string, Build>> = {
  "conv": conv({ pads: 1 }),
  "conv of groups": conv({ strides: [2, 1], pads: [2, 1], dilations: [1, 2], groups: 2 }),
  "conv of each channel": conv({ groups: 3 }),
  "conv of many channels": conv({ strides: 2, pads: 1 }),
  "conv, the same size": conv({ pads: "SAME_UPPER" }),
  "conv of one axis": conv({ strides: 3, pads: 2 }),
  "conv transposed": transposed({ strides: 2 }),
  "conv transposed of groups": transposed({
    ...{ strides: [3, 2], pads: [1, 2], outputPadding: [2, 1], groups: 2, dilations: [1, 2] },
  }),
  "conv transposed of one axis": transposed({ strides: 2, pads: 1 }),
  "max pool": (g, x) => g.maxPool(x, 2, { strides: 2 }),
  "max pool of windows over windows": (g, x) =>
    g.maxPool(x, 3, { strides: 2, pads: 1, ceilMode: true }),
  "max pool of one axis": (g, x) => g.maxPool(x, 3, { dilations: 2 }),
  "average pool": (g, x) => g.averagePool(x, 2, { strides: 2 }),
  "average pool with padding": (g, x) =>
    g.averagePool(x, 3, { strides: 2, pads: 1, ceilMode: true, countIncludePad: true }),
  "average pool without padding": (g, x) => g.averagePool(x, [3, 2], { strides: 2, pads: 1 }),
  "average of channels": (g, x) => g.globalAveragePool(x),
  "group norm": (g, x, w, b) => g.groupNorm(x, 2, w, b),
  "instance norm": (g, x, w, b) => g.instanceNorm(x, w, b),
  "batch norm": (g, x, w, b) => g.batchNorm(x, w, b),
  "batch norm by statistics": (g, x, w, b) => {
    const given = (...numbers: number[]) => g.constant(Float32Array.from(numbers), [3]);
    return g.batchNorm(x, w, b, { mean: given(0.1, -0.2, 0.5), variance: given(0.5, 1, 2) });
  },
  "upsample": (g, x) => g.upsample(x, 2),
  "resize": (g, x) => g.resize(x, [7, 3], { mode: "linear" }),
  "resize by corners": (g, x) =>
    g.resize(x, [7, 3], { mode: "linear", coordinates: "align_corners" }),
  "resize to the nearest": (g, x) =>
    g.resize(x, [5, 3], { coordinates: "asymmetric", nearest: "floor" }),
  "pad": (g, x) => g.pad(x, [0, 0, 0, 1, 0, 0, 3, 2], 0.5),
  "pad by reflection": (g, x) => g.pad(x, [0, 0, 0, 1, 0, 0, 2, 2], "reflect"),
  "pad by the edge": (g, x) => g.pad(x, [0, 0, 0, 1, 0, 0, 4, 2], "edge"),
};

const floats = ({ data }: LoadedTensor) => new Float32Array(data.buffer);

/** Computes a case on a device, with the names of the fixture. */
async function compute(device: Device, build: Build, given: ReadonlyMap<string, LoadedTensor>) {
  const shapes = [0, 1, 2].flatMap((i) => given.has(`x${i}`) ? [given.get(`x${i}`)!.shape] : []);
  const { g, results } = differentiated(shapes, build as (g: Graph, ...all: Value[]) => Value);
  const values = Object.fromEntries(Array.from(given, ([name, tensor]) => [name, floats(tensor)]));
  const found = Object.entries(await computedOn(device, g, results, values));
  return new Map(found.map(([name, numbers]) => [name, Float32Array.from(numbers)]));
}

/** Registers the test of a device. */
export function testImages(
  name: string,
  open: () => Promise<Device>,
  test: RegisterTest = Deno.test,
): void {
  test(`images and their gradients are those of PyTorch on the ${name} device`, async (t) => {
    const { tensors } = await readSafetensors(FIXTURE.pathname), device = await open();
    const cases = Map.groupBy(tensors, ([key]) => key.split("/")[0]!);
    try {
      assert.deepEqual([...cases.keys()].sort(), Object.keys(OPERATIONS).sort());
      // On the GPU, where shaders take seconds to compile, other tests have the operations.
      const isAll = IS_DEEP || name !== "webgpu";
      for (const [operation, all] of [...cases].filter((_, i) => isAll || i % 4 === 1)) {
        const given = new Map(all.map(([key, tensor]) => [key.split("/")[1]!, tensor]));
        await t.step(operation, async () => {
          const found = await compute(device, OPERATIONS[operation]!, given);
          const wanted = [...found.keys()].map((key) => [key, floats(given.get(key)!)] as const);
          assertClose(found, new Map(wanted));
        });
      }
    } finally {
      device.close();
    }
  });
}
