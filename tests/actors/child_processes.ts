/** Lists child processes, on Linux. */

/** Returns the ids of the living processes that `parent` has started. */
export function childProcesses(parent: number): number[] {
  const ids = [...Deno.readDirSync("/proc")].map(({ name }) => Number(name));
  return ids.filter((id) => Number.isInteger(id) && isChild(id, parent));
}

function isChild(id: number, parent: number): boolean {
  try {
    const fields = Deno.readTextFileSync(`/proc/${id}/stat`).split(") ")[1]!.split(" ");
    return Number(fields[1]) === parent && fields[0] !== "Z";
  } catch {
    return false; // it has ended meanwhile
  }
}

const started: number[] = [];

const { spawn } = Deno.Command.prototype;
Deno.Command.prototype.spawn = function (): Deno.ChildProcess {
  const child = spawn.call(this);
  started.push(child.pid);
  return child;
};

/** Returns the number of processes that this test file has started so far. */
export const startsSoFar = (): number => started.length;

/**
 * Returns the ids of the living processes that this test file has started. With `--parallel`
 * each file has a thread, and processes are children of all threads.
 */
export function startedProcesses(): number[] {
  return started.filter((id) => isChild(id, Deno.pid));
}
