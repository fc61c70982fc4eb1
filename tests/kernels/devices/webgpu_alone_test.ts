/** The GPU as a device, and how its adapters are found. */

import assert from "node:assert/strict";
import { resolveDevice, resolveDevices } from "../../../kernels/devices/table.ts";
import {
  askProbe,
  findAdapters,
  webgpuAdapters,
} from "../../../kernels/devices/webgpu/adapters.ts";
import { openWebgpu } from "../../../kernels/devices/webgpu/webgpu.ts";
import { nativeLibraryPath } from "../../../kernels/mod.ts";
import { atDepth, IS_DEEP } from "../../depth.ts";
import { gpuTest, keepGpuOpen, SWIFTSHADER } from "../../gpu.ts";
import { testImages } from "../graph/pytorch_images.ts";
import { testContract } from "./contract.ts";
import { testBits, testGradients, testOperators } from "./operators.ts";

keepGpuOpen();

const WEBGPU = {
  name: "webgpu",
  open: () => openWebgpu(),
  // Random sizes of each operation and its first gradient, as compiling takes long. What the rewrites
  // for a GPU make of the others is computed by the reference.
  runs: atDepth(1, 8),
  cases: atDepth(1, Infinity),
  // SwiftShader cannot compute in FP16, and the provider has no kernel for some, or for no elements.
  isLeftOut: (name: string) =>
    /f16|^Cast$|^MaxPool with places$|^Mod|^Transpose of i64$| of no (images|rows)$/.test(name) ||
    !IS_DEEP && /FusedMatMul trans|transA 0|transB 0|with a bias/.test(name),
  test: gpuTest,
};

testContract(WEBGPU.name, WEBGPU.open, gpuTest);
testOperators(WEBGPU);
testGradients(WEBGPU);
testImages(WEBGPU.name, WEBGPU.open, gpuTest);
testBits(WEBGPU);

gpuTest("SwiftShader is software, chosen and announced where webgpu is asked for", async () => {
  const { adapters, refused } = await webgpuAdapters(), lines: string[] = [];
  assert.deepEqual(refused, []);
  assert.equal(adapters.length, 1);
  const { name, kind, memoryBytes, maxBufferBytes, hasF16 } = adapters[0]!;
  assert.match(name, /^SwiftShader/);
  assert.deepEqual([kind, hasF16], ["software", false]);
  assert.ok(memoryBytes >= 2 ** 30 && maxBufferBytes >= 2 ** 27);
  const choice = await resolveDevice("webgpu", (line) => lines.push(line));
  assert.deepEqual(choice.adapter, adapters[0]);
  assert.deepEqual(lines, [`device webgpu computes on ${name}, which is software, no GPU`]);
});

gpuTest("auto computes on no software, unless it is given its number", async () => {
  const lines: string[] = [];
  assert.equal((await resolveDevice("auto", (line) => lines.push(line))).name, "native");
  assert.deepEqual(lines, ["device native"]);
  const look = askProbe(await nativeLibraryPath(), false);
  const found = await findAdapters([SWIFTSHADER["VK_DRIVER_FILES"]!], look);
  assert.deepEqual(found, { adapters: [], refused: [] });
  const [{ name, adapter }] = await resolveDevices("auto", { adapters: [0] });
  assert.deepEqual([name, adapter!.index], ["webgpu", 0]);
});

gpuTest("without an adapter the error says what to install", async () => {
  Deno.env.set("VK_DRIVER_FILES", "/none.json");
  try {
    await assert.rejects(openWebgpu(), /must have a GPU with a driver for Vulkan .*, received no /);
  } finally {
    Deno.env.set("VK_DRIVER_FILES", SWIFTSHADER["VK_DRIVER_FILES"]!);
  }
});
