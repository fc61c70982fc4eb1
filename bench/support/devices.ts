/**
 * The devices that are measured.
 *
 * @module
 */

import { type DeviceName, resolveDevice, webgpuAdapters } from "../../kernels/mod.ts";
import type { Row } from "./row.ts";

/** The fast devices, and those of them that this machine has. */
export interface BenchDevices {
  readonly names: readonly DeviceName[];
  /** A row for each that is missing, with the reason. */
  readonly missing: readonly Row[];
}

/**
 * Looks which devices can be opened.
 *
 * @param withGpu whether a GPU is one of them; software in its place never is.
 */
export async function benchDevices(withGpu = false): Promise<BenchDevices> {
  const names: DeviceName[] = [], missing: Row[] = [];
  for (const name of ["native", "wasm", ...withGpu ? ["webgpu"] as const : []] as const) {
    try {
      if (name === "webgpu") await mustHaveGpu();
      else await resolveDevice(name);
      names.push(name);
    } catch (error) {
      missing.push({ name, unit: "", note: (error as Error).message });
    }
  }
  return { names, missing };
}

/** Software would take minutes, and its figures say nothing about a GPU. */
async function mustHaveGpu(): Promise<void> {
  const { adapters } = await webgpuAdapters({ isHardwareOnly: true });
  if (adapters.length > 0) return;
  throw new Error("there is no GPU; `deno task bench gpu` measures software in its place, too");
}
