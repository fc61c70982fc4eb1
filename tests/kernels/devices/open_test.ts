import assert from "node:assert/strict";
import { nativeLibraryPath } from "../../../kernels/devices/onnx_runtime/native_library.ts";
import { openDevice, resolveDevice, resolveDevices } from "../../../kernels/devices/open.ts";
import { DEVICE_NAMES, needsProcess } from "../../../kernels/devices/table.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";

Deno.test("auto is native where isolates share a process and its library loads, and says so", async () => {
  const lines: string[] = [], announce = (line: string) => lines.push(line);
  const [choice] = await resolveDevices("auto", { announce, isShared: true });
  assert.deepEqual(choice, { name: "native", library: await nativeLibraryPath() });
  assert.equal(lines.at(-1), "device native");
});

Deno.test("a choice opens the same device without looking again", async () => {
  for (const name of ISOLATE_DEVICES) {
    const choice = await resolveDevice(name);
    const device = await openDevice(choice.name, choice);
    assert.equal(device.name, name);
    device.close();
  }
});

Deno.test("every device that can be chosen has a test file that runs the whole contract", async () => {
  for (const name of DEVICE_NAMES) {
    const file = needsProcess(name) ? `./${name}_alone_test.ts` : `./${name}_test.ts`;
    const text = await Deno.readTextFile(new URL(file, import.meta.url));
    assert.ok(text.includes(`testContract("${name}"`), name);
  }
});

Deno.test("a device of an unknown name is refused", async () => {
  await assert.rejects(openDevice("abacus"), {
    name: "RangeError",
    message:
      'Cannot open a device: its name must be auto, native, webgpu, webgpu:N, wasm, reference, received "abacus"',
  });
});

Deno.test("adapters are named once, and of a device that has some", async () => {
  await assert.rejects(resolveDevices("webgpu:1", { adapters: [0] }), {
    name: "RangeError",
    message: "Cannot open a device: its adapters must be named once, received webgpu:1 and 0",
  });
  await assert.rejects(resolveDevices("wasm", { adapters: [0, 1] }), {
    name: "RangeError",
    message: "Cannot open a device: adapters must be those of webgpu, received 0,1 for wasm",
  });
  await assert.rejects(openDevice("wasm:0"), RangeError);
});

Deno.test("an absent library is announced before it is fetched, and a failed fetch says why", async () => {
  const cache = await Deno.makeTempDir();
  try {
    const module = new URL(
      "../../../kernels/devices/onnx_runtime/native_library.ts",
      import.meta.url,
    );
    const { stdout } = await new Deno.Command(Deno.execPath(), {
      args: [
        "eval",
        "--no-lock",
        "--no-config",
        `import { nativeLibraryPath } from "${module}";
        await nativeLibraryPath((line) => console.log(line)).catch((e) => console.log(e.message));`,
      ],
      // An empty cache, and a registry that nobody serves.
      env: { DENO_DIR: cache, NPM_CONFIG_REGISTRY: "http://127.0.0.1:9/", NO_COLOR: "1" },
    }).output();
    const [announced, reason] = new TextDecoder().decode(stdout).split("\n");
    assert.equal(
      announced,
      "Fetching npm:onnxruntime-node@1.30.0 (290 MB, once)",
    );
    assert.match(reason!, /^Cannot load npm:onnxruntime-node@1\.30\.0: ./);
  } finally {
    await Deno.remove(cache, { recursive: true });
  }
});
