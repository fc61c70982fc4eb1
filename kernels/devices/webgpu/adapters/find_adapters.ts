/**
 * The adapters of this machine, and how a process is made to use each.
 *
 * [Note: one process, one adapter] ONNX Runtime's provider takes the first adapter that it sees, and
 * what a process sees is decided by its environment when the drivers load. So a driver is chosen by
 * its manifest, one of several GPUs of a driver by variables that the Vulkan loader or Mesa's layer
 * read. Whether they heed them depends on their version: a process with just this environment tells.
 *
 * @module
 */

import { type Adapter, type AdapterKind, isHardware, type RefusedAdapter } from "./adapter.ts";
import type { Ask } from "./ask_probe.ts";
import type { ProbeAnswer } from "./probe.ts";
import type { VulkanDevice } from "./vulkan.ts";

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
