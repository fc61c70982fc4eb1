/** The devices that tests may open in any isolate, and how suites for any device register tests. */

import { DEVICE_NAMES, type DeviceName } from "../kernels/mod.ts";
import { DEVICES } from "../kernels/devices/table.ts";

/** All devices except webgpu, whose tests are in separate files: see `gpu.ts`. */
export const ISOLATE_DEVICES: readonly DeviceName[] = DEVICE_NAMES.filter((name) =>
  !DEVICES[name].isAlone
);

/** Registers a test of a device: `Deno.test`, or `gpuTest` of `gpu.ts`. */
export type RegisterTest = (
  name: string,
  fn: (t: Deno.TestContext) => Promise<void> | void,
) => void;
