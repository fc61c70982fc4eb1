/**
 * The adapters of this machine: found once, and chosen by number.
 *
 * @module
 */

import type { Precision } from "../../../layers/precision.ts";
import { nativeLibraryPath } from "../../onnx_runtime/native_library.ts";
import { type Adapter, isHardware } from "./adapter.ts";
import { askProbe } from "./ask_probe.ts";
import { driverManifests, namedDrivers } from "./driver_manifests.ts";
import { findAdapters, type FoundAdapters } from "./find_adapters.ts";
import { VULKAN_LIBRARY } from "./vulkan.ts";

/** Options of {@linkcode webgpuAdapters}. */
export interface AdapterOptions {
  /** The ONNX Runtime library; by default {@linkcode nativeLibraryPath}. */
  readonly library?: string | undefined;
  /** Receives one line before a download starts. */
  readonly announce?: ((line: string) => void) | undefined;
  /** Whether software is left out, and where there is no GPU nothing is started. Default false. */
  readonly isHardwareOnly?: boolean;
}

const isLinux = Deno.build.os === "linux";

/** Without one of these Linux has no GPU. */
const GPU_FILES = ["dri", "nvidiactl", "dxg", "nvmap", "kgsl-3d0", "mali0"];

/** Whether there may be a GPU. */
const mayHaveGpu = () => !isLinux || GPU_FILES.some((name) => exists(`/dev/${name}`));

function exists(path: string): boolean {
  try {
    Deno.statSync(path);
    return true;
  } catch {
    return false;
  }
}

/** What was found before, by all that it depends on: each look starts processes. */
const found = new Map<string, Promise<FoundAdapters>>();

const NONE: FoundAdapters = { adapters: [], refused: [] };

/**
 * Finds the adapters of this machine that the webgpu device can use, and those that it cannot.
 *
 * Drivers are loaded in child processes: what they print, and whether they crash, stays there.
 *
 * @throws {Error} when the ONNX Runtime library cannot be found or fetched.
 * @throws {Deno.errors.NotCapable} when this program may not load any library.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { webgpuAdapters } from "@troupe/troupe/kernels";
 *
 * const { adapters } = await webgpuAdapters({ isHardwareOnly: true });
 * assert.deepEqual(adapters.map(({ index }) => index), [...adapters.keys()]);
 * ```
 */
export async function webgpuAdapters(options: AdapterOptions = {}): Promise<FoundAdapters> {
  const { announce, isHardwareOnly = false } = options;
  if (isHardwareOnly && !mayHaveGpu()) return NONE;
  checkPermission();
  const manifests = isLinux ? (hasVulkan() ? driverManifests() : []) : undefined;
  const drivers = isLinux ? namedDrivers() : undefined;
  if (manifests?.length === 0) return { ...NONE, drivers };
  const library = options.library ?? await nativeLibraryPath(announce);
  const key = JSON.stringify([library, isHardwareOnly, manifests]);
  const known = found.get(key) ?? findAdapters(manifests, askProbe(library, !isHardwareOnly));
  found.set(key, known);
  return { ...await known, drivers };
}

/** A child has at most the permissions of its parent. */
function checkPermission(): void {
  const { state, partial } = Deno.permissions.querySync({ name: "ffi" });
  if (state === "granted" && !partial) return;
  throw new Deno.errors.NotCapable(
    `Cannot look for adapters: the permission --allow-ffi must be given for all libraries, as the system chooses those of the drivers, received ${
      partial ? "some" : state
    }`,
  );
}

function hasVulkan(): boolean {
  try {
    Deno.dlopen(VULKAN_LIBRARY, {}).close();
    return true;
  } catch {
    return false;
  }
}

/** What to install, by `Deno.build.os`. */
const INSTALL: Readonly<Record<string, string>> = {
  linux:
    "a GPU with a driver for Vulkan (Debian's libvulkan1 and mesa-vulkan-drivers, or that of its maker)",
  windows: "a GPU with a driver for Direct3D 12, that of its maker",
  darwin: "a GPU that Metal serves",
};

/**
 * The adapters on which a run computes when it asks for those with these numbers.
 *
 * @param indices none: all GPUs, or the first of the others where there is none.
 * @param precision in which stages store: fp16 wants adapters that compute in it, and of all GPUs
 * leaves out the others.
 * @throws {Error} when there is no adapter, or one that is wanted does not compute in FP16.
 * @throws {RangeError} when there is none of a number.
 */
export function chooseAdapters(
  found: FoundAdapters,
  indices: readonly number[] = [],
  precision: Precision = "fp32",
): readonly [Adapter, ...Adapter[]] {
  const chosen = byNumber(found, indices);
  if (precision === "fp32") return chosen;
  const halves = chosen.filter(({ hasF16 }) => hasF16);
  checkHalf("use the webgpu device in fp16", indices.length === 0 && halves[0] ? halves : chosen);
  return halves as [Adapter, ...Adapter[]];
}

/** Refuses adapters that do not compute in FP16. */
export function checkHalf(what: string, adapters: readonly Adapter[]): void {
  const wrong = adapters.filter(({ hasF16 }) => !hasF16).map(({ name }) => name);
  if (wrong.length === 0) return;
  throw new Error(
    `Cannot ${what}: adapters must compute in FP16 (shader-f16), received ${
      wrong.join(", ")
    } without it; use precision fp32, or other adapters`,
  );
}

function byNumber(
  { adapters, refused, drivers }: FoundAdapters,
  indices: readonly number[],
): readonly [Adapter, ...Adapter[]] {
  const [first] = adapters;
  if (!first) {
    const reasons = refused.map(({ name, reason }) => `${name} (${reason})`).join(", ");
    throw new Error(
      `Cannot use the webgpu device: this machine must have ${
        INSTALL[Deno.build.os] ?? "a GPU"
      }, received ${reasons === "" ? "no adapter" : `none that serves: ${reasons}`}${
        drivers === undefined ? "" : `; of all drivers only those of ${drivers} were looked at`
      }`,
    );
  }
  if (indices.length === 0) {
    const hardware = adapters.filter(isHardware);
    return hardware.length > 0 ? hardware as [Adapter, ...Adapter[]] : [first];
  }
  return indices.map((index) => {
    const adapter = adapters[index];
    if (adapter) return adapter;
    const known = adapters.map(({ name }, i) => `${i} (${name})`).join(", ");
    throw new RangeError(
      `Cannot use the webgpu device: the adapter must be one of ${known}, received ${index}`,
    );
  }) as [Adapter, ...Adapter[]];
}
