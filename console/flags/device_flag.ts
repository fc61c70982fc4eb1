/**
 * The flag that names a device.
 *
 * @module
 */

import { DEVICE_NAMES, DEVICE_SPECS, type DeviceSpec, isDeviceSpec } from "../../kernels/mod.ts";

const CHOICES: readonly DeviceSpec[] = ["auto", ...DEVICE_NAMES];

/** `--device`: a device, or one of its adapters by number. */
export const DEVICE_FLAG = {
  kind: "choice",
  choices: CHOICES,
  value: "DEVICE",
  read: (text: string): DeviceSpec | undefined => isDeviceSpec(text) ? text : undefined,
  must: `one of ${DEVICE_SPECS.join(", ")}`,
  default: "auto",
  help: "what computes",
} as const;
