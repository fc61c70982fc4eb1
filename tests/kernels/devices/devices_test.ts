/** The contract of the devices that any isolate can open, what some add to it, and how they are chosen. */

import assert from "node:assert/strict";
import { openNative } from "../../../kernels/devices/cpu/native.ts";
import { nativeLibraryPath } from "../../../kernels/devices/cpu/ort_library.ts";
import { openDevice, resolveDevice, resolveDevices } from "../../../kernels/devices/table.ts";
import { erf } from "../../../kernels/ops/elementwise.ts";
import { openReference } from "../../../kernels/devices/reference.ts";
import { openWasm } from "../../../kernels/devices/cpu/wasm.ts";
import { Graph } from "../../../kernels/ops/graph.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";
import { testContract } from "./contract.ts";
import { modelOf, numbersOf, runModel, square, tensorOf, withDevice } from "./models.ts";
import { assertRefused } from "../graph/refused.ts";

for (const name of ISOLATE_DEVICES) testContract(name, () => openDevice(name));
testContract("native", () => openNative({ isBlocking: true }));

Deno.test("the error function of the reference device has its tabulated values", () => {
  // Abramowitz and Stegun, Handbook of Mathematical Functions, table 7.1.
  const table = [[0, 0], [0.1, 0.1124629160], [0.5, 0.5204998778], [1, 0.8427007929]];
  for (const [x, want] of [...table, [2, 0.9953222650], [3, 0.9999779095], [7, 1]]) {
    assert.ok(Math.abs(erf(x!) - want!) < 1e-10, `erf ${x}`);
    assert.equal(erf(-x!), -erf(x!));
  }
});

Deno.test("the reference device refuses a label beyond the classes, as the native device does", async () => {
  const g = new Graph();
  const logits = g.input("logits", [2, 3]), targets = g.input("targets", [2], "i32");
  const model = modelOf(g, { loss: g.crossEntropy(logits, targets) });
  for (const open of [openReference, openNative]) {
    await withDevice(open(), async (device) => {
      const run = (...labels: number[]) =>
        runModel(device, model, ({ dtype }) => dtype === "i32" ? labels : Array(6).fill(0));
      await run(2, -1);
      for (const bad of [3, 99_999]) {
        await assert.rejects(run(0, bad), /GatherElements|Cannot use index/);
      }
    });
  }
});

Deno.test("the reference device stores outputs after every operation has read its inputs", () =>
  withDevice(openReference(), async (device) => {
    const g = new Graph(), a = g.input("a", [2]), b = g.input("b", [2]);
    const kernel = await device.compile(modelOf(g, { first: g.add(a, b), second: g.sub(a, b) }));
    const left = tensorOf(device, [2], [5, 7]), right = tensorOf(device, [2], [1, 2]);
    await kernel.bind({ a: left, b: right }, { first: left, second: right })();
    assert.deepEqual(await numbersOf(device, left), [6, 9]);
    assert.deepEqual(await numbersOf(device, right), [4, 5]);
  }));

Deno.test("the wasm device keeps tensors and bound kernels when its heap grows, and says when it is full", () =>
  withDevice(openWasm(), async (device) => {
    const kernel = await device.compile(square([2]));
    const x = tensorOf(device, [2], [3, 4]), y = device.alloc("f32", [2]);
    const run = kernel.bind({ x }, { y });
    const large = device.alloc("f32", [8 * 1024 * 1024]); // 32 MB; the heap starts at 16 MB.
    device.write(device.view(large, 8 * 1024 * 1024 - 1, [1]), Float32Array.of(1));
    for (const size of [2 ** 30, 2 ** 30 + 256, 1_072_500_000]) {
      assert.throws(() => device.alloc("f32", [size]), {
        name: "RangeError",
        message: /^Cannot allocate on the wasm device: its heap must stay below 4 GB, received /,
      });
    }
    await run();
    assert.deepEqual(await numbersOf(device, x), [3, 4]);
    assert.deepEqual(await numbersOf(device, y), [9, 16]);
  }));

Deno.test("opening wasm devices leaves the global Worker alone", async () => {
  const { Worker } = globalThis;
  let isOpening = true;
  const opening = Promise.all([openWasm(), openWasm()]).finally(() => isOpening = false);
  while (isOpening) {
    assert.equal(globalThis.Worker, Worker);
    await new Promise((resolve) => setTimeout(resolve));
  }
  for (const device of await opening) device.close();
  assert.equal(globalThis.Worker, Worker);
  assert.equal(Object.getOwnPropertyDescriptor(globalThis, "Worker")!.writable, true);
});

Deno.test("auto is native where isolates share a process and its library loads, and says so", async () => {
  const lines: string[] = [], announce = (line: string) => lines.push(line);
  const [choice] = await resolveDevices("auto", { announce, isShared: true });
  assert.deepEqual(choice, { name: "native", library: await nativeLibraryPath() });
  assert.equal(lines.at(-1), "device native");
});

Deno.test("a choice opens the same device without looking again", async () => {
  for (const name of ISOLATE_DEVICES) {
    const choice = await resolveDevice(name);
    await withDevice(openDevice(choice.name, choice), (device) => assert.equal(device.name, name));
  }
});

Deno.test("devices, adapters and threads that there are not are refused", () =>
  assertRefused("devices", [
    () => openDevice("abacus"),
    () => openDevice("wasm:0"),
    () => openNative({ threads: 0 }),
    () => openNative({ threads: 1.5 }),
    () => resolveDevices("webgpu:1", { adapters: [0] }),
    () => resolveDevices("wasm", { adapters: [0, 1] }),
    () => openDevice("wasm", { threads: 2 }),
  ]));
