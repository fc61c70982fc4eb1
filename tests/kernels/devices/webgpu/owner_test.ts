import assert from "node:assert/strict";
import { claimGpu } from "../../../../kernels/devices/webgpu/owner.ts";

Deno.test("an isolate that is at work while it claims the GPU gets it, again and again", async () => {
  for (let times = 0; times < 2; times++) {
    const claim = claimGpu();
    for (let turns = 0; turns < 5; turns++) {
      const began = performance.now();
      while (performance.now() - began < 200);
      await new Promise((resolve) => setTimeout(resolve));
    }
    (await claim)();
  }
  const release = await claimGpu();
  await assert.rejects(claimGpu(), /another that has it open; use isolation process/);
  release();
});
