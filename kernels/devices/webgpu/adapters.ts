/**
 * The GPU adapters of this machine: search in child processes, choice by number, and the environment
 * of an adapter.
 *
 * [Note: one process, one adapter] ONNX Runtime's provider uses the first adapter that it sees. The
 * environment determines the visible adapters when the drivers load. So a driver is chosen by its
 * manifest, and one of several GPUs of a driver by variables of the Vulkan loader or of Mesa's layer.
 * Their effect depends on the versions, so it is checked in a process with exactly this environment.
 *
 * @module
 */

import { Graph } from "../../ops/graph.ts";
import { encodeGraph } from "../../onnx/encode.ts";
import { nativeLibraryPath, TELEMETRY_SWITCH } from "../cpu/ort_library.ts";
import type { DType } from "../device.ts";
import { PROBE, type ProbeAnswer, type ProbeRequest } from "./probe.ts";
import { refusal, resultOr } from "../../errors.ts";
import type { Precision } from "../../precision.ts";
import {
  type Adapter,
  type AdapterKind,
  driverManifests,
  isHardware,
  namedDrivers,
  type RefusedAdapter,
  type SeenAdapter,
  VULKAN_LIBRARY,
  type VulkanDevice,
} from "./vulkan.ts";

/** Asks for the adapters in an environment; tests replace {@linkcode askProbe}. */
export type Ask = (
  environment: Readonly<Record<string, string>>,
) => Promise<ProbeAnswer | { readonly failure: string }>;

/** Time limit for a driver's answer. */
const LIMIT_MS = 60_000;

/** The provider's reason on standard error for refusing an adapter. */
const WARNING = /^Warning: (.+)$/m;

/** Prefix of the reason in ONNX Runtime's errors. */
const PLACE = /^.* was false\. /s;

/**
 * Returns a function that asks child processes.
 *
 * @param library the ONNX Runtime library.
 * @param triesSoftware true if the provider is tried with software adapters only.
 */
export function askProbe(library: string, triesSoftware: boolean): Ask {
  const models = { f32: negation("f32").toBase64(), f16: negation("f16").toBase64() };
  const request: ProbeRequest = { library, triesSoftware, models };
  const args = [
    "run",
    ...["--quiet", "--no-prompt", "--no-lock", "--no-config", "--no-npm"],
    "--allow-ffi", // of all libraries: the system finds Vulkan's by its name
    `--allow-env=${TELEMETRY_SWITCH}`,
    PROBE,
    JSON.stringify(request),
  ];
  return async (environment) => {
    const env = { ...environment, DENO_NO_UPDATE_CHECK: "1", NO_COLOR: "1" };
    const pipes = { stdin: "null", stdout: "piped", stderr: "piped" } as const;
    const child = new Deno.Command(Deno.execPath(), { args, env, ...pipes }).spawn();
    let hasHung = false;
    const limit = setTimeout(() => {
      hasHung = true;
      child.kill("SIGKILL");
    }, LIMIT_MS);
    const { signal, code, stdout, stderr } = await child.output();
    clearTimeout(limit);
    if (hasHung) return { failure: `a driver without an answer after ${LIMIT_MS / 1000} s` };
    const said = new TextDecoder().decode(stderr);
    const failure = `a driver that ended its process with ${signal ?? `exit code ${code}`}`;
    const answer = () => explained(JSON.parse(new TextDecoder().decode(stdout)), said);
    return resultOr(answer, { failure });
  };
}

/** Adds the provider's reason to a refusal, which its error lacks. */
function explained(answer: ProbeAnswer, said: string): ProbeAnswer {
  const { problem } = answer.provider ?? {};
  if (problem === undefined) return answer;
  const reason = said.match(WARNING)?.[1] ?? problem.trim().replace(PLACE, "");
  return { ...answer, provider: { problem: reason.replace(/\.$/, "") } };
}

/** Encodes a model of one node, `y = -x` with 4 elements. */
export function negation(dtype: DType): Uint8Array {
  const g = new Graph(), x = g.input("x", [4], dtype);
  return encodeGraph(g, { y: g.neg(x) });
}

/** Adapters of this machine. */
export interface FoundAdapters {
  /** Usable adapters by index, GPUs first. */
  readonly adapters: readonly Adapter[];
  /** Adapters that cannot be used. */
  readonly refused: readonly RefusedAdapter[];
  /** The environment variable by which the user restricts the drivers, if any. */
  readonly drivers?: string | undefined;
}

type Environment = Readonly<Record<string, string>>;

/** An adapter without its number, and an identity that is equal through any driver. */
type Candidate = Omit<Adapter, "index"> & { readonly identity?: string | undefined };

/** Kinds in the order of adapter numbers. */
const KINDS: readonly AdapterKind[] = ["discrete", "integrated", "virtual", "other", "software"];

/**
 * Finds the adapters of drivers.
 *
 * @param manifests of the Vulkan drivers; undefined on systems without Vulkan.
 */
