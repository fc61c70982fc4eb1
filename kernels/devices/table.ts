/**
 * The devices by name: each is an entry of one table, and nothing else asks which one it is.
 *
 * @module
 */

import type { Precision } from "../layers/precision.ts";
import { lowerModel } from "../onnx/fused_ops.ts";
import type { Device } from "./device.ts";
import { openNative } from "./native/native.ts";
import { prepareModel as prepareNative } from "./native/prepare_model.ts";
import { nativeLibraryPath } from "./onnx_runtime/native_library.ts";
import { TELEMETRY_SWITCH } from "./onnx_runtime/telemetry.ts";
import { openReference } from "./reference/reference.ts";
import { KEPT } from "./simd/own_nodes.ts";
import { openWasm } from "./wasm/wasm.ts";
import { wasmFolders } from "./wasm/wasm_module.ts";
import { type Adapter, isHardware } from "./webgpu/adapters/adapter.ts";
import { chooseAdapters, webgpuAdapters } from "./webgpu/adapters/webgpu_adapters.ts";
import type { ModelValue } from "./webgpu/model/largest_value.ts";
import { prepareModel as prepareWebgpu } from "./webgpu/model/prepare_model.ts";
import { openWebgpu } from "./webgpu/webgpu.ts";

/** The devices that exist. */
export const DEVICE_NAMES = ["native", "webgpu", "wasm", "reference"] as const;

/** The name of a device. */
export type DeviceName = typeof DEVICE_NAMES[number];

/** A choice of device that other isolates and processes can repeat without looking again. */
export interface DeviceChoice {
  /** The device's name. */
  readonly name: DeviceName;
  /** The native ONNX Runtime library. */
  readonly library?: string;
  /** The adapter, of devices that have some. */
  readonly adapter?: Adapter;
  /** Threads within one operation. Default 1. */
  readonly threads?: number;
}

/** Options of {@linkcode openDevice}. */
export interface DeviceOptions {
  /**
   * Threads within one operation, 1 by default; the native device can have more. Some bits depend on
   * how many there are, though not on what else computes.
   */
  threads?: number;
  /** Whether runs of the native device take the isolate's own thread; those of the others always do. */
  isBlocking?: boolean;
  /** The native ONNX Runtime library; found, and fetched where absent, by default. */
  library?: string;
  /** The adapter of the webgpu device; by default the first. */
  adapter?: Adapter;
  /** Receives lines for the user: the choice that `auto` makes, a download that starts. */
  announce?: (line: string) => void;
}

/** What is asked of {@linkcode DeviceEntry.find}. */
export interface FindRequest {
  /** Receives lines for the user. */
  readonly announce: (line: string) => void;
  /** Numbers of adapters. Default: all GPUs; where there is none, the first of the others. */
  readonly adapters?: readonly number[] | undefined;
  /** In which type stages store: fp16 rules out adapters that do not compute in it. */
  readonly precision?: Precision | undefined;
  /** Whether `auto` asks. */
  readonly isAutomatic: boolean;
}

/** What a process may do, by the kinds of permissions as Deno names them; `true`: all of a kind. */
export interface DevicePermissions {
  /** Files and folders. */
  readonly read?: true | readonly string[];
  /** Environment variables. */
  readonly env?: true | readonly string[];
  /** Libraries. */
  readonly ffi?: true;
}

/** What is to be known of a device before it is opened. */
export interface DeviceEntry {
  /** Whether tensors lie in a memory of its own, apart from that of the host. */
  readonly hasOwnMemory: boolean;
  /** See {@linkcode Device.hasFreeViews}. */
  readonly hasFreeViews: boolean;
  /** Whether only one isolate of a process can have it open. */
  readonly isAlone: boolean;
  /** Whether several threads can share an operation. */
  readonly hasThreads?: boolean;
  /** Whether it has adapters, which have numbers. */
  readonly hasAdapters?: boolean;
  /**
   * Finds what the device needs on this machine, once for each adapter that serves; absent where it
   * needs nothing. Where nobody asked for it by name, it may find nothing.
   *
   * @throws {Error} when what it needs is not there.
   */
  readonly find?: (request: FindRequest) => Promise<readonly Omit<DeviceChoice, "name">[]>;
  /** The least that a process must be permitted for a device that was found. */
  readonly permissions: (choice: DeviceChoice) => DevicePermissions;
  /**
   * What opening it takes, before anything is compiled: its library with all that it knows of
   * operations, in each process; and in each isolate, where each has the library anew.
   */
  readonly libraryBytes: { readonly process: number; readonly isolate: number };
  /** A model as it is computed: in operations that the device has. */
  readonly prepare: (model: Uint8Array) => Uint8Array;
  /** The largest value of a model as it is computed, where tensors are limited in size. */
  readonly largestValue?: (model: Uint8Array) => ModelValue | undefined;
  /** Opens the device. */
  readonly open: (options: DeviceOptions) => Promise<Device>;
}

