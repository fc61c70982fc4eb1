/**
 * The devices by name: each is an entry of one table, and nothing else asks which one it is.
 *
 * @module
 */

import type { Device } from "./device.ts";
import { openNative } from "./native/native.ts";
import { nativeLibraryPath } from "./onnx_runtime/native_library.ts";
import { openReference } from "./reference/reference.ts";
import { openWasm } from "./wasm/wasm.ts";
import { openWebgpu } from "./webgpu/webgpu.ts";

/** The devices that exist. */
export const DEVICE_NAMES = ["native", "webgpu", "wasm", "reference"] as const;

/** The name of a device. */
export type DeviceName = typeof DEVICE_NAMES[number];

/** Options of {@linkcode openDevice}. */
export interface DeviceOptions {
  /** Threads within one operation of the native device, 1 by default. The others have one. */
  threads?: number;
  /** Whether runs of the native device take the isolate's own thread; those of the others always do. */
  isBlocking?: boolean;
  /** The native ONNX Runtime library; found, and fetched where absent, by default. */
  library?: string;
  /** Receives lines for the user: the choice that `auto` makes, a download that starts. */
  announce?: (line: string) => void;
}

/** What is to be known of a device before it is opened. */
interface DeviceEntry {
  /** Whether tensors lie in a memory of its own, apart from that of the host. */
  readonly hasOwnMemory: boolean;
  /** See {@linkcode Device.hasFreeViews}. */
  readonly hasFreeViews: boolean;
  /** Whether only one isolate of a process can have it open. */
  readonly isAlone: boolean;
  /**
   * Finds what the device needs on this machine; absent where that is nothing.
   *
   * @throws {Error} when it is not there.
   */
  readonly find?: (announce: (line: string) => void) => Promise<{ readonly library: string }>;
  /** Opens the device. */
  readonly open: (options: DeviceOptions) => Promise<Device>;
}

const DEVICES: Readonly<Record<DeviceName, DeviceEntry>> = {
  native: {
    hasOwnMemory: false,
    hasFreeViews: true,
    isAlone: false,
    find: findNative,
    open: openNative,
  },
  webgpu: {
    hasOwnMemory: true,
    hasFreeViews: false,
    isAlone: true,
    find: findWebgpu,
    open: openWebgpu,
  },
  wasm: { hasOwnMemory: true, hasFreeViews: true, isAlone: false, open: openWasm },
  reference: { hasOwnMemory: false, hasFreeViews: true, isAlone: false, open: openReference },
};

/** What `auto` tries, one after the other. */
const AUTO: readonly DeviceName[] = ["native", "wasm"];

const isDeviceName = (name: string): name is DeviceName => Object.hasOwn(DEVICES, name);

/**
 * Whether tensors of a device lie in a memory of its own, so that a limit of it does not count what
 * rests on the host.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { hasOwnMemory } from "@troupe/troupe/kernels";
 *
 * assert.ok(hasOwnMemory("wasm")); // its heap
 * assert.ok(!hasOwnMemory("native"));
 * ```
 */
export function hasOwnMemory(name: DeviceName): boolean {
  return DEVICES[name].hasOwnMemory;
}

/**
 * Whether views of a device are free; see {@linkcode Device.hasFreeViews}.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { hasFreeViews } from "@troupe/troupe/kernels";
 *
 * assert.ok(hasFreeViews("native"));
 * assert.ok(!hasFreeViews("webgpu")); // GPU tensors begin where their buffers begin
 * ```
 */
export function hasFreeViews(name: DeviceName): boolean {
  return DEVICES[name].hasFreeViews;
}

/**
 * Whether only one isolate of a process can have a device open, so that each worker needs a process.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { needsProcess } from "@troupe/troupe/kernels";
 *
 * assert.ok(needsProcess("webgpu"));
 * assert.ok(!needsProcess("native"));
 * ```
 */
export function needsProcess(name: DeviceName): boolean {
  return DEVICES[name].isAlone;
}

/** A choice of device that other isolates can repeat without looking again. */
export interface DeviceChoice {
  /** The device's name. */
  readonly name: DeviceName;
  /** The native ONNX Runtime library. */
  readonly library?: string;
}

/**
 * Decides what a name means on this machine: `auto` is native where its library loads, else wasm.
 *
 * Decide once in the main isolate and pass the choice on: each worker then opens the same device
 * with `openDevice(choice.name, choice)`.
 *
 * @param announce receives which device `auto` chose and why, and a line before a download.
 * @throws {RangeError} when there is no device of this name.
 * @throws {Deno.errors.Interrupted} when the process that looks for the native library is killed
 * again and again.
 * @throws {Error} when native was asked for by name and its library cannot be loaded.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { resolveDevice } from "@troupe/troupe/kernels";
 *
 * assert.deepEqual(await resolveDevice("wasm"), { name: "wasm" });
 * await assert.rejects(resolveDevice("abacus"), RangeError);
 * ```
 */
export async function resolveDevice(
  name: string,
  announce: (line: string) => void = () => {},
): Promise<DeviceChoice> {
  if (name === "auto") return await firstDevice(AUTO, announce);
  if (isDeviceName(name)) return { name, ...await DEVICES[name].find?.(announce) };
  throw new RangeError(
    `Cannot open a device: its name must be auto, ${DEVICE_NAMES.join(", ")}, received "${name}"`,
  );
}

/** The first device that this machine has. */
async function firstDevice(
  names: readonly DeviceName[],
  announce: (line: string) => void,
  reasons = "",
): Promise<DeviceChoice> {
  const [name, ...others] = names as readonly [DeviceName, ...DeviceName[]];
  try {
    const choice = await resolveDevice(name, announce);
    announce(`device ${name}${reasons}`);
    return choice;
  } catch (error) {
    // It may well be there: another device, and with it other bits, must not depend on that.
    if (error instanceof Deno.errors.Interrupted || others.length === 0) throw error;
    const reason = ` (${name} is not available: ${(error as Error).message})`;
    return await firstDevice(others, announce, reasons + reason);
  }
}

/** Finds the library and opens it once, to learn whether it loads. */
async function findNative(announce: (line: string) => void): Promise<{ library: string }> {
  const library = await nativeLibraryPath(announce);
  (await openNative({ library })).close();
  return { library };
}

async function findWebgpu(announce: (line: string) => void): Promise<{ library: string }> {
  return { library: await nativeLibraryPath(announce) };
}

/**
 * Opens a device by name; see {@linkcode resolveDevice} for `auto`.
 *
 * @throws {RangeError} when there is no device of this name, or `threads` is not from 1.
 * @throws {Error} when the device cannot be loaded.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { openDevice } from "@troupe/troupe/kernels";
 *
 * const device = await openDevice("reference");
 * const tensor = device.alloc("f32", [2]);
 * device.write(tensor, Float32Array.of(3, 4));
 * assert.deepEqual(await device.read(tensor), Float32Array.of(3, 4));
 * device.close();
 * ```
 */
export async function openDevice(name: string, options: DeviceOptions = {}): Promise<Device> {
  const choice = isDeviceName(name) && options.library !== undefined
    ? { name }
    : await resolveDevice(name, options.announce);
  return await DEVICES[choice.name].open({ ...options, ...choice });
}