export async function findAdapters(
  manifests: readonly string[] | undefined,
  ask: Ask,
): Promise<FoundAdapters> {
  const found = await Promise.all(manifests?.map((one) => ofDriver(one, ask)) ?? [ofSystem(ask)]);
  const refused: RefusedAdapter[] = [], candidates: Candidate[] = [];
  for (const one of found.flat()) {
    if ("reason" in one) refused.push(one);
    else if (one.identity && candidates.some(({ identity }) => identity === one.identity)) {
      refused.push({ name: one.name, reason: "the same GPU through another driver" });
    } else candidates.push(one);
  }
  const rank = ({ kind }: Candidate) => KINDS.indexOf(kind);
  const adapters = candidates.toSorted((a, b) => rank(a) - rank(b))
    .map(({ identity: _identity, ...one }, index): Adapter => ({ index, ...one }));
  return { adapters, refused };
}

type Outcome = Candidate | RefusedAdapter;

/** Disables Mesa's layer, which prints errors without a display. */
const NO_LAYER: Environment = { NODEVICE_SELECT: "1" };

async function ofDriver(manifest: string, ask: Ask): Promise<readonly Outcome[]> {
  // Loaders from before 2022 know only the second name.
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
      `one of ${devices.length} GPUs of ${manifest}, which cannot be made the first in a process; install Mesa's device selection (mesa-vulkan-drivers), or let each container see one GPU`;
    return [{ name: device.name, reason }];
  });
  return (await Promise.all(outcomes)).flat();
}

/** Returns environments that may put one of a driver's devices first, or hide the others. */
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

/** Returns whether the provider uses this device: it is first, and no other kind has precedence. */
function comesFirst(device: VulkanDevice, seen: readonly VulkanDevice[]): boolean {
  const [first] = seen;
  return first !== undefined && first.uuid === device.uuid &&
    first.pciAddress === device.pciAddress && seen.every(({ kind }) => kind === first.kind);
}

/** Returns the result of the provider for the first device; empty if it was not tried. */
function judge(
  device: SeenAdapter & Partial<VulkanDevice>,
  { provider }: ProbeAnswer,
  environment: Environment,
): Outcome[] {
  const { name, kind, pciAddress, uuid, memoryBytes, maxBufferBytes } = device;
  if (!provider) return [];
  if (provider.problem !== undefined) return [{ name, reason: provider.problem }];
  const { hasF16 } = provider;
  // Software drivers compute separately, whatever they call their devices.
  const identity = isHardware(device) ? pciAddress ?? uuid : undefined;
  return [{ name, kind, memoryBytes, maxBufferBytes, hasF16, environment, identity }];
}

/** Finds the adapter that the provider uses by default. */
async function ofSystem(ask: Ask): Promise<readonly Outcome[]> {
  const answer = await ask({}), name = "the system's default adapter";
  if ("failure" in answer) return [{ name, reason: answer.failure }];
  const { system } = answer;
  if (!system && answer.provider?.problem !== undefined) return [];
  const unknown = {
    name,
    kind: "other",
    memoryBytes: 0,
    maxBufferBytes: LEAST_BUFFER_BYTES,
  } as const;
  return judge(system ?? unknown, answer, {});
}

/** The smallest limit of WebGPU. */
const LEAST_BUFFER_BYTES = 2 ** 27;

/** An environment variable, which all isolates of a process share; children inherit it. */
const VARIABLE = "TROUPE_WEBGPU_ADAPTER";

const claimOf = ({ environment }: Adapter) => `${Deno.pid} ${JSON.stringify(environment)}`;

/**
 * Checks that this process has used no other adapter.
 *
 * The provider loads the drivers once in the life of a process, so the first choice is final.
 *
 * @throws {Error} when it has.
 */
export function assertOnlyAdapter(adapter: Adapter): void {
  const claim = Deno.env.get(VARIABLE);
  // A variable from a parent process has another process number.
  if (claim === claimOf(adapter) || !claim?.startsWith(`${Deno.pid} `)) return;
  throw new Error(
    `Cannot open the webgpu device: a process can use one adapter, received adapter ${adapter.index} (${adapter.name}) after another; use a process for each, as train() with isolation process does`,
  );
}

/**
 * Opens the GPU while the process's environment shows an adapter first; afterwards the environment is
 * restored, for the children of this program.
 */
export function seeingAdapter<T>(adapter: Adapter, open: () => T): T {
  const { environment } = adapter;
  const before = Object.keys(environment).map((name) => [name, Deno.env.get(name)] as const);
  for (const [name, value] of Object.entries(environment)) Deno.env.set(name, value);
  try {
    const opened = open();
    Deno.env.set(VARIABLE, claimOf(adapter));
    return opened;
  } finally {
    for (const [name, value] of before) {
      if (value === undefined) Deno.env.delete(name);
      else Deno.env.set(name, value);
    }
  }
}

