import assert from "node:assert/strict";
import { openDevice } from "../kernels/mod.ts";
import { gpuTest } from "./gpu.ts";

// Where it is not there, the report of the tests says with this name what the others wait for.
gpuTest(
  "tests of the GPU have SwiftShader (on Debian: apt-get install chromium libvulkan1)",
  async () => {
    const device = await openDevice("webgpu");
    assert.equal(device.name, "webgpu");
    device.close();
  },
);
