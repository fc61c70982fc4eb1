/**
 * The Vulkan devices that this process sees. To ask loads their drivers, which may print, hang or
 * crash: a child process asks (see probe.ts).
 *
 * Structures of Vulkan 1.1 are written and read by offset, as a 64-bit C compiler lays them out.
 *
 * @module
 */

import { join } from "node:path";

/** What an adapter is. */
export type AdapterKind = "discrete" | "integrated" | "virtual" | "software" | "other";

/** An adapter of this machine. Plain data: any process of the machine can use it. */
export interface Adapter {
  /** Its number, from 0: what `--device webgpu:n` and `--adapters` name. */
  readonly index: number;
  /** What its driver calls it. */
  readonly name: string;
  /** What it is. */
  readonly kind: AdapterKind;
  /** Bytes of the largest memory that is its own; 0 where the system does not tell. */
  readonly memoryBytes: number;
  /** Bytes of the largest buffer that a kernel can use. */
  readonly maxBufferBytes: number;
  /** Whether its kernels compute in FP16 (shader-f16). */
  readonly hasF16: boolean;
  /** Environment variables with which a process sees this adapter first. */
  readonly environment: Readonly<Record<string, string>>;
}

/** An adapter that cannot be used. */
export interface RefusedAdapter {
  /** What its driver calls it; the driver's file, where it did not come so far. */
  readonly name: string;
  /** Why not, in words that follow "received". */
  readonly reason: string;
}

/** Whether an adapter is a GPU. */
export const isHardware = ({ kind }: Pick<Adapter, "kind">): boolean => kind !== "software";

/** What is asked of the system. */
interface System {
  /** An environment variable; undefined where there is none, or it may not be read. */
  readonly variable: (name: string) => string | undefined;
  /** The files of a folder, none where it is none; undefined where the path is a file. */
  readonly files: (folder: string) => readonly string[] | undefined;
}

/** The paths of all manifests, each once. */
export function driverManifests({ variable, files }: System = SYSTEM): string[] {
  const manifestsOf = (path: string) =>
    (files(path) ?? []).filter((name) => name.endsWith(".json")).sort()
      .map((name) => join(path, name));
  // A list of files, or of their folders.
  const listed = (value: string) =>
    split(value).flatMap((path) => files(path) === undefined ? [path] : manifestsOf(path));
  const only = variable("VK_DRIVER_FILES") ?? variable("VK_ICD_FILENAMES");
  if (only !== undefined) return [...new Set(listed(only))];
  const added = listed(variable("VK_ADD_DRIVER_FILES") ?? "");
  const home = variable("HOME"), inHome = (path: string) => home ? join(home, path) : "";
  const roots = [
    variable("XDG_CONFIG_HOME") || inHome(".config"),
    variable("XDG_CONFIG_DIRS") || "/etc/xdg",
    "/usr/local/etc:/etc",
    variable("XDG_DATA_HOME") || inHome(".local/share"),
    variable("XDG_DATA_DIRS") || "/usr/local/share:/usr/share",
  ].flatMap(split);
  return [
    ...new Set([...added, ...roots.flatMap((root) => manifestsOf(join(root, "vulkan/icd.d")))]),
  ];
}

/** Which drivers alone the user lets be seen, and by which variable; undefined where it is all. */
export function namedDrivers({ variable }: System = SYSTEM): string | undefined {
  const name = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"].find((one) => variable(one) !== undefined);
  return name && `${name}=${variable(name)}`;
}

const split = (list: string) => list.split(":").filter((path) => path !== "");

const SYSTEM: System = {
  variable(name) {
    try {
      return Deno.env.get(name);
    } catch {
      return undefined;
    }
  },
  files(folder) {
    try {
      return [...Deno.readDirSync(folder)].map(({ name }) => name);
    } catch (error) {
      return error instanceof Deno.errors.NotADirectory ? undefined : [];
    }
  },
};

/** What Vulkan tells of a device. */
export interface VulkanDevice {
  readonly name: string;
  readonly kind: AdapterKind;
  /** PCI numbers of its vendor and of its model. */
  readonly vendorId: number;
  readonly deviceId: number;
  /** Where it sits, as Mesa writes it: `0000_01_00_0`; undefined where its driver does not tell. */
  readonly pciAddress: string | undefined;
  /** The same in all processes, in hexadecimal; drivers of software may give all devices the same. */
  readonly uuid: string;
  /** Bytes of the largest memory that is its own. */
  readonly memoryBytes: number;
  /** Bytes of the largest buffer that its driver says a kernel can use. */
  readonly maxBufferBytes: number;
}

/** The Vulkan loader. */
export const VULKAN_LIBRARY = "libvulkan.so.1";

const SYMBOLS = {
  vkCreateInstance: { parameters: ["buffer", "pointer", "buffer"], result: "i32" },
  vkDestroyInstance: { parameters: ["pointer", "pointer"], result: "void" },
  vkEnumeratePhysicalDevices: { parameters: ["pointer", "buffer", "buffer"], result: "i32" },
  vkGetPhysicalDeviceProperties2: { parameters: ["pointer", "buffer"], result: "void" },
  vkGetPhysicalDeviceMemoryProperties: { parameters: ["pointer", "buffer"], result: "void" },
} as const;

type Vulkan = Deno.DynamicLibrary<typeof SYMBOLS>["symbols"];

