/**
 * The devices by name: each is an entry of one table, and nothing else asks which one it is.
 *
 * @module
 */

import { lowerModel } from "../onnx/lower.ts";
import type { Precision } from "../precision.ts";
import { openNative, prepareModel as prepareNative } from "./cpu/native.ts";
import { nativeLibraryPath, TELEMETRY_SWITCH } from "./cpu/ort_library.ts";
import { KEPT } from "./cpu/simd.ts";
import { openWasm } from "./cpu/wasm.ts";
import { wasmFolders } from "./cpu/wasm_module.ts";
import type { Device } from "./device.ts";
import { openReference } from "./reference.ts";
import { chooseAdapters, webgpuAdapters } from "./webgpu/adapters.ts";
import { type ModelValue, prepareModel as prepareWebgpu } from "./webgpu/prepare.ts";
import { type Adapter, type AdapterKind, isHardware } from "./webgpu/vulkan.ts";
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
interface FindRequest {
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
interface DeviceEntry {
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

/** What a device can hold. */
export interface DeviceLimits {
  /** Its name for a person: that of its adapter, where it has one. */
  readonly where: string;
  /** Bytes of the largest tensor; Infinity where only memory is the limit. */
  readonly tensorBytes: number;
  /** Bytes of memory of its own; Infinity where it has none or nobody knows. */
  readonly memoryBytes: number;
  /** Whether its tensors take memory of this machine. */
  readonly isHostMemory: boolean;
  /** Whether it computes models that are stored in FP16. */
  readonly hasF16: boolean;
}

/** Adapters whose memory is that of the machine. */
const SHARING: readonly AdapterKind[] = ["integrated", "software"];

/**
 * What a chosen device can hold.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { deviceLimits } from "@troupe/troupe/kernels";
 *
 * const { tensorBytes, isHostMemory } = deviceLimits({ name: "reference" });
 * assert.equal(tensorBytes, Infinity);
 * assert.ok(isHostMemory);
 * ```
 */
export function deviceLimits({ name, adapter }: DeviceChoice): DeviceLimits {
  if (!adapter) {
    const none = { tensorBytes: Infinity, memoryBytes: Infinity };
    return { where: name, ...none, isHostMemory: true, hasF16: true };
  }
  const { name: where, kind, maxBufferBytes, memoryBytes, hasF16 } = adapter;
  return {
    where,
    tensorBytes: maxBufferBytes,
    // What software says of its memory is no limit: that of the machine is.
    memoryBytes: kind === "software" ? Infinity : memoryBytes || Infinity,
    isHostMemory: SHARING.includes(kind),
    hasF16,
  };
}

/**
 * The largest value of a model as a device computes it: an input, an output, or what lies in between;
 * undefined for devices whose tensors have no limit but memory.
 *
 * @param model in ONNX.
 * @throws {Error} when the device cannot compute the model.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { encodeModel, Graph, largestValue } from "@troupe/troupe/kernels";
 *
 * const g = new Graph(), x = g.input("x", [2, 8]);
 * const product = g.matmul(x, g.transpose(x, [1, 0])); // [2, 2]
 * const model = encodeModel(g, [{ name: "x", value: x }], [{ name: "y", value: product }]);
 * assert.equal(largestValue("webgpu", model)!.byteLength, 4 * 2 * 8);
 * assert.equal(largestValue("native", model), undefined);
 * ```
 */
export function largestValue(name: DeviceName, model: Uint8Array): ModelValue | undefined {
  return DEVICES[name].largestValue?.(model);
}

/**
 * Bytes that opening a device takes in each process, and more in each isolate.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { libraryBytes } from "@troupe/troupe/kernels";
 *
 * assert.deepEqual(libraryBytes("reference"), { process: 0, isolate: 0 });
 * ```
 */
export function libraryBytes(name: DeviceName): { process: number; isolate: number } {
  return DEVICES[name].libraryBytes;
}

export { type NativeOptions, openNative } from "./cpu/native.ts";
export { nativeLibraryPath } from "./cpu/ort_library.ts";
export { ORT_VERSION } from "./cpu/ort_library.ts";

export { openReference } from "./reference.ts";

export { openWasm } from "./cpu/wasm.ts";
export type { Adapter, AdapterKind, RefusedAdapter } from "./webgpu/vulkan.ts";
export type { FoundAdapters } from "./webgpu/adapters.ts";
export { type AdapterOptions, webgpuAdapters } from "./webgpu/adapters.ts";
export type { ModelValue } from "./webgpu/prepare.ts";
export * from "./webgpu/webgpu.ts";

/** A device as users name it: `auto`, or a device, or one and the number of its adapter. */
export type DeviceSpec = "auto" | DeviceName | `webgpu:${number}`;

/** What users may name, in words. */
export const DEVICE_SPECS: readonly string[] = [
  "auto",
  ...DEVICE_NAMES.flatMap((name) => name === "webgpu" ? [name, `${name}:N`] : [name]),
];

/** Options of {@linkcode resolveDevices}. */
export interface ResolveOptions {
  /** Receives which device `auto` chose and why, and a line before a download. */
  readonly announce?: ((line: string) => void) | undefined;
  /**
   * Numbers of adapters, of which `auto` then means a device. Default: all GPUs; where there is none,
   * the first of the others.
   */
  readonly adapters?: readonly number[] | undefined;
  /** In which type stages store, fp32 by default: fp16 rules out adapters that do not compute in it. */
  readonly precision?: Precision | undefined;
  /** Whether several isolates of a process will open it, which rules some out for `auto`. */
  readonly isShared?: boolean | undefined;
}

/** What `auto` tries, one after the other: a GPU, which is no software, comes first. */
const AUTO: readonly DeviceName[] = ["webgpu", "native", "wasm"];

const isDeviceName = (name: string): name is DeviceName => Object.hasOwn(DEVICES, name);

/** A device and the number of its adapter, as they are written. */
const NUMBERED = /^(.+):(\d{1,9})$/;

/** What a text names: undefined where that is nothing. */
function readSpec(text: string): { name: "auto" | DeviceName; adapter?: number } | undefined {
  if (text === "auto" || isDeviceName(text)) return { name: text };
  const [, name = "", number] = NUMBERED.exec(text) ?? [];
  if (!isDeviceName(name) || !DEVICES[name].hasAdapters) return undefined;
  return { name, adapter: Number(number) };
}

/**
 * Whether a text names a device, as {@linkcode resolveDevice} takes it.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { isDeviceSpec } from "@troupe/troupe/kernels";
 *
 * assert.ok(["auto", "wasm", "webgpu", "webgpu:1"].every(isDeviceSpec));
 * assert.ok(!["", "abacus", "wasm:1", "webgpu:-1"].some(isDeviceSpec));
 * ```
 */
export function isDeviceSpec(text: string): text is DeviceSpec {
  return readSpec(text) !== undefined;
}

/**
 * Decides what a name means on this machine: `auto` is webgpu where there is a GPU, else native where
 * its library loads, else wasm; `webgpu:1` is the second adapter.
 *
 * Decide once in the main isolate and pass the choice on: each worker then opens the same device
 * with `openDevice(choice.name, choice)`.
 *
 * @param announce receives which device `auto` chose and why, and a line before a download.
 * @throws {RangeError} when there is no device of this name, or no adapter of this number.
 * @throws {Deno.errors.Interrupted} when the process that looks for the native library is killed
 * again and again.
 * @throws {Error} when a device was asked for by name and this machine has not what it needs.
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
  return (await resolveDevices(name, { announce }))[0];
}

/**
 * Decides what a name means on this machine, as {@linkcode resolveDevice} does, for any number of
 * workers: they take the choices one after the other, and then from the first again.
 *
 * @throws {RangeError} {@linkcode Error} as `resolveDevice`, and when adapters are asked for twice or
 * of a device that has none, or do not compute in the precision.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { resolveDevices } from "@troupe/troupe/kernels";
 *
 * assert.deepEqual(await resolveDevices("reference"), [{ name: "reference" }]);
 * await assert.rejects(resolveDevices("reference", { adapters: [0] }), RangeError);
 * ```
 */
export async function resolveDevices(
  spec: string,
  options: ResolveOptions = {},
): Promise<readonly [DeviceChoice, ...DeviceChoice[]]> {
  const { announce = () => {}, adapters, precision, isShared = false } = options;
  const read = readSpec(spec);
  if (!read) {
    throw new RangeError(
      `Cannot open a device: its name must be ${DEVICE_SPECS.join(", ")}, received "${spec}"`,
    );
  }
  if (read.adapter !== undefined && adapters) {
    throw new RangeError(
      `Cannot open a device: its adapters must be named once, received ${spec} and ${adapters}`,
    );
  }
  const wanted = read.adapter === undefined ? adapters : [read.adapter];
  // Who names adapters wants a device that has some.
  const meant = read.name === "auto" && wanted
    ? DEVICE_NAMES.find((name) => DEVICES[name].hasAdapters)!
    : read.name;
  if (wanted && meant !== "auto" && !DEVICES[meant].hasAdapters) {
    throw new RangeError(
      `Cannot open a device: adapters must be those of webgpu, received ${wanted} for ${meant}`,
    );
  }
  const request = { announce, adapters: wanted, precision, isAutomatic: meant === "auto" };
  const names = meant === "auto"
    ? AUTO.filter((name) => !isShared || !needsProcess(name))
    : [meant];
  return await firstDevice(names, request);
}

/** The first device that this machine has. */
async function firstDevice(
  names: readonly DeviceName[],
  request: FindRequest,
  reasons = "",
): Promise<readonly [DeviceChoice, ...DeviceChoice[]]> {
  const [name, ...others] = names as readonly [DeviceName, ...DeviceName[]];
  const { announce, isAutomatic } = request;
  try {
    const found = await DEVICES[name].find?.(request) ?? [{}];
    const choices = found.map((one): DeviceChoice => ({ name, ...one })),
      [choice, ...more] = choices;
    if (!choice) return await firstDevice(others, request, reasons);
    const adapters = choices.flatMap(({ adapter }) => adapter?.name ?? []);
    const where = adapters.length > 0 ? `, on the GPU ${adapters.join(", ")}` : "";
    if (isAutomatic) announce(`device ${name}${where}${reasons}`);
    return [choice, ...more];
  } catch (error) {
    // It may well be there: another device, and with it other bits, must not depend on that.
    if (error instanceof Deno.errors.Interrupted || others.length === 0) throw error;
    const reason = ` (${name} is not available: ${(error as Error).message})`;
    return await firstDevice(others, request, reasons + reason);
  }
}

/**
 * Opens a device by name; see {@linkcode resolveDevice} for `auto`.
 *
 * @throws {RangeError} when there is no device of this name, or it cannot have so many threads.
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
  assertThreads("Cannot open", choice.name, options.threads ?? 1);
  return await DEVICES[choice.name].open({ ...options, ...choice });
}
