import assert from "node:assert/strict";
import { openDevice, resolveDevice, resolveDevices } from "../../../kernels/devices/open.ts";
import { nativeLibraryPath } from "../../../kernels/mod.ts";
import { askProbe } from "../../../kernels/devices/webgpu/adapters/ask_probe.ts";
import { findAdapters } from "../../../kernels/devices/webgpu/adapters/find_adapters.ts";
import { openWebgpu } from "../../../kernels/devices/webgpu/webgpu.ts";
import { webgpuAdapters } from "../../../kernels/devices/webgpu/adapters/webgpu_adapters.ts";
import { gpuTest, SWIFTSHADER, writeDrivers } from "../../gpu.ts";
import { inFolder } from "../../in_folder.ts";

/** Runs something with other drivers of Vulkan than SwiftShader. */
async function withDrivers<T>(files: string, run: () => Promise<T>): Promise<T> {
  Deno.env.set("VK_DRIVER_FILES", files);
  try {
    return await run();
  } finally {
    Deno.env.set("VK_DRIVER_FILES", SWIFTSHADER["VK_DRIVER_FILES"]!);
  }
}

gpuTest(
  "SwiftShader is found as what it is, and chosen where webgpu is asked for, which is said",
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

gpuTest("auto computes on no software", async () => {
  const lines: string[] = [];
  assert.equal((await resolveDevice("auto", (line) => lines.push(line))).name, "native");
  assert.deepEqual(lines, ["device native"]);
  // Nor where there is a GPU beside it, for which it looks.
  const look = askProbe(await nativeLibraryPath(), false);
  const found = await findAdapters([SWIFTSHADER["VK_DRIVER_FILES"]!], look);
  assert.deepEqual(found, { adapters: [], refused: [] });
  // Unless it is told on which.
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

gpuTest("without an adapter it is said what to install, and nothing is loaded", async () => {
  await withDrivers("/none.json", async () => {
    await assert.rejects(openWebgpu(), /must have a GPU with a driver for Vulkan .*, received no /);
  });
});

gpuTest(
  "a process computes on the adapter of its choice, and on no other",
  () =>
    inFolder(async (folder) => {
      writeDrivers(folder);
      // In a process of its own: that of the tests computes on another adapter.
      const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
        args: ["run", "-A", new URL("./two_adapters_program.ts", import.meta.url).href],
        env: { VK_DRIVER_FILES: folder, NO_COLOR: "1" },
      }).output();
      assert.equal(new TextDecoder().decode(stderr), "");
      assert.equal(code, 0);
      const { adapters, visible, loaded, read, refusals } = JSON.parse(
        new TextDecoder().decode(stdout),
      );
      assert.deepEqual(adapters, [`${folder}/1.json`, `${folder}/0.json`]);
      assert.equal(visible, folder);
      assert.deepEqual(loaded, [`${folder}/1.so`]);
      assert.deepEqual(read, [3, 4]);
      for (const refusal of refusals) {
        assert.match(
          refusal,
          /^Cannot open the webgpu device: a process can use one adapter, received adapter 0 .* after another; use a process for each/,
        );
      }
      assert.equal(refusals.length, 2); // while the first is open, and after that
    }),
);
