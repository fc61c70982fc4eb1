/**
 * The adapters of this machine: found once, and chosen by number.
 *
 * @module
 */

import type { Precision } from "../../precision.ts";
import { nativeLibraryPath } from "../cpu/ort_library.ts";
import { type Ask, askProbe } from "./ask_probe.ts";
import type { ProbeAnswer } from "./probe.ts";
import {
  type Adapter,
  type AdapterKind,
  driverManifests,
  isHardware,
  namedDrivers,
  type RefusedAdapter,
  VULKAN_LIBRARY,
  type VulkanDevice,
} from "./vulkan.ts";

/** What there is on this machine. */
export interface FoundAdapters {
  /** By their index: GPUs first. */
  readonly adapters: readonly Adapter[];
  /** Those that cannot be used. */
  readonly refused: readonly RefusedAdapter[];
  /** The variable by which the user lets only some drivers be seen. */
  readonly drivers?: string | undefined;
}

type Environment = Readonly<Record<string, string>>;

/** An adapter without its number, and what is the same for it through any driver. */
type Candidate = Omit<Adapter, "index"> & { readonly identity?: string | undefined };

/** In the order of their numbers. */
const KINDS: readonly AdapterKind[] = ["discrete", "integrated", "virtual", "other", "software"];

/**
 * Finds the adapters that drivers serve.
 *
 * @param manifests of the drivers of Vulkan; undefined on systems that have another way.
 */
export async function findAdapters(
  manifests: readonly string[] | undefined,
  ask: Ask,
): Promise<FoundAdapters> {
  const found = await Promise.all(manifests?.map((one) => ofDriver(one, ask)) ?? [ofSystem(ask)]);
  const refused: RefusedAdapter[] = [], candidates: Candidate[] = [];
  for (const one of found.flat()) {
    if ("reason" in one) refused.push(one);
    else if (
      candidates.some(({ identity }) => identity !== undefined && identity === one.identity)
    ) {
      refused.push({
        name: one.name,
        reason: "a GPU that is there already, through another driver",
      });
    } else candidates.push(one);
  }
  const rank = ({ kind }: Candidate) => KINDS.indexOf(kind);
  const adapters = candidates.toSorted((a, b) => rank(a) - rank(b))
    .map(({ identity: _identity, ...one }, index): Adapter => ({ index, ...one }));
  return { adapters, refused };
}

type Outcome = Candidate | RefusedAdapter;

/** Without Mesa's layer, which complains on standard error where there is no screen. */
const NO_LAYER: Environment = { NODEVICE_SELECT: "1" };

async function ofDriver(manifest: string, ask: Ask): Promise<readonly Outcome[]> {
  // Loaders of before 2022 know the second name alone.
  const driver = { VK_DRIVER_FILES: manifest, VK_ICD_FILENAMES: manifest };
  const environment = { ...driver, ...NO_LAYER }, answer = await ask(environment);
  if ("failure" in answer) return [{ name: manifest, reason: answer.failure }];
  const { devices = [] } = answer;
  if (devices.length <= 1) return devices.flatMap((one) => judge(one, answer, environment));
  const outcomes = devices.map(async (device): Promise<readonly Outcome[]> => {
    for (const selection of selections(device, devices)) {
      const selecting = { ...driver, ...selection }, selected = await ask(selecting);
      if ("failure" in selected) return [{ name: device.name, reason: selected.failure }];
      if (comesFirst(device, selected.devices ?? [])) return judge(device, selected, selecting);
    }
    const reason =
      `one of ${devices.length} GPUs of ${manifest}, of which a process cannot be made to see this one first; install Mesa's device selection (mesa-vulkan-drivers), or let each container see one GPU`;
    return [{ name: device.name, reason }];
  });
  return (await Promise.all(outcomes)).flat();
}

