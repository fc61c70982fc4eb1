/**
 * The memory of each worker as a table: planned before the run, and compared with what was used.
 *
 * @module
 */

import { formatTable } from "../../schedules/pictures/grid.ts";
import { type StageMemory, totalBytes } from "../../kernels/mod.ts";
import { totalMemory, type WorkerMemory } from "../../actors/run/memory/memory_plan.ts";
import { type ActorBytes, actorBytes, type RunMemory } from "../../actors/run/memory/run_memory.ts";
import type { ResidentMemory } from "./resident_memory.ts";

const COLUMNS = [
  "weights",
  "gradients",
  "master",
  "moments",
  "activations",
  "buckets",
  "other",
] as const;

/** What one worker holds, as JSON prints it: bytes. */
export interface MemoryLine {
  readonly worker: number;
  readonly device: StageMemory["device"];
  readonly host: StageMemory["host"];
  readonly plannedBytes: number;
  /** Whether it may hold less than is planned. */
  readonly isBound: boolean;
  readonly usedBytes: number | null;
  /** What it will hold beside its stages. */
  readonly beside: ActorBytes | undefined;
}

/**
 * A line for each worker.
 *
 * @param used for each worker of all data-parallel replicas; absent before the run.
 */
export function memoryLines(
  planned: readonly WorkerMemory[],
  used: readonly StageMemory[] | undefined,
  run: RunMemory,
): MemoryLine[] {
  const workers = used ? used.length : planned.length;
  return Array.from({ length: workers }, (_, worker) => {
    const plan = planned[worker % planned.length]!, held = used?.[worker];
    const { device, host } = held ?? plan;
    const usedBytes = held ? totalMemory([held]) : null;
    const beside = run.workers[worker % run.workers.length];
    const { isBound } = plan;
    return { worker, device, host, plannedBytes: totalMemory([plan]), isBound, usedBytes, beside };
  });
}

const cell = (bytes: number | null) => bytes === null ? "" : (bytes / 2 ** 20).toFixed(2);

/** The table in MiB. */
export function memoryTable(lines: readonly MemoryLine[]): string[] {
  const head = ["memory, MiB", ...COLUMNS, "on the host", "planned", "used"];
  const rows = lines.map(({ worker, device, host, plannedBytes, isBound, usedBytes }) => [
    `  worker ${worker}`,
    ...COLUMNS.map((name) => cell(device[name])),
    cell(totalBytes(host)),
    `${isBound ? "≤ " : ""}${cell(plannedBytes)}`,
    cell(usedBytes),
  ]);
  const isAnyBound = lines.some(({ isBound }) => isBound);
  return [
    ...formatTable([head, ...rows]),
    ...isAnyBound ? ["≤: at most; how much of it, the order of messages decides"] : [],
  ];
}

const BESIDE = ["transient", "sessions", "messages", "fields", "sums", "state", "runtime"] as const;

/** What actors hold beside stages, in MiB, and what that comes to. */
export function besideTable(lines: readonly MemoryLine[], run: RunMemory): string[] {
  const row = (name: string, actor: ActorBytes) => [
    `  ${name}`,
    ...BESIDE.map((column) => cell(actor[column])),
    cell(actorBytes(actor)),
  ];
  const workers = lines.flatMap(({ worker, beside }) =>
    beside ? [row(`worker ${worker}`, beside)] : []
  );
  return [
    ...formatTable([
      ["beside stages, MiB", ...BESIDE, "planned"],
      ...workers,
      row("supervisor", run.supervisor),
    ]),
    `planned in all: ${cell(run.totalBytes)} MiB`,
  ];
}

/** What the system has seen, and what lies between that and the plan. */
export function residentLines({ totalBytes }: RunMemory, seen: ResidentMemory): string[] {
  const { rssBytes, peakRssBytes, processes } = seen;
  const ratio = (peakRssBytes / totalBytes).toFixed(2);
  return [
    `resident (RSS): at most ${cell(peakRssBytes)} MiB, ${ratio} times the plan; ${
      cell(rssBytes)
    } MiB now`,
    ...processes.length > 1
      ? processes.map((one) =>
        `  process ${one.pid}: at most ${cell(one.peakRssBytes)} MiB, at last ${cell(one.rssBytes)}`
      )
      : [],
    "between them: arrays that nobody holds but V8 has not collected yet, what allocators keep for the next piece of its size, and data that is read",
  ];
}
