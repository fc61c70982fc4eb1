/**
 * The table of devices by name, with the choice and opening of a device.
 *
 * @module
 */

import { assertInput, refusal } from "../errors.ts";
import { lowerModel } from "../onnx/lower.ts";
import { scratchBytes } from "../onnx/scratch.ts";
import type { Precision } from "../precision.ts";
import { nativeIntermediate, type NativeOptions, openNative } from "./cpu/native.ts";
import { findOneDnn, type MatrixLibrary } from "./cpu/onednn.ts";
import { nativeLibraryPath, ORT_VERSION } from "./cpu/ort_library.ts";
import type { IntermediateBytes } from "./cpu/parts.ts";
import { KEPT } from "./cpu/simd.ts";
import { openWasm } from "./cpu/wasm.ts";
import type { Device } from "./device.ts";
import { openReference } from "./reference.ts";
import { chooseAdapters, webgpuAdapters } from "./webgpu/adapters.ts";
import { type ModelValue, prepareModel as prepareWebgpu } from "./webgpu/prepare.ts";
import { type Adapter, type AdapterKind, isHardware } from "./webgpu/vulkan.ts";
import { openWebgpu } from "./webgpu/webgpu.ts";

/** Names of the devices. */
export const DEVICE_NAMES = ["native", "webgpu", "wasm", "reference"] as const;

/** The name of a device. */
export type DeviceName = typeof DEVICE_NAMES[number];

/** Options of {@linkcode openDevice}. A device ignores the options of other devices. */
export interface DeviceOptions extends NativeOptions {
  /** The adapter of the webgpu device. Default: the first. */
  adapter?: Adapter;
  /**
   * True if the webgpu device records the commands of each kernel and replays them: the same bits with
   * less CPU time, but each binding of a kernel keeps its intermediate values in memory that no plan
   * counts. Default false.
   */
  capture?: boolean;
}

/** A chosen device, which other isolates and processes can open without a new search. */
export interface DeviceChoice
  extends Readonly<Pick<DeviceOptions, "library" | "matrix" | "adapter" | "threads" | "capture">> {
  /** The device's name. */
  readonly name: DeviceName;
}

/** Argument of {@linkcode DeviceEntry.find}. */
interface FindRequest extends Omit<ResolveOptions, "isShared"> {
  readonly announce: (line: string) => void;
  /** True for a search by `auto`. */
  readonly isAutomatic: boolean;
}

/** Properties of a device that are known before it is opened. */
interface DeviceEntry {
  /**
   * True if tensors are in separate memory, not in that of the host, as in the heap of wasm: a limit of
   * the device does not include memory of the host.
   */
  readonly hasOwnMemory?: boolean;
  /** See {@linkcode Device.hasFreeViews}. */
  readonly hasFreeViews: boolean;
  /** True if only one isolate of a process can open it, so that each worker needs a process. */
  readonly isAlone?: boolean;
  /** True if several threads can share an operation. */
  readonly hasThreads?: boolean;
  /** True if it has numbered adapters. */
  readonly hasAdapters?: boolean;
  /** True if it is used for products in BF16, as it has fast ones or is the reference. */
  readonly hasBf16?: boolean;
  /**
   * Finds the requirements of the device on this machine, once for each usable adapter; undefined if it
   * needs nothing. A search by `auto` may return an empty list.
   *
   * @throws {Error} when a requirement is missing.
   */
  readonly find?: (request: FindRequest) => Promise<readonly Omit<DeviceChoice, "name">[]>;
  /**
   * Bytes of opening it, before anything is compiled: of its library with all operations, in each
   * process; and in each isolate, where each loads the library again.
   */
  readonly libraryBytes: { readonly process: number; readonly isolate: number };
  /** Returns the memory of a model's intermediate values. */
  readonly intermediate: (model: Uint8Array) => IntermediateBytes;
  /**
   * Returns the largest value of a model as the device computes it: an input, an output, or an
   * intermediate value. Absent if only memory limits the size of tensors.
   *
   * @throws {Error} when the device cannot compute the model.
   */
  readonly largestValue?: (model: Uint8Array) => ModelValue | undefined;
  /** Opens the device. */
  readonly open: (options: DeviceOptions) => Promise<Device>;
}

const MIB = 2 ** 20;

const inLibrary = (model: Uint8Array): IntermediateBytes => ({
  library: scratchBytes(model),
  shared: 0,
});