/** `VkStructureType` of each structure. */
const TYPE = {
  applicationInfo: 0,
  instanceCreateInfo: 1,
  properties2: 1_000_059_001,
  idProperties: 1_000_071_004,
  maintenance3Properties: 1_000_168_000,
  pciBusInfoProperties: 1_000_212_000,
} as const;

const API_VERSION_1_1 = (1 << 22) | (1 << 12);

/** By `VkPhysicalDeviceType`. */
const KINDS: readonly AdapterKind[] = ["other", "integrated", "discrete", "virtual", "software"];

/** The devices that this process sees, in the loader's order; none where there is no driver. */
export function listVulkanDevices(): VulkanDevice[] {
  const library = Deno.dlopen(VULKAN_LIBRARY, SYMBOLS), { symbols: vulkan } = library;
  const application = structure(TYPE.applicationInfo, 48);
  application.setUint32(44, API_VERSION_1_1, true);
  const info = structure(TYPE.instanceCreateInfo, 64);
  info.setBigUint64(24, addressOf(application), true);
  const out = new BigUint64Array(1);
  if (vulkan.vkCreateInstance(bytesOf(info), null, bytesOf(out)) !== 0) return [];
  const instance = Deno.UnsafePointer.create(out[0]!)!;
  const count = new Uint32Array(1);
  vulkan.vkEnumeratePhysicalDevices(instance, bytesOf(count), null);
  const handles = new BigUint64Array(count[0]!);
  vulkan.vkEnumeratePhysicalDevices(instance, bytesOf(count), bytesOf(handles));
  const devices = [...handles.subarray(0, count[0]!)].map((handle) =>
    describe(vulkan, Deno.UnsafePointer.create(handle)!)
  );
  vulkan.vkDestroyInstance(instance, null);
  library.close();
  return devices;
}

function describe(vulkan: Vulkan, device: Deno.PointerObject): VulkanDevice {
  const id = structure(TYPE.idProperties, 64);
  const limits3 = structure(TYPE.maintenance3Properties, 32, id);
  const pci = structure(TYPE.pciBusInfoProperties, 32, limits3);
  // What a driver without this structure leaves alone is no domain.
  pci.setUint32(16, UNKNOWN, true);
  // VkPhysicalDeviceProperties2: its VkPhysicalDeviceProperties, of 824 bytes, begin at 16.
  const properties = structure(TYPE.properties2, 840, pci);
  vulkan.vkGetPhysicalDeviceProperties2(device, bytesOf(properties));
  const u32 = (offset: number) => properties.getUint32(16 + offset, true);
  const name = new Uint8Array(properties.buffer, 16 + 20, 256);
  const maxStorageBufferRange = u32(296 + 28);
  const maxMemoryAllocationSize = Number(limits3.getBigUint64(24, true));
  return {
    name: new TextDecoder().decode(name.subarray(0, name.indexOf(0))),
    kind: KINDS[u32(16)] ?? "other",
    vendorId: u32(8),
    deviceId: u32(12),
    pciAddress: pciAddressOf(pci),
    uuid: new Uint8Array(id.buffer, 16, 16).toHex(),
    memoryBytes: ownMemory(vulkan, device),
    maxBufferBytes: below(Math.min(maxStorageBufferRange, maxMemoryAllocationSize || Infinity)),
  };
}

/** Bytes of which buffers are made. */
const UNIT_BYTES = 16;

/** The largest buffer below a limit: one of just that size may need some bytes beside. */
const below = (limit: number) => Math.floor((limit - 1) / UNIT_BYTES) * UNIT_BYTES;

const UNKNOWN = 2 ** 32 - 1;

/** From `VkPhysicalDevicePCIBusInfoPropertiesEXT`: domain, bus, device and function begin at 16. */
function pciAddressOf(pci: DataView): string | undefined {
  const [domain, bus, device, fn] = [0, 1, 2, 3].map((i) => pci.getUint32(16 + 4 * i, true));
  if (domain === UNKNOWN) return undefined;
  const hex = (value: number, digits: number) => value.toString(16).padStart(digits, "0");
  return `${hex(domain!, 4)}_${hex(bus!, 2)}_${hex(device!, 2)}_${fn}`;
}

const DEVICE_LOCAL = 1;

/** From `VkPhysicalDeviceMemoryProperties`: a count at 260, heaps of 16 bytes (size, flags) from 264. */
function ownMemory(vulkan: Vulkan, device: Deno.PointerObject): number {
  const memory = new DataView(new ArrayBuffer(520));
  vulkan.vkGetPhysicalDeviceMemoryProperties(device, bytesOf(memory));
  const heaps = Array.from({ length: memory.getUint32(260, true) }, (_, i) => 264 + 16 * i);
  const own = heaps.filter((at) => memory.getUint32(at + 8, true) & DEVICE_LOCAL);
  return Math.max(0, ...own.map((at) => Number(memory.getBigUint64(at, true))));
}

/** A structure of so many bytes that begins with its type, and at 8 points to the next. */
function structure(type: number, byteLength: number, next?: DataView<ArrayBuffer>) {
  const view = new DataView(new ArrayBuffer(byteLength));
  view.setUint32(0, type, true);
  if (next) view.setBigUint64(8, addressOf(next), true);
  return view;
}

const bytesOf = ({ buffer }: { readonly buffer: ArrayBuffer }) => new Uint8Array(buffer);

const addressOf = (view: DataView<ArrayBuffer>) =>
  Deno.UnsafePointer.value(Deno.UnsafePointer.of(bytesOf(view)));
