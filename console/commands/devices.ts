/**
 * `troupe devices`: lists the devices of this machine.
 *
 * @module
 */

import {
  type Adapter,
  DEVICE_NAMES,
  type DeviceChoice,
  type DeviceName,
} from "../../kernels/mod.ts";
import {
  bf16Instructions,
  findMatrixLibrary,
  type FoundAdapters,
  resolveDevice,
  webgpuAdapters,
} from "../../kernels/internal.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";
import { ONEDNN_FLAG } from "../flag.ts";
import { print, printError } from "../terminal.ts";
import { type Command, defineCommand } from "./common.ts";

const FLAGS = {
  json: { kind: "switch", help: "print one JSON object" },
  onednn: ONEDNN_FLAG,
} as const;

/** `troupe devices`. */
export const devicesCommand: Command = defineCommand({
  name: "devices",
  summary: "lists the devices of this machine, and the choice of --device auto",
  usage: ["[--json] [--onednn FILE]"],
  about: [
    "Lists the devices and the adapters of GPUs, with their numbers for --device webgpu:N and",
    "--adapters, and the reason for each device that cannot be used.",
    "",
    "Like a run, it fetches ONNX Runtime's library if that is missing.",
  ],
  flags: FLAGS,
  takesWords: false,
  notes: ["Exit codes: 0 listed; 2 bad input."],
  run: async ({ flags: { json, onednn } }, { begin }) => {
    begin();
    const devices: Availability[] = [];
    for (const name of DEVICE_NAMES) devices.push(await availability(name));
    // If the search fails, the webgpu device has the reason.
    const found = await webgpuAdapters().catch(() => ({ adapters: [], refused: [] }));
    const auto = await resolveDevice("auto"), bf16 = bf16Support(onednn);
    if (json) {
      const { name: device, adapter } = auto;
      print(JSON.stringify({ devices, ...found, bf16, auto: { device, adapter: adapter?.index } }));
    } else describe(devices, found, auto, bf16).forEach(print);
  },
});

type Availability = Awaited<ReturnType<typeof availability>>;

/** Returns whether a device can be used, or the reason if it cannot. */
async function availability(name: DeviceName) {
  const printDownload = (line: string) => line.startsWith("Fetching") && printError(line);
  try {
    await resolveDevice(name, printDownload);
    return { name, available: true };
  } catch (error) {
    return { name, available: false, reason: (error as Error).message };
  }
}

type Bf16Support = ReturnType<typeof bf16Support>;

/** Returns the instructions of the CPU for BF16, and the library for products or the reason against it. */
function bf16Support(onednn: string | undefined) {
  const cpu = bf16Instructions();
  try {
    return { cpu, library: findMatrixLibrary(onednn) };
  } catch (error) {
    return { cpu, reason: (error as Error).message };
  }
}

function describeBf16({ cpu, library, reason }: Bf16Support): string {
  const has = cpu?.length === 0 ? "neither AVX512-BF16 nor AMX" : cpu?.join(" and ") ?? "unknown";
  const found = library ? `${library.name} ${library.version}` : reason;
  return `--precision bf16: ${library ? "yes" : "no"}, CPU instructions: ${has}, library: ${found}`;
}

const gibibytes = (bytes: number) => bytes === 0 ? "?" : `${(bytes / 2 ** 30).toFixed(1)} GiB`;

function describe(
  devices: readonly Availability[],
  { adapters, refused }: FoundAdapters,
  { name, adapter }: DeviceChoice,
  bf16: Bf16Support,
): string[] {
  const rowOf = ({ index, name, kind, memoryBytes, maxBufferBytes, hasF16 }: Adapter) => [
    ...[`${index}`, name, kind, gibibytes(memoryBytes), gibibytes(maxBufferBytes)],
    hasF16 ? "yes" : "no",
  ];
  const head = ["adapter", "name", "kind", "memory", "largest buffer", "FP16"];
  const missing = devices.slice(0, DEVICE_NAMES.indexOf(name))
    .filter(({ available }) => !available).map(({ name }) => name);
  const more = missing.length > 0 ? `; not available: ${missing.join(", ")}` : "";
  const why = adapter
    ? `, adapter ${adapter.index} (${adapter.name}), because GPUs are preferred`
    : `, because no adapter is a GPU${more}`;
  const rows = devices.map(({ name, reason }) => [name, reason ? `no: ${reason}` : "yes"]);
  const adapterLines = formatTable([head, ...adapters.map(rowOf)], { left: [0, 1, 2, 5] });
  return [
    ...formatTable([["device", "available"], ...rows], { left: [0, 1] }),
    ...adapters.length > 0 ? ["", ...adapterLines] : [],
    ...refused.length > 0 ? [""] : [],
    ...refused.map(({ name, reason }) => `refused: ${name}: ${reason}`),
    "",
    describeBf16(bf16),
    `--device auto computes on ${name}${why}.`,
  ];
}
