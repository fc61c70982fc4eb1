/**
 * The devices that are measured.
 *
 * @module
 */

import { type DeviceName, resolveDevice } from "../../kernels/mod.ts";
import type { Row } from "./row.ts";

/** The fast devices, and those of them that this machine has. */
export interface BenchDevices {
  readonly names: readonly DeviceName[];
  /** A row for each that is missing, with the reason. */
  readonly missing: readonly Row[];
}

/** Looks which devices can be opened. */
export async function benchDevices(): Promise<BenchDevices> {
  const names: DeviceName[] = [], missing: Row[] = [];
  for (const name of ["native", "wasm"] as const) {
    try {
      await resolveDevice(name);
      names.push(name);
    } catch (error) {
      missing.push({ name, unit: "", note: (error as Error).message });
    }
  }
  return { names, missing };
}
