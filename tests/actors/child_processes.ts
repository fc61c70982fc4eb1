/** Child processes, on Linux, and threads. */

/** Returns the ids of the living processes that `parent` has started. */
export function childProcesses(parent: number): number[] {
  const ids = [...Deno.readDirSync("/proc")].map(({ name }) => Number(name));
  return ids.filter((id) => Number.isInteger(id) && isChild(id, parent));
}

/** Returns whether a process lives; one whose end has not been awaited yet is dead as well. */
export const isAlive = (id: number): boolean => parentOf(id) !== undefined;

const isChild = (id: number, parent: number): boolean => parentOf(id) === parent;

function parentOf(id: number): number | undefined {
  try {
    const [state, parent] = Deno.readTextFileSync(`/proc/${id}/stat`).split(") ")[1]!.split(" ");
    return /[ZX]/.test(state!) ? undefined : Number(parent);
  } catch {
    return undefined; // it has ended meanwhile
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

/** Notes the threads that begin to listen from now on, until they are terminated. */
export function watchThreads(): Disposable & { readonly living: ReadonlySet<Worker> } {
  const Original = globalThis.Worker, living = new Set<Worker>();
  globalThis.Worker = class extends Original {
    constructor(...args: ConstructorParameters<typeof Original>) {
      super(...args);
      // A thread that has not yet begun to listen can only be ended by its parent.
      this.addEventListener("message", () => living.add(this), { once: true });
    }
    override terminate() {
      living.delete(this);
      super.terminate();
    }
  };
  return { living, [Symbol.dispose]: () => void (globalThis.Worker = Original) };
}
