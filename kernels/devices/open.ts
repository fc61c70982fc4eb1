/**
 * A device by its name: what that means on this machine, and the device itself.
 *
 * @module
 */

import type { Precision } from "../layers/precision.ts";
import type { Device } from "./device.ts";
import {
  assertThreads,
  DEVICE_NAMES,
  type DeviceChoice,
  type DeviceName,
  type DeviceOptions,
  DEVICES,
  type FindRequest,
  needsProcess,
} from "./table.ts";

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
