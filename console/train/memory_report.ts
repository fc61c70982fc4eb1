/**
 * What `--memory` tells: planned before the run, and at its end what was used and what the system saw.
 *
 * @module
 */

import {
  type ActorBytes,
  actorBytes,
  type RunMemory,
  totalMemory,
  type WorkerMemory,
} from "../../actors/run/memory.ts";
import type { Plan } from "../../actors/run/plan.ts";
import type { StageMemory } from "../../kernels/mod.ts";
import { totalBytes } from "../../kernels/internal.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";

/** What the system sees of one process. */
interface ProcessMemory {
  /** Its number. */
  readonly pid: number;
  /** Bytes that are in memory now; of one that has ended, when last seen. */
  readonly rssBytes: number;
  /** The most that it has had. */
  readonly peakRssBytes: number;
}

/** What the system sees of a run. */
interface ResidentMemory {
  /** Bytes of all processes together, now. */
  readonly rssBytes: number;
  /** The most that they have had together, whenever it was looked. */
  readonly peakRssBytes: number;
  /** Those that have been seen, this one first. */
  readonly processes: readonly ProcessMemory[];
}

/** Looks now and then. */
interface ResidentWatch extends Disposable {
  /** Looks now, and says what has been seen. */
  look(): ResidentMemory;
}

const EVERY_MS = 200;

/** Begins to look, until it is disposed of. Does not keep the program from its end. */
export function watchResident(): ResidentWatch {
  const seen = new Map<number, ProcessMemory>();
  let rssBytes = 0, peakRssBytes = 0;
  const look = (): ResidentMemory => {
    const found = processesFrom(Deno.pid);
    for (const one of found) seen.set(one.pid, one);
    rssBytes = totalOf(found);
    peakRssBytes = Math.max(peakRssBytes, rssBytes);
    return { rssBytes, peakRssBytes, processes: [...seen.values()] };
  };
  const timer = setInterval(look, EVERY_MS);
  Deno.unrefTimer(timer);
  return { look, [Symbol.dispose]: () => clearInterval(timer) };
}

/**
 * A process and all that have come of it. Where the system does not tell of others there is at most
 * this one.
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
    // No Linux, or Deno may not look.
  }
  if (found.length > 0 || root !== Deno.pid) return found;
  const { rss } = Deno.memoryUsage();
  return [{ pid: root, rssBytes: rss, peakRssBytes: rss }];
}

const totalOf = (processes: readonly ProcessMemory[]) =>
  processes.reduce((sum, { rssBytes }) => sum + rssBytes, 0);

/** Bytes in memory of a process and all that have come of it. */
export const residentBytes = (root: number): number => totalOf(processesFrom(root));

/** What Linux says of a process; nothing of one that has ended. */
function statusOf(pid: number): ProcessMemory[] {
  const status = read(`/proc/${pid}/status`);
  const bytesOf = (name: string) => 1024 * Number(status.match(`${name}:\\s*(\\d+) kB`)?.[1] ?? 0);
  const rssBytes = bytesOf("VmRSS");
  return rssBytes > 0 ? [{ pid, rssBytes, peakRssBytes: bytesOf("VmHWM") }] : [];
}

/** The processes that any thread of a process has started. */
function childrenOf(pid: number): number[] {
  try {
    return [...Deno.readDirSync(`/proc/${pid}/task`)].flatMap(({ name }) =>
      read(`/proc/${pid}/task/${name}/children`).split(" ").filter(Boolean).map(Number)
    );
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return [];
    throw error;
  }
}

/** A file of the system's, empty where it is no longer there. */
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

/** What one worker holds, as JSON prints it: bytes. */
interface MemoryLine {
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
function memoryLines(
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
function memoryTable(lines: readonly MemoryLine[]): string[] {
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
function besideTable(lines: readonly MemoryLine[], run: RunMemory): string[] {
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
function residentLines({ totalBytes }: RunMemory, seen: ResidentMemory): string[] {
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

/** What was used, for each worker, where it was counted. */
type Used = readonly StageMemory[] | undefined;

/** Tells of memory; disposing of it ends its looking at processes. */
interface MemoryReport extends Disposable {
  /** Lines for a person before the run. */
  begin(plan: Plan): string[];
  /** Lines for a person after it. */
  end(used: Used): string[];
  /** All of that as one line of JSON holds it. */
  json(used: Used): unknown;
}

/** Begins to look at what the system sees. */
export function openMemoryReport(): MemoryReport {
  const resident = watchResident();
  let plan: Plan;
  const linesOf = (used: Used) => memoryLines(plan.memory, used, plan.run);
  return {
    begin(made) {
      plan = made;
      const lines = linesOf(undefined);
      return [...memoryTable(lines), ...besideTable(lines, plan.run)];
    },
    end: (used) => [...memoryTable(linesOf(used)), ...residentLines(plan.run, resident.look())],
    json: (used) => ({
      memory: linesOf(used),
      supervisor: plan.run.supervisor,
      plannedBytes: plan.run.totalBytes,
      ...resident.look(),
    }),
    [Symbol.dispose]: () => resident[Symbol.dispose](),
  };
}