/** The properties of each device. */
export const DEVICES: Readonly<Record<DeviceName, DeviceEntry>> = {
  native: {
    hasFreeViews: true,
    hasThreads: true,
    hasBf16: true,
    find: findNative,
    libraryBytes: { process: 40 * MIB, isolate: 0 },
    intermediate: nativeIntermediate,
    open: openNative,
  },
  webgpu: {
    hasOwnMemory: true,
    hasFreeViews: false,
    isAlone: true,
    hasAdapters: true,
    find: findWebgpu,
    // Without its driver, whose memory is unknown.
    libraryBytes: { process: 40 * MIB, isolate: 0 },
    intermediate: (model) => inLibrary(prepareWebgpu(model).bytes),
    largestValue: (model) => prepareWebgpu(model).largest,
    open: openWebgpu,
  },
  wasm: {
    hasOwnMemory: true,
    hasFreeViews: true,
    libraryBytes: { process: 0, isolate: 120 * MIB },
    intermediate: (model) => inLibrary(lowerModel(model, KEPT)),
    open: openWasm,
  },
  reference: {
    hasFreeViews: true,
    hasBf16: true,
    libraryBytes: { process: 0, isolate: 0 },
    intermediate: (model) => inLibrary(lowerModel(model)),
    open: openReference,
  },
};

/**
 * Throws if a device cannot have this number of threads.
 *
 * @param what start of the message: "Cannot train on".
 * @throws {RangeError} when `threads` is not 1 and the device has only one.
 */
export function assertThreads(what: string, name: DeviceName, threads: number): void {
  if (threads === 1 || DEVICES[name].hasThreads) return;
  const able = DEVICE_NAMES.filter((one) => DEVICES[one].hasThreads).join(", ");
  const must = `threads must be 1, as only ${able} has more`;
  throw new RangeError(`${what} ${name}: ${must}, received ${threads}`);
}

/** Finds the libraries and opens them once to check that they load. */
async function findNative({ announce, precision, onednn }: FindRequest) {
  const matrix = precision === "bf16" ? findMatrixLibrary(onednn) : undefined;
  const library = await nativeLibraryPath(announce);
  (await openNative({ library, ...matrix && { matrix } })).close();
  return [{ library, ...matrix && { matrix } }];
}

/**
 * Returns the library for products in BF16: oneDNN, or on ARM MLAS, which is part of ONNX Runtime.
 *
 * @param onednn path of oneDNN. Default: the installed one.
 * @throws {Error} when it or the CPU is not able to, with the package to install.
 */
export function findMatrixLibrary(onednn?: string): MatrixLibrary {
  const isArm = Deno.build.arch === "aarch64" && onednn === undefined;
  return isArm ? { name: "MLAS", version: ORT_VERSION } : findOneDnn(onednn);
}

/** Finds the adapters; `auto` excludes software adapters. */
async function findWebgpu({ announce, adapters, precision, isAutomatic }: FindRequest) {
  const found = await webgpuAdapters({ announce, isHardwareOnly: isAutomatic });
  if (isAutomatic && found.adapters.length + found.refused.length === 0) return [];
  const library = await nativeLibraryPath(announce);
  const chosen = chooseAdapters(found, adapters, precision);
  const software = chosen.find((one) => !isHardware(one));
  if (software) announce(`device webgpu computes on ${software.name}, which is software, no GPU`);
  return chosen.map((adapter) => ({ library, adapter }));
}

/** Limits of a device. */
export interface DeviceLimits {
  /** Its name for messages: that of its adapter, if any. */
  readonly where: string;
  /** Bytes of the largest tensor; Infinity if only limited by memory. */
  readonly tensorBytes: number;
  /** Bytes of separate memory; Infinity if there is none or its size is unknown. */
  readonly memoryBytes: number;
  /** True if its tensors use memory of this machine. */
  readonly isHostMemory: boolean;
  /** True if it computes models that are stored in FP16. */
  readonly hasF16: boolean;
}

/** Kinds of adapters that use the machine's memory. */
const SHARING: readonly AdapterKind[] = ["integrated", "software"];

/**
 * Returns the limits of a chosen device.
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
    // The reported memory of a software adapter is not its limit: the machine's memory is.
    memoryBytes: kind === "software" ? Infinity : memoryBytes || Infinity,
    isHostMemory: SHARING.includes(kind),
    hasF16,
  };
}

/** A device as users name it: `auto`, a device, or a device with the number of its adapter. */
export type DeviceSpec = "auto" | DeviceName | `webgpu:${number}`;

/** The forms of {@linkcode DeviceSpec}, for messages. */
export const DEVICE_SPECS: readonly string[] = [
  "auto",
  ...DEVICE_NAMES.flatMap((name) => name === "webgpu" ? [name, `${name}:N`] : [name]),
];

/** Options of {@linkcode resolveDevices}. */
interface ResolveOptions {
  /** Receives the choice of `auto` with its reason, and a line before a download. */
  readonly announce?: ((line: string) => void) | undefined;
  /**
   * Numbers of adapters; with them `auto` means a device with adapters. Default: all GPUs; without a
   * GPU, the first other adapter.
   */
  readonly adapters?: readonly number[] | undefined;
  /**
   * Default fp32. Fp16 excludes adapters that do not compute in it; bf16 excludes other devices than
   * native and reference.
   */
  readonly precision?: Precision | undefined;
  /** Path of oneDNN, for bf16 on the native device. Default: the installed one. */
  readonly onednn?: string | undefined;
  /** True if several isolates of a process will open it, which excludes some devices for `auto`. */
  readonly isShared?: boolean | undefined;
}

