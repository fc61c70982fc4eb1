/** `troupe devices`, with SwiftShader and without an adapter. */

import assert from "node:assert/strict";
import { DEVICE_NAMES } from "../../../kernels/mod.ts";
import { gpuTest, writeDrivers } from "../../gpu.ts";
import { inFolder, runProgram, runTroupe, words } from "../command.ts";

Deno.test("without an adapter the list names the searched drivers, and auto is native", async () => {
  const { code, stdout, stderr } = await runTroupe(["devices"], { VK_DRIVER_FILES: "/none.json" });
  assert.deepEqual([code, stderr], [0, ""]);
  const [head, ...lines] = stdout.trimEnd().split("\n");
  assert.match(head!, /^device +available$/);
  assert.deepEqual(lines.slice(0, 4).map((line) => line.split(/\s+/)[0]), DEVICE_NAMES);
  assert.match(stdout, /^native +yes$/m);
  assert.match(
    stdout,
    /^webgpu +no: Cannot use the webgpu device: .*, received no adapter; of all drivers only those of VK_DRIVER_FILES=\/none.json were looked at$/m,
  );
  assert.match(lines.at(-2)!, /^--precision bf16: (yes|no), CPU instructions: .+, library: \S/);
  assert.equal(lines.at(-1), "--device auto computes on native, as no adapter is a GPU.");
});

Deno.test("without native and webgpu, auto is wasm, and the list names the missing devices", async () => {
  const args = words`run --no-prompt --allow-read --allow-env --allow-run cli.ts devices`;
  const lines = (await runProgram(Deno.execPath(), args)).stdout.trimEnd().split("\n");
  assert.match(lines[1]!, /^native +no: /);
  const auto =
    "--device auto computes on wasm, as no adapter is a GPU; not available: native, webgpu.";
  assert.equal(lines.at(-1), auto);
});

gpuTest(
  "each adapter is listed by its number, and auto does not compute on software",
  () =>
    inFolder(async (folder) => {
      writeDrivers(folder);
      const { code, stdout, stderr } = await runTroupe(["devices", "--json"], {
        VK_DRIVER_FILES: folder,
      });
      assert.deepEqual([code, stderr], [0, ""]);
      const { devices, adapters, refused, auto } = JSON.parse(stdout);
      assert.ok(devices.every(({ available }: { available: boolean }) => available));
      assert.deepEqual(refused, []);
      assert.deepEqual(auto, { device: "native" });
      for (const [i, { index, name, kind, memoryBytes, hasF16 }] of adapters.entries()) {
        assert.deepEqual([index, kind, hasF16], [i, "software", false]);
        assert.match(name, /^SwiftShader/);
        assert.ok(memoryBytes > 0);
      }
      assert.equal(adapters.length, 2);
    }),
);
