/**
 * The memory of each worker as a table: planned before the run, and compared with what was used.
 *
 * @module
 */

import { formatTable } from "../../schedules/pictures/table.ts";
import { type StageMemory, totalBytes } from "../../kernels/mod.ts";
import type { WorkerMemory } from "../../actors/run/memory/memory_plan.ts";

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
  readonly usedBytes: number | null;
}

const bytesOf = ({ device, host }: StageMemory) => totalBytes(device) + totalBytes(host);

/**
 * A line for each worker.
 *
 * @param used for each worker of all data-parallel replicas; absent before the run.
 */
export function memoryLines(
  planned: readonly WorkerMemory[],
  used: readonly StageMemory[] | undefined,
): MemoryLine[] {
  const workers = used ? used.length : planned.length;
  return Array.from({ length: workers }, (_, worker) => {
    const plan = planned[worker % planned.length]!, held = used?.[worker];
    const { device, host } = held ?? plan;
    const usedBytes = held ? bytesOf(held) : null;
    return { worker, device, host, plannedBytes: bytesOf(plan), usedBytes };
  });
}

/** The table in MiB. */
export function memoryTable(lines: readonly MemoryLine[]): string[] {
  const head = ["memory, MiB", ...COLUMNS, "on the host", "planned", "used"];
  const cell = (bytes: number | null) => bytes === null ? "" : (bytes / 2 ** 20).toFixed(2);
  const rows = lines.map(({ worker, device, host, plannedBytes, usedBytes }) => [
    `  worker ${worker}`,
    ...COLUMNS.map((name) => cell(device[name])),
    cell(totalBytes(host)),
    cell(plannedBytes),
    cell(usedBytes),
  ]);
  return formatTable([head, ...rows]);
}
