/**
 * Report of `--memory`: planned bytes before the run; used and resident bytes at its end.
 *
 * @module
 */

import type {
  ActorBytes,
  Plan,
  RunMemory,
  WorkerMemory,
} from "../../actors/options/train_events.ts";
import { unlessMissing } from "../../actors/checkpoints/lock.ts";
import { actorBytes, totalMemory } from "../../actors/run/memory.ts";
import type { StageMemory } from "../../kernels/mod.ts";
import { totalBytes } from "../../kernels/internal.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";

/** Resident memory of one process, when last seen if it has ended. */
type ProcessMemory = ReturnType<typeof statusOf>[number];

/** Resident memory of a run. */
type ResidentMemory = ReturnType<ReturnType<typeof watchResident>["look"]>;

const EVERY_MS = 200;

/** Starts to sample until disposed. Does not keep the program running. */
export function watchResident() {
  const seen = new Map<number, ProcessMemory>();
  /** Largest sampled sum of the resident bytes. */
  let peakRssBytes = 0;
  /** Returns the resident bytes now, and all processes seen, this one first. */
  const look = () => {
    const found = processesFrom(Deno.pid), rssBytes = totalOf(found);
    for (const one of found) seen.set(one.pid, one);
    peakRssBytes = Math.max(peakRssBytes, rssBytes);
    return { rssBytes, peakRssBytes, processes: [...seen.values()] };
  };
  const timer = setInterval(look, EVERY_MS);
  Deno.unrefTimer(timer);
  return { look, [Symbol.dispose]: () => clearInterval(timer) };
}

/**
 * Returns a process and its descendants. If the system does not report other processes, returns at
 * most this one.
 */
export function processesFrom(root: number): ProcessMemory[] {
  const found: ProcessMemory[] = [];
  try {
    for (const waiting = [root]; waiting.length > 0;) {
      const pid = waiting.shift()!;
      found.push(...statusOf(pid));
      waiting.push(...childrenOf(pid));
    }
  } catch {
    // The system is not Linux, or Deno lacks the permission.
  }
  if (found.length > 0 || root !== Deno.pid) return found;
  const { rss } = Deno.memoryUsage();
  return [{ pid: root, rssBytes: rss, peakRssBytes: rss }];
}

const totalOf = (processes: readonly ProcessMemory[]) =>
  processes.reduce((sum, { rssBytes }) => sum + rssBytes, 0);

/** Returns the resident bytes of a process and its descendants. */
export const residentBytes = (root: number): number => totalOf(processesFrom(root));

/** Reads the memory of a process from Linux; empty if the process has ended. */
function statusOf(pid: number) {
  const status = read(`/proc/${pid}/status`);
  const bytesOf = (name: string) => 1024 * Number(status.match(`${name}:\\s*(\\d+) kB`)?.[1] ?? 0);
  const rssBytes = bytesOf("VmRSS");
  return rssBytes > 0 ? [{ pid, rssBytes, peakRssBytes: bytesOf("VmHWM") }] : [];
}

/** Returns the child processes of all threads of a process. */
const childrenOf = (pid: number): number[] =>
  unlessMissing(() => [...Deno.readDirSync(`/proc/${pid}/task`)], []).flatMap(({ name }) =>
    read(`/proc/${pid}/task/${name}/children`).split(" ").filter(Boolean).map(Number)
  );

/** Reads a system file; empty if it no longer exists. */
function read(path: string): string {
  try {
    return Deno.readTextFileSync(path);
  } catch (error) {
    if (error instanceof Deno.errors.PermissionDenied || error instanceof Deno.errors.NotCapable) {
      throw error;
    }
    return "";
  }
}

const COLUMNS = [
  "weights",
  "gradients",
  "master",
  "moments",
  "activations",
  "buckets",
  "other",
] as const;

/**
 * Returns a line for each worker, as in the JSON output: with planned and used bytes, whether the plan
 * is an upper bound (`isBound`), and the planned bytes besides its stages.
 *
 * @param used memory of each worker of all data-parallel replicas; undefined before the run.
 */
function memoryLines(
  planned: readonly WorkerMemory[],
  used: readonly StageMemory[] | undefined,
  run: RunMemory,
) {
  const workers = used ? used.length : planned.length;
  return Array.from({ length: workers }, (_, worker) => {
    const plan = planned[worker % planned.length]!, held = used?.[worker];
    const { device, host } = held ?? plan, { isBound } = plan;
    const usedBytes = held ? totalMemory([held]) : null;
    const beside = run.workers[worker % run.workers.length];
    return { worker, device, host, plannedBytes: totalMemory([plan]), isBound, usedBytes, beside };
  });
}

type MemoryLines = ReturnType<typeof memoryLines>;

const cell = (bytes: number | null) => bytes === null ? "" : (bytes / 2 ** 20).toFixed(2);

/** Formats the table, in MiB. */
function memoryTable(lines: MemoryLines): string[] {
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
    ...isAnyBound ? ["≤: an upper bound; the peak depends on the order of messages"] : [],
  ];
}

const BESIDE = ["transient", "sessions", "messages", "fields", "sums", "state", "runtime"] as const;

/** Formats the memory of actors besides stages, and the total, in MiB. */
function besideTable(lines: MemoryLines, run: RunMemory): string[] {
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

/** Formats the resident memory, and explains its difference from the plan. */
function residentLines({ totalBytes }: RunMemory, seen: ResidentMemory): string[] {
  const { rssBytes, peakRssBytes, processes } = seen;
  const ratio = (peakRssBytes / totalBytes).toFixed(2), peak = cell(peakRssBytes);
  return [
    `resident (RSS): at most ${peak} MiB, ${ratio} times the plan; ${cell(rssBytes)} MiB now`,
    ...processes.length > 1
      ? processes.map((one) =>
        `  process ${one.pid}: at most ${cell(one.peakRssBytes)} MiB, at last ${cell(one.rssBytes)}`
      )
      : [],
    "the difference: unused arrays that V8 has not collected yet, free memory that allocators keep, data, and the black box",
  ];
}

/** Used memory of each worker; undefined if it was not counted. */
type Used = readonly StageMemory[] | undefined;

/** Opens a report and starts to sample resident memory, until the report is disposed of. */
export function openMemoryReport() {
  const resident = watchResident();
  let plan: Plan;
  const linesOf = (used: Used) => memoryLines(plan.memory, used, plan.run);
  return {
    /** Returns the text lines before the run. */
    begin(made: Plan) {
      plan = made;
      const lines = linesOf(undefined);
      return [...memoryTable(lines), ...besideTable(lines, plan.run)];
    },
    /** Returns the text lines after the run. */
    end: (
      used: Used,
    ) => [...memoryTable(linesOf(used)), ...residentLines(plan.run, resident.look())],
    /** Returns the whole report as a value for one JSON line. */
    json: (used: Used) => ({
      memory: linesOf(used),
      supervisor: plan.run.supervisor,
      plannedBytes: plan.run.totalBytes,
      ...resident.look(),
    }),
    [Symbol.dispose]: () => resident[Symbol.dispose](),
  };
}