/** Options of {@linkcode webgpuAdapters}. */
interface AdapterOptions {
  /** The ONNX Runtime library. Default {@linkcode nativeLibraryPath}. */
  readonly library?: string | undefined;
  /** Receives one line before a download starts. */
  readonly announce?: ((line: string) => void) | undefined;
  /** True excludes software adapters, and starts no process without a GPU. Default false. */
  readonly isHardwareOnly?: boolean;
}

const isLinux = () => Deno.build.os === "linux";

/** Device files; without one of these Linux has no GPU. */
const GPU_FILES = ["dri", "nvidiactl", "dxg", "nvmap", "kgsl-3d0", "mali0"];

/** Returns whether there may be a GPU. */
const mayHaveGpu = () =>
  !isLinux() || GPU_FILES.some((name) => resultOr(() => Deno.statSync(`/dev/${name}`), undefined));

/** Earlier results by their inputs: each search starts processes. */
const found = new Map<string, Promise<FoundAdapters>>();

const NONE: FoundAdapters = { adapters: [], refused: [] };

/**
 * Finds the adapters of this machine, usable or not by the webgpu device.
 *
 * Drivers are loaded in child processes, which keep their output and crashes.
 *
 * @throws {Deno.errors.NotCapable} when this program may not load every library.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const { adapters } = await webgpuAdapters({ isHardwareOnly: true });
 * assert.deepEqual(adapters.map(({ index }) => index), [...adapters.keys()]);
 * ```
 */
export async function webgpuAdapters(options: AdapterOptions = {}): Promise<FoundAdapters> {
  const { announce, isHardwareOnly = false } = options;
  if (isHardwareOnly && !mayHaveGpu()) return NONE;
  checkPermission();
  const manifests = isLinux() ? (hasVulkan() ? driverManifests() : []) : undefined;
  const drivers = isLinux() ? namedDrivers() : undefined;
  if (manifests?.length === 0) return { ...NONE, drivers };
  const library = options.library ?? await nativeLibraryPath(announce);
  const key = JSON.stringify([library, isHardwareOnly, manifests]);
  const find = () => findAdapters(manifests, askProbe(library, !isHardwareOnly));
  return { ...await found.getOrInsertComputed(key, find), drivers };
}

/** Checks the permission of the child process, which cannot exceed that of this program. */
function checkPermission(): void {
  const { state, partial } = Deno.permissions.querySync({ name: "ffi" });
  if (state === "granted" && !partial) return;
  throw new Deno.errors.NotCapable(
    `Cannot look for adapters: the permission --allow-ffi must be given for all libraries, as the system chooses those of the drivers, received ${
      partial ? "some" : state
    }`,
  );
}

const hasVulkan = (): boolean =>
  resultOr(() => {
    Deno.dlopen(VULKAN_LIBRARY, {}).close();
    return true;
  }, false);

/** Requirements by `Deno.build.os`. */
const INSTALL: Readonly<Record<string, string>> = {
  linux:
    "a GPU with a driver for Vulkan (Debian's libvulkan1 and mesa-vulkan-drivers, or that of its maker)",
  windows: "a GPU with a driver for Direct3D 12, that of its maker",
  darwin: "a GPU that Metal serves",
};

/**
 * Returns the adapters with these numbers.
 *
 * @param indices numbers; by default all GPUs, or the first other adapter if there is none.
 * @param precision storage type: fp16 requires adapters that compute in it, and by default excludes
 * others.
 * @throws {Error} when there is no adapter, or a requested one does not compute in FP16.
 * @throws {RangeError} when there is no adapter of a number.
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

/** Throws if an adapter does not compute in FP16. */
export function checkHalf(what: string, adapters: readonly Adapter[]): void {
  const wrong = adapters.filter(({ hasF16 }) => !hasF16).map(({ name }) => name);
  if (wrong.length === 0) return;
  const received = `${wrong.join(", ")} without it; use precision fp32, or other adapters`;
  throw refusal(what, "adapters must compute in FP16 (shader-f16)", received, Error);
}

function byNumber(
  { adapters, refused, drivers }: FoundAdapters,
  indices: readonly number[],
): readonly [Adapter, ...Adapter[]] {
  const [first] = adapters;
  if (!first) {
    const reasons = refused.map(({ name, reason }) => `${name} (${reason})`).join(", ");
    const must = `this machine must have ${INSTALL[Deno.build.os] ?? "a GPU"}`;
    const none = reasons === "" ? "no adapter" : `none that serves: ${reasons}`;
    const seen = drivers && `; of all drivers only those of ${drivers} were looked at`;
    throw refusal("use the webgpu device", must, none + (seen ?? ""), Error);
  }
  if (indices.length === 0) {
    const hardware = adapters.filter(isHardware);
    return hardware.length > 0 ? hardware as [Adapter, ...Adapter[]] : [first];
  }
  return indices.map((index) => {
    const adapter = adapters[index];
    if (adapter) return adapter;
    const known = adapters.map(({ name }, i) => `${i} (${name})`).join(", ");
    throw refusal("use the webgpu device", `the adapter must be one of ${known}`, index);
  }) as [Adapter, ...Adapter[]];
}
