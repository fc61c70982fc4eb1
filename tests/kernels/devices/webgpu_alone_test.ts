/** The GPU as a device, and how its adapters are found. */

import assert from "node:assert/strict";
import { openDevice, resolveDevice, resolveDevices } from "../../../kernels/devices/open.ts";
import { askProbe } from "../../../kernels/devices/webgpu/adapters/ask_probe.ts";
import { findAdapters } from "../../../kernels/devices/webgpu/adapters/find_adapters.ts";
import { webgpuAdapters } from "../../../kernels/devices/webgpu/adapters/webgpu_adapters.ts";
import { openWebgpu } from "../../../kernels/devices/webgpu/webgpu.ts";
import { nativeLibraryPath } from "../../../kernels/mod.ts";
import { atDepth } from "../../depth.ts";
import { gpuTest, keepGpuOpen, SWIFTSHADER } from "../../gpu.ts";
import { testImages } from "../graph/pytorch_images.ts";
import { testContract } from "./contract.ts";
import { testBits, testGradients, testOperators } from "./operators.ts";

keepGpuOpen();

const WEBGPU = {
  name: "webgpu",
  open: () => openWebgpu(),
  // A few random sizes of each operation, as each is compiled.
  runs: atDepth(2, 8),
  // SwiftShader cannot compute in FP16, and the provider has no kernel for some.
  isLeftOut: (name: string) =>
    /f16|^Cast$|^MaxPool with places$|^Mod|^Transpose of i64$/.test(name),
  test: gpuTest,
};

testContract(WEBGPU.name, WEBGPU.open, gpuTest);
testOperators(WEBGPU);
testGradients(WEBGPU);
testImages(WEBGPU.name, WEBGPU.open, gpuTest);
testBits(WEBGPU);

/** Uses other drivers of Vulkan than SwiftShader. */
async function withDrivers<T>(files: string, run: () => Promise<T>): Promise<T> {
  Deno.env.set("VK_DRIVER_FILES", files);
  try {
    return await run();
  } finally {
    Deno.env.set("VK_DRIVER_FILES", SWIFTSHADER["VK_DRIVER_FILES"]!);
  }
}

gpuTest(
  "SwiftShader is found as software, and chosen where webgpu is asked for, which is announced",
  async () => {
    const { adapters, refused } = await webgpuAdapters();
    assert.deepEqual(refused, []);
    assert.equal(adapters.length, 1);
    const [{ name, kind, memoryBytes, maxBufferBytes, hasF16 }] = adapters as [typeof adapters[0]];
    assert.match(name, /^SwiftShader/);
    assert.equal(kind, "software");
    assert.equal(hasF16, false);
    assert.ok(memoryBytes >= 2 ** 30 && maxBufferBytes >= 2 ** 27);
    const lines: string[] = [];
    const choice = await resolveDevice("webgpu", (line) => lines.push(line));
    assert.deepEqual(choice.adapter, adapters[0]);
    assert.deepEqual(lines, [`device webgpu computes on ${name}, which is software, no GPU`]);
  },
);

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

gpuTest("an adapter of a wrong number is refused with what exists", async () => {
  const { adapters: [first] } = await webgpuAdapters();
  await assert.rejects(openDevice("webgpu:1"), {
    name: "RangeError",
    message: `Cannot use the webgpu device: the adapter must be one of 0 (${
      first!.name
    }), received 1`,
  });
});

gpuTest("without an adapter the error says what to install", async () => {
  await withDrivers("/none.json", async () => {
    await assert.rejects(openWebgpu(), /must have a GPU with a driver for Vulkan .*, received no /);
  });
});