/** Devices in the order in which `auto` tries them; software adapters do not count as webgpu. */
const AUTO: readonly DeviceName[] = ["webgpu", "native", "wasm"];

const isDeviceName = (name: string): name is DeviceName => Object.hasOwn(DEVICES, name);

/** A device and the number of its adapter. */
const NUMBERED = /^(.+):(\d{1,9})$/;

/** Parses the name of a device; undefined if there is none of this name. */
function readSpec(text: string): { name: "auto" | DeviceName; adapter?: number } | undefined {
  if (text === "auto" || isDeviceName(text)) return { name: text };
  const [, name = "", number] = NUMBERED.exec(text) ?? [];
  if (!isDeviceName(name) || !DEVICES[name].hasAdapters) return undefined;
  return { name, adapter: Number(number) };
}

/**
 * Returns whether a text names a device, as {@linkcode resolveDevice} accepts it.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.ok(["auto", "wasm", "webgpu", "webgpu:1"].every(isDeviceSpec));
 * assert.ok(!["", "abacus", "wasm:1", "webgpu:-1"].some(isDeviceSpec));
 * ```
 */
export function isDeviceSpec(text: string): text is DeviceSpec {
  return readSpec(text) !== undefined;
}

/**
 * Finds the device of a name on this machine: `auto` is webgpu if there is a GPU, otherwise native if
 * its library loads, otherwise wasm; `webgpu:1` is the second adapter.
 *
 * Call it once in the main isolate and pass the choice on: each worker then opens the same device
 * with `openDevice(choice.name, choice)`.
 *
 * @param announce receives the choice of `auto` with its reason, and a line before a download.
 * @throws {RangeError} when there is no device of this name, or no adapter of this number.
 * @throws {Deno.errors.Interrupted} when the process that finds the native library is killed
 * repeatedly.
 * @throws {Error} when a requirement of a named device is missing on this machine.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
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
 * Finds the devices of a name on this machine, as {@linkcode resolveDevice} does, for any number of
 * workers: worker i uses choice i modulo their number.
 *
 * @throws {RangeError} {@linkcode Error} as `resolveDevice`, and when adapters are named twice or for a
 * device without adapters, or when they do not compute in the precision.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.deepEqual(await resolveDevices("reference"), [{ name: "reference" }]);
 * await assert.rejects(resolveDevices("reference", { adapters: [0] }), RangeError);
 * ```
 */
export async function resolveDevices(
  spec: string,
  options: ResolveOptions = {},
): Promise<readonly [DeviceChoice, ...DeviceChoice[]]> {
  const { announce = () => {}, adapters, precision, onednn, isShared = false } = options;
  const isUnread = onednn !== undefined && precision !== "bf16";
  assertInput(!isUnread, "open a device", "onednn must be left out without precision bf16", onednn);
  const read = readSpec(spec);
  if (!read) {
    throw refusal("open a device", `its name must be ${DEVICE_SPECS.join(", ")}`, `"${spec}"`);
  }
  if (read.adapter !== undefined && adapters) {
    throw refusal("open a device", "its adapters must be named once", `${spec} and ${adapters}`);
  }
  const wanted = read.adapter === undefined ? adapters : [read.adapter];
  // Numbers of adapters imply a device that has adapters.
  const meant = read.name === "auto" && wanted
    ? DEVICE_NAMES.find((name) => DEVICES[name].hasAdapters)!
    : read.name;
  if (wanted && meant !== "auto" && !DEVICES[meant].hasAdapters) {
    throw refusal("open a device", "adapters must be those of webgpu", `${wanted} for ${meant}`);
  }
  const isAutomatic = meant === "auto";
  const request = { announce, adapters: wanted, precision, onednn, isAutomatic };
  const able = (name: DeviceName) => precision !== "bf16" || DEVICES[name].hasBf16;
  const names = isAutomatic
    ? AUTO.filter((name) => able(name) && !(isShared && DEVICES[name].isAlone))
    : [meant];
  if (!isAutomatic && !able(meant)) {
    const must = `for precision bf16 it must be ${DEVICE_NAMES.filter(able).join(" or ")}`;
    throw refusal("open a device", must, meant);
  }
  return await firstDevice(names, request);
}

/** Returns the first device that this machine has. */
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
    // The device may exist, and an interruption must not change the device and with it the bits.
    if (error instanceof Deno.errors.Interrupted || others.length === 0) throw error;
    const reason = ` (${name} is not available: ${(error as Error).message})`;
    return await firstDevice(others, request, reasons + reason);
  }
}

/**
 * Opens a device by name: `auto` is webgpu if there is a GPU, otherwise native if its library loads,
 * otherwise wasm; `webgpu:1` is the second adapter.
 *
 * @throws {RangeError} when there is no device of this name, or it cannot have this many threads.
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
