/**
 * `troupe devices`: what this machine can compute on.
 *
 * @module
 */

import {
  type Adapter,
  DEVICE_NAMES,
  type DeviceChoice,
  type DeviceName,
  type FoundAdapters,
  resolveDevice,
  webgpuAdapters,
} from "../../kernels/mod.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";
import type { CommandContext } from "../command.ts";
import { type CommandSyntax, COMMON_FLAGS, withDefaults } from "../flag.ts";
import { answersItself, parseFlags } from "../parse.ts";
import { print, printError } from "../terminal.ts";

const FLAGS = {
  json: { kind: "switch", help: "one JSON object instead of words" },
  ...COMMON_FLAGS,
} as const;

/** The declaration of `troupe devices`. */
export const DEVICES_SYNTAX: CommandSyntax = {
  name: "devices",
  summary: "lists what this machine can compute on, and what --device auto chooses",
  usage: ["[--json]"],
  about: [
    "Lists the devices and, of GPUs, the adapters, by the numbers that --device webgpu:N and",
    "--adapters take; what cannot be used is listed with the reason.",
    "",
    "As a run would, it fetches ONNX Runtime's library where that is absent.",
  ],
  groups: [{ flags: FLAGS }],
  notes: ["Exit codes: 0 listed; 2 bad input."],
};

/** Whether a device can be used, and if not, why. */
interface Availability {
  readonly name: DeviceName;
  readonly available: boolean;
  readonly reason?: string;
}

/** Runs the command; returns the exit code. */
export async function devicesCommand(
  args: readonly string[],
  { begin }: Pick<CommandContext, "begin">,
): Promise<number> {
  if (answersItself(args, DEVICES_SYNTAX)) return 0;
  const { json } = withDefaults(FLAGS, parseFlags(args, FLAGS));
  begin();
  const devices: Availability[] = [];
  for (const name of DEVICE_NAMES) devices.push(await availability(name));
  // Where they cannot be looked for, their device says why.
  const found = await webgpuAdapters().catch((): FoundAdapters => ({ adapters: [], refused: [] }));
  const auto = await resolveDevice("auto");
  if (json) {
    const { name: device, adapter } = auto;
    print(JSON.stringify({ devices, ...found, auto: { device, adapter: adapter?.index } }));
  } else {
    for (const line of describe(devices, found, auto)) print(line);
  }
  return 0;
}

const tellDownloads = (line: string) => line.startsWith("Fetching") && printError(line);

async function availability(name: DeviceName): Promise<Availability> {
  try {
    await resolveDevice(name, tellDownloads);
    return { name, available: true };
  } catch (error) {
    return { name, available: false, reason: (error as Error).message };
  }
}

const gibibytes = (bytes: number) => bytes === 0 ? "?" : `${(bytes / 2 ** 30).toFixed(1)} GiB`;

function describe(
  devices: readonly Availability[],
  { adapters, refused }: FoundAdapters,
  auto: DeviceChoice,
): string[] {
  const rowOf = ({ index, name, kind, memoryBytes, maxBufferBytes, hasF16 }: Adapter) => [
    ...[`${index}`, name, kind, gibibytes(memoryBytes), gibibytes(maxBufferBytes)],
    hasF16 ? "yes" : "no",
  ];
  const head = ["adapter", "name", "kind", "memory", "largest buffer", "FP16"];
  const { name, adapter } = auto;
  const missing = devices.slice(0, DEVICE_NAMES.indexOf(name))
    .filter(({ available }) => !available).map(({ name }) => name);
  const why = adapter
    ? `, adapter ${adapter.index} (${adapter.name}), as a GPU goes first`
    : `, as no adapter is a GPU${
      missing.length > 0 ? `; not available: ${missing.join(", ")}` : ""
    }`;
  return [
    ...formatTable([
      ["device", "available"],
      ...devices.map(({ name, reason }) => [name, reason === undefined ? "yes" : `no: ${reason}`]),
    ], { left: [0, 1] }),
    ...adapters.length > 0
      ? ["", ...formatTable([head, ...adapters.map(rowOf)], { left: [0, 1, 2, 5] })]
      : [],
    ...refused.length > 0 ? [""] : [],
    ...refused.map(({ name, reason }) => `refused: ${name}: ${reason}`),
    "",
    `--device auto computes on ${name}${why}.`,
  ];
}
