/**
 * The memory of a run as the system sees it: of this process and of all that it has started.
 *
 * @module
 */

/** What the system sees of one process. */
export interface ProcessMemory {
  /** Its number. */
  readonly pid: number;
  /** Bytes that are in memory now; of one that has ended, when last seen. */
  readonly rssBytes: number;
  /** The most that it has had. */
  readonly peakRssBytes: number;
}

/** What the system sees of a run. */
export interface ResidentMemory {
  /** Bytes of all processes together, now. */
  readonly rssBytes: number;
  /** The most that they have had together, whenever it was looked. */
  readonly peakRssBytes: number;
  /** Those that have been seen, this one first. */
  readonly processes: readonly ProcessMemory[];
}

/** Looks now and then. */
export interface ResidentWatch extends Disposable {
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
