/** Operations on images and their gradients against PyTorch; `tests/fixtures/README.md` says how they were made. */

import assert from "node:assert/strict";
import {
  addGradients,
  type Device,
  Graph,
  type LoadedTensor,
  readSafetensors,
  type Tensor,
  type Value,
} from "../../../kernels/mod.ts";
import type { RegisterTest } from "../../devices.ts";
import { modelOf } from "../devices/models.ts";
import { assertClose } from "../stage/pytorch.ts";

const FIXTURE = new URL("../../fixtures/images/operations.safetensors", import.meta.url);

type Build = (g: Graph, x: Value, weight: Value, bias: Value) => Value;

/** What the fixture's operations are here. */
const OPERATIONS: Readonly<Record<string, Build>> = {
  "conv": (g, x, w, b) => g.conv(x, w, b, { pads: 1 }),
  "conv of groups": (g, x, w, b) =>
    g.conv(x, w, b, { strides: [2, 1], pads: [2, 1], dilations: [1, 2], groups: 2 }),
  "conv of each channel": (g, x, w) => g.conv(x, w, undefined, { groups: 3 }),
  "conv of many channels": (g, x, w) => g.conv(x, w, undefined, { strides: 2, pads: 1 }),
  "conv, the same size": (g, x, w) => g.conv(x, w, undefined, { pads: "SAME_UPPER" }),
  "conv of one axis": (g, x, w, b) => g.conv(x, w, b, { strides: 3, pads: 2 }),
  "conv transposed": (g, x, w, b) => g.convTranspose(x, w, b, { strides: 2 }),
  "conv transposed of groups": (g, x, w, b) =>
    g.convTranspose(x, w, b, {
      strides: [3, 2],
      pads: [1, 2],
      outputPadding: [2, 1],
      groups: 2,
      dilations: [1, 2],
    }),
  "conv transposed of one axis": (g, x, w) =>
    g.convTranspose(x, w, undefined, { strides: 2, pads: 1 }),
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

/** What a device makes of the operands of a case, by the names of the fixture. */
async function compute(device: Device, build: Build, given: ReadonlyMap<string, LoadedTensor>) {
  const operands = [...given].filter(([name]) => /^x\d$/.test(name));
  const g = new Graph(), inputs = operands.map(([name, { shape }]) => g.input(name, shape));
  const y = build(g, ...inputs as [Value, Value, Value]), dy = g.input("dy", y.shape);
  const gradients = addGradients(g, [[y, dy]], inputs);
  const results = { y, ...Object.fromEntries(gradients.map((value, i) => [`d${i}`, value!])) };
  const kernel = await device.compile(modelOf(g, results));
  const tensors: Record<string, Tensor> = {};
  for (const name of [...kernel.inputs, ...kernel.outputs]) {
    const { shape } = given.get(name)!;
    tensors[name] = device.alloc("f32", shape);
    if (kernel.inputs.includes(name)) device.write(tensors[name], floats(given.get(name)!));
  }
  const pick = (names: readonly string[]) =>
    Object.fromEntries(names.map((name) => [name, tensors[name]!]));
  await kernel.bind(pick(kernel.inputs), pick(kernel.outputs))();
  const found = new Map<string, Float32Array>();
  for (const name of kernel.outputs) {
    found.set(name, await device.read<Float32Array>(tensors[name]!));
  }
  for (const tensor of Object.values(tensors)) device.free(tensor);
  kernel.close();
  return found;
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
      for (const [operation, all] of cases) {
        const given = new Map(all.map(([key, tensor]) => [key.split("/")[1]!, tensor]));
        await t.step(operation, async () => {
          const found = await compute(device, OPERATIONS[operation]!, given);
          assertClose(
            found,
            new Map([...found.keys()].map((key) => [key, floats(given.get(key)!)])),
          );
        });
      }
    } finally {
      device.close();
    }
  });
}
