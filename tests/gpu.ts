/**
 * The adapter of tests: SwiftShader, which Debian's package chromium carries, so that the results do
 * not depend on a machine. A process has one isolate that uses it, so tests that do are in files whose
 * names end in `_alone_test.ts`, or start processes.
 */

import { type Device, openDevice } from "../kernels/mod.ts";
import type { RegisterTest } from "./devices.ts";
import { testNeeding } from "./needs.ts";

const ICD = "/usr/lib/chromium/vk_swiftshader_icd.json";

function isFile(path: string): boolean {
  try {
    return Deno.statSync(path).isFile;
  } catch {
    return false;
  }
}

/** Returns whether the loader of drivers is there, by the name with which the GPU's library looks for it. */
function hasVulkan(): boolean {
  try {
    Deno.dlopen("libvulkan.so.1", {}).close();
    return true;
  } catch {
    return false;
  }
}

/** Returns whether this machine has SwiftShader. */
export const hasSwiftShader = isFile(ICD) && hasVulkan();

/** Environment in which a process sees only SwiftShader. */
export const SWIFTSHADER: Readonly<Record<string, string>> = { VK_DRIVER_FILES: ICD };

if (hasSwiftShader) {
  for (const [name, value] of Object.entries(SWIFTSHADER)) Deno.env.set(name, value);
}

/** Makes two drivers in a folder, each SwiftShader with a separate library: two adapters. */
export function writeDrivers(folder: string): void {
  for (const i of [0, 1]) {
    const library_path = `${folder}/${i}.so`;
    Deno.copyFileSync(ICD.replace("vk_swiftshader_icd.json", "libvk_swiftshader.so"), library_path);
    const driver = { file_format_version: "1.0.0", ICD: { library_path, api_version: "1.0.5" } };
    Deno.writeTextFileSync(`${folder}/${i}.json`, JSON.stringify(driver));
  }
}

/** Registers a test that needs the adapter; where there is none it is skipped, by its name. */
export const gpuTest: RegisterTest = (name, fn) =>
  testNeeding({ isThere: hasSwiftShader, reason: "Debian's chromium and libvulkan1" }, name, fn);

/**
 * Keeps the GPU open from the first test of a file to the last: shaders that were compiled for one
 * serve the others, and compiling takes most of the time of a small run.
 */
export function keepGpuOpen(): void {
  if (!hasSwiftShader) return;
  let device: Device | undefined;
  Deno.test.beforeAll(async () => {
    device = await openDevice("webgpu");
  });
  Deno.test.afterAll(() => device?.close());
}