const MIB = 2 ** 20;

/** The table. */
export const DEVICES: Readonly<Record<DeviceName, DeviceEntry>> = {
  native: {
    hasOwnMemory: false,
    hasFreeViews: true,
    isAlone: false,
    hasThreads: true,
    find: findNative,
    // Deno lets nobody read a pointer who may load one library only.
    permissions: () => ({ ffi: true, env: [TELEMETRY_SWITCH] }),
    libraryBytes: { process: 40 * MIB, isolate: 0 },
    prepare: prepareNative,
    open: openNative,
  },
  webgpu: {
    hasOwnMemory: true,
    hasFreeViews: false,
    isAlone: true,
    hasAdapters: true,
    find: findWebgpu,
    // The libraries of drivers are found by their names, where the environment says.
    permissions: () => ({ env: true, ffi: true }),
    // Without its driver, of which nobody knows.
    libraryBytes: { process: 40 * MIB, isolate: 0 },
    prepare: (model) => prepareWebgpu(model).bytes,
    largestValue: (model) => prepareWebgpu(model).largest,
    open: openWebgpu,
  },
  wasm: {
    hasOwnMemory: true,
    hasFreeViews: true,
    isAlone: false,
    permissions: () => ({ read: wasmFolders() }),
    libraryBytes: { process: 0, isolate: 120 * MIB },
    prepare: (model) => lowerModel(model, KEPT),
    open: openWasm,
  },
  reference: {
    hasOwnMemory: false,
    hasFreeViews: true,
    isAlone: false,
    permissions: () => ({}),
    libraryBytes: { process: 0, isolate: 0 },
    prepare: lowerModel,
    open: openReference,
  },
};

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

/**
 * Whether several threads of a device can share an operation.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { hasThreads } from "@troupe/troupe/kernels";
 *
 * assert.ok(hasThreads("native"));
 * assert.ok(!hasThreads("wasm"));
 * ```
 */
export function hasThreads(name: DeviceName): boolean {
  return DEVICES[name].hasThreads ?? false;
}

/**
 * Refuses more threads than a device can have.
 *
 * @param what needs the device, for the message: "Cannot train on".
 * @throws {RangeError} when it is asked for more than one and has no more.
 */
export function assertThreads(what: string, name: DeviceName, threads: number): void {
  if (threads === 1 || hasThreads(name)) return;
  const able = DEVICE_NAMES.filter(hasThreads).join(", ");
  throw new RangeError(
    `${what} ${name}: threads must be 1, as only ${able} has more, received ${threads}`,
  );
}

/**
 * The least that a process must be permitted to open a device, and to compute on it.
 *
 * @param choice what was found by {@linkcode resolveDevices}.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { devicePermissions } from "@troupe/troupe/kernels";
 *
 * assert.deepEqual(devicePermissions({ name: "reference" }), {});
 * ```
 */
export function devicePermissions(choice: DeviceChoice): DevicePermissions {
  return DEVICES[choice.name].permissions(choice);
}

/** Finds the library and opens it once, to learn whether it loads. */
async function findNative({ announce }: FindRequest): Promise<[{ library: string }]> {
  const library = await nativeLibraryPath(announce);
  (await openNative({ library })).close();
  return [{ library }];
}

/** Finds the adapters on which it computes; `auto` computes on no software. */
async function findWebgpu({ announce, adapters, precision, isAutomatic }: FindRequest) {
  const found = await webgpuAdapters({ announce, isHardwareOnly: isAutomatic });
  if (isAutomatic && found.adapters.length + found.refused.length === 0) return [];
  const library = await nativeLibraryPath(announce);
  const chosen = chooseAdapters(found, adapters, precision);
  const software = chosen.find((one) => !isHardware(one));
  if (software) announce(`device webgpu computes on ${software.name}, which is software, no GPU`);
  return chosen.map((adapter) => ({ library, adapter }));
}
