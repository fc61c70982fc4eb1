/** What workers of one rank can share. */

import assert from "node:assert/strict";
import { assertRanksHold } from "../../../actors/run/options/run_devices.ts";

Deno.test("workers of one rank share no GPU, which one isolate of a process can use", () => {
  assertRanksHold([1, 0], "webgpu");
  assertRanksHold([0, 0, 1], "native");
  assert.throws(() => assertRanksHold([0, 0, 1], "webgpu"), {
    name: "RangeError",
    message: /^Cannot train on webgpu .* a rank of its own, received 0,0,1$/,
  });
});
