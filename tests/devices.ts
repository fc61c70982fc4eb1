/** The devices that tests may open in any isolate. */

import { DEVICE_NAMES, type DeviceName, needsProcess } from "../kernels/mod.ts";

/** All but webgpu, whose tests are in files of their own: see `gpu.ts`. */
export const ISOLATE_DEVICES: readonly DeviceName[] = DEVICE_NAMES.filter((name) =>
  !needsProcess(name)
);