/** Variables that may put one of a driver's devices first, or leave only that one. */
function selections(device: VulkanDevice, devices: readonly VulkanDevice[]): Environment[] {
  const { vendorId, deviceId, pciAddress } = device;
  const twins = devices.filter((one) => one.vendorId === vendorId && one.deviceId === deviceId);
  const alone = { MESA_VK_DEVICE_SELECT_FORCE_DEFAULT_DEVICE: "1" };
  if (twins.length > 1) {
    return pciAddress === undefined ? [] : [{ ...alone, DRI_PRIME: `pci-${pciAddress}` }];
  }
  const ids = [vendorId, deviceId].map((id) => id.toString(16).padStart(4, "0"));
  return [
    {
      ...NO_LAYER,
      VK_LOADER_DEVICE_SELECT: ids.map((id) => `0x${id}`).join(":"),
      VK_LOADER_VENDOR_ID_FILTER: `${vendorId}`,
      VK_LOADER_DEVICE_ID_FILTER: `${deviceId}`,
    },
    { ...alone, MESA_VK_DEVICE_SELECT: ids.join(":") },
  ];
}

/** Whether the provider takes this device: it comes first, and none is of a kind that goes before. */
function comesFirst(device: VulkanDevice, seen: readonly VulkanDevice[]): boolean {
  const [first] = seen;
  return first !== undefined && first.uuid === device.uuid &&
    first.pciAddress === device.pciAddress && seen.every(({ kind }) => kind === first.kind);
}

/** What the provider makes of a device that a process sees first; nothing where it was not tried. */
function judge(device: VulkanDevice, answer: ProbeAnswer, environment: Environment): Outcome[] {
  const { name, kind, pciAddress, uuid, memoryBytes, maxBufferBytes } = device,
    { provider } = answer;
  if (!provider) return [];
  if (provider.problem !== undefined) return [{ name, reason: provider.problem }];
  const { hasF16 } = provider;
  // Two drivers of software compute apart from each other, whatever they call their devices.
  const identity = isHardware(device) ? pciAddress ?? uuid : undefined;
  return [{ name, kind, memoryBytes, maxBufferBytes, hasF16, environment, identity }];
}

/** The adapter that the provider takes where nothing chooses one. */
async function ofSystem(ask: Ask): Promise<readonly Outcome[]> {
  const answer = await ask({});
  const name = "the system's default adapter";
  if ("failure" in answer) return [{ name, reason: answer.failure }];
  const { provider, system } = answer;
  if (!provider) return [];
  if (provider.problem !== undefined) {
    return system ? [{ name: system.name, reason: provider.problem }] : [];
  }
  return [{
    name: system?.name ?? name,
    kind: system?.isSoftware ? "software" : "other",
    memoryBytes: 0,
    maxBufferBytes: system?.maxBufferBytes ?? LEAST_BUFFER_BYTES,
    hasF16: provider.hasF16,
    environment: {},
  }];
}

/** What every adapter of WebGPU has to offer. */
const LEAST_BUFFER_BYTES = 2 ** 27;

/** An environment variable is the same in all isolates of a process; children inherit it. */
const VARIABLE = "TROUPE_WEBGPU_ADAPTER";

const claimOf = ({ environment }: Adapter) => `${Deno.pid} ${JSON.stringify(environment)}`;

/**
 * Makes sure that this process has used no other adapter.
 *
 * The provider loads the drivers once in the life of a process, so what the first call chose stays.
 *
 * @throws {Error} when it has.
 */
export function assertOnlyAdapter(adapter: Adapter): void {
  const claim = Deno.env.get(VARIABLE);
  // One that a parent process set is not of this process.
  if (claim === claimOf(adapter) || !claim?.startsWith(`${Deno.pid} `)) return;
  throw new Error(
    `Cannot open the webgpu device: a process can use one adapter, received adapter ${adapter.index} (${adapter.name}) after another; use a process for each, as train() with isolation process does`,
  );
}

/**
 * Opens the GPU while the process's environment shows an adapter first; afterwards the environment is
 * as it was, for the children of this program.
 */
export function seeingAdapter<T>(adapter: Adapter, open: () => T): T {
  const restore = setVariables(adapter.environment);
  try {
    const opened = open();
    Deno.env.set(VARIABLE, claimOf(adapter));
    return opened;
  } finally {
    restore();
  }
}

function setVariables(environment: Readonly<Record<string, string>>): () => void {
  const before = Object.keys(environment).map((name) => [name, Deno.env.get(name)] as const);
  for (const [name, value] of Object.entries(environment)) Deno.env.set(name, value);
  return () => {
    for (const [name, value] of before) {
      if (value === undefined) Deno.env.delete(name);
      else Deno.env.set(name, value);
    }
  };
}

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
