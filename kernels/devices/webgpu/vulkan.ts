/**
 * The Vulkan devices that this process sees. Listing them loads their drivers, which may print, hang
 * or crash, so it is done in a child process (see probe.ts).
 *
 * Structures of Vulkan 1.1 are accessed by offset, in the layout of a 64-bit C compiler.
 *
 * @module
 */

import { builtin } from "../../builtin.ts";
import { resultOr } from "../../errors.ts";

const { join } = builtin("node:path");

/** Kind of an adapter. */
export type AdapterKind = "discrete" | "integrated" | "virtual" | "software" | "other";

/** An adapter of this machine, as plain data that any process of the machine can use. */
export interface Adapter {
  /** Its number, from 0, as in `--device webgpu:n` and `--adapters`. */
  readonly index: number;
  /** Its name by its driver. */
  readonly name: string;
  /** Its kind. */
  readonly kind: AdapterKind;
  /** Bytes of its largest local memory; 0 if unknown. */
  readonly memoryBytes: number;
  /** Bytes of the largest buffer that a kernel can use. */
  readonly maxBufferBytes: number;
  /** True if its kernels compute in FP16 (shader-f16). */
  readonly hasF16: boolean;
  /** Environment variables that make it the first adapter of a process. */
  readonly environment: Readonly<Record<string, string>>;
}

/** An adapter that cannot be used. */
export interface RefusedAdapter {
  /** Its name by its driver; the driver's file if the name is unknown. */
  readonly name: string;
  /** The reason, as a phrase after "received". */
  readonly reason: string;
}

/** Returns whether an adapter is a GPU. */
export const isHardware = ({ kind }: Pick<Adapter, "kind">): boolean => kind !== "software";

/** Access to the system. */
interface System {
  /** Returns an environment variable; undefined if it is not set or not permitted. */
  readonly variable: (name: string) => string | undefined;
  /** Returns the files of a folder, none if it does not exist; undefined if the path is a file. */
  readonly files: (folder: string) => readonly string[] | undefined;
}

/** Returns the paths of all driver manifests, each once. */
export function driverManifests({ variable, files }: System = SYSTEM): string[] {
  const manifestsOf = (path: string) =>
    (files(path) ?? []).filter((name) => name.endsWith(".json")).sort()
      .map((name) => join(path, name));
  // A list of files, or of folders with files.
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

/** Returns the variable by which the user restricts the drivers, with its value, if any. */
export function namedDrivers({ variable }: System = SYSTEM): string | undefined {
  const name = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"].find((one) => variable(one) !== undefined);
  return name && `${name}=${variable(name)}`;
}

const split = (list: string) => list.split(":").filter((path) => path !== "");

const SYSTEM: System = {
  variable: (name) => resultOr(() => Deno.env.get(name), undefined),
  files(folder) {
    try {
      return [...Deno.readDirSync(folder)].map(({ name }) => name);
    } catch (error) {
      return error instanceof Deno.errors.NotADirectory ? undefined : [];
    }
  },
};

/** Properties of an adapter that the system reports. */
export type SeenAdapter = Pick<Adapter, "name" | "kind" | "memoryBytes" | "maxBufferBytes">;

/** A device as Vulkan describes it. */
export interface VulkanDevice extends SeenAdapter {
  /** PCI numbers of its vendor and of its model. */
  readonly vendorId: number;
  readonly deviceId: number;
  /** Its PCI address in Mesa's format: `0000_01_00_0`; undefined if its driver does not report it. */
  readonly pciAddress: string | undefined;
  /** Equal in all processes, in hexadecimal; software drivers may give all devices the same. */
  readonly uuid: string;
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

/** Lists the devices that this process sees, in the loader's order; empty without a driver. */
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
  // A driver without this structure leaves the domain unchanged.
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

/** Buffers are multiples of this many bytes. */
const UNIT_BYTES = 16;

/** Returns the largest buffer below a limit: one of exactly that size may need a few more bytes. */
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

/** Returns a structure that starts with its type, with a pointer to the next one at offset 8. */
function structure(type: number, byteLength: number, next?: DataView<ArrayBuffer>) {
  const view = new DataView(new ArrayBuffer(byteLength));
  view.setUint32(0, type, true);
  if (next) view.setBigUint64(8, addressOf(next), true);
  return view;
}

const bytesOf = ({ buffer }: { readonly buffer: ArrayBuffer }) => new Uint8Array(buffer);

const addressOf = (view: DataView<ArrayBuffer>) =>
  Deno.UnsafePointer.value(Deno.UnsafePointer.of(bytesOf(view)));
